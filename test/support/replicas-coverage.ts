// What histories of replicas reach.

import { createCounters } from "../../src/base/index.ts";

export const replicasCoverageHelp = {
  acks: "appends acked",
  keysAcked: "map writes acked",
  transactionsAcked: "transactions acked that take the next number",
  rangesAcked: "transactions acked that read a range",
  onceStored: "exactly-once publishes acked as stored",
  onceRepeats: "exactly-once publishes that another try had stored",
  ownersReplaced: "publishers that went to another node with a message of unknown fate",
  releases: "packet ids released",
  doneAway: "whatever was done at nodes that did not lead",
  repeats: "appends tried again",
  kills: "processes killed",
  powerCuts: "machines that lost their power",
  cuts: "nodes cut off, one way or both",
  transfers: "leaders asked to hand over",
  slowDisks: "disks that took long for a while",
  fullDisks: "disks without room for a while",
  clockSteps: "wall clocks that jumped, each on one node",
  rots: "bits of a log that flipped",
  repairs: "groups that were repaired by the others",
  wipes: "members that lost their disk, replaced by new ones",
  moves: "members replaced by others",
  copies: "times that a replica took over a shard's state from another",
  slabsKept: "slabs that were here already",
  slabsCopied: "slabs that were copied",
  slabsResumed: "slabs of which a copy went on",
  lossyMs: "time with a network that loses, repeats and delays",
  rotations: "generations ended",
  drops: "drops asked for",
  checkpoints: "checkpoints taken",
  claims: "claims proposed",
  depositions: "leaders deposed with a shard",
  batchesRefused: "committed commands refused by their fence",
  fatesRetry: "proposals that did not happen",
  fatesUnknown: "proposals of unknown fate",
  forwardsAcked: "appends acked at whatever node they came to",
  forwardsUnknown: "such appends of unknown fate",
  forwardBatches: "batches of them",
  forwardsRefused: "what a leader could not take of them",
  barriers: "reads behind a barrier",
  foreignRead: "TTVs that readers got at nodes that did not lead",
};

export type ReplicasCoverage = Record<keyof typeof replicasCoverageHelp, number>;

export const createReplicasCoverage = (): ReplicasCoverage => createCounters(replicasCoverageHelp);
