// What replicated shards count.

import { type Counters, createCounters } from "../base/index.ts";

export const clusterCounterHelp = {
  claims: "claims proposed, each by a leader that begins",
  depositions: "times that this node, leading a shard, led it no more",
  batchesApplied: "batches of this node that were committed and applied under their claim",
  batchesRefused: "committed commands that no replica applies: cooked under another claim",
  proposalsRefused: "batches that the group did not take",
  forwardBatches: "batches of writes sent to leaders, this node included",
  forwardRequests: "writes in them, repeats included",
  forwardsRefused: "forwarded writes and openings that a leader could not take now",
  forwardsBroken: "messages about writes that made no sense here",
  copiesAdopted: "times that this node took over the state of a shard from another",
  copiesFailed: "tries of it that came to nothing, begun anew later",
  copiesBroken: "messages about copies that made no sense here",
  copyQuestions: "questions for what is lacking, repeats included",
  copyBytesTaken: "bytes copied from other nodes",
  copyBytesGiven: "bytes given to other nodes",
  fatesRetry: "batches of this node that certainly did not happen",
  fatesUnknown: "batches of this node of which it is not known whether they happened",
  linksLost: "times that a peer was reached no more, or something on the way from it was lost",
  wordsSent: "words sent to other nodes that no log keeps",
  wordsReceived: "such words that came",
  wordsUnreached: "words not sent: their node was not reached",
  wordsRefused: "words not sent: too much was on the way to their node",
  wordsFailed: "words that a part of this node failed over",
  wordsBroken: "words that made no sense here",
};

export type ClusterCounters = Counters<typeof clusterCounterHelp>;

export function createClusterCounters(): ClusterCounters {
  return createCounters(clusterCounterHelp);
}
