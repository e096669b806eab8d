// What a host counts.

import { type Counters, createCounters } from "../../base/index.ts";

export const hostCounterHelp = {
  framesSent: "Frames handed to the transport",
  framesDropped: "Frames the transport did not take; Raft sends again",
  framesReceived: "Frames that passed all checks",
  refusedLength: "Frames refused for their length",
  refusedMagic: "Frames refused: not of this protocol",
  refusedVersion: "Frames refused for their version",
  refusedCluster: "Frames refused: of another cluster",
  refusedSender: "Frames refused: site or disk is not a member",
  refusedCrc: "Frames refused for their checksum",
  refusedKind: "Frames refused: unknown kind",
  refusedBody: "Frames refused: body or message cannot be read",
  lettersUnknownGroup: "Messages of groups that are not here",
  lettersWrongEpoch: "Messages of another epoch of their group",
  lettersOldIncarnation: "Messages from before a log lost entries",
  lettersMisaddressed: "Messages whose node number is not the sender's or not ours",
  proposalsRefused: "Proposals refused at a limit or for want of space",
  acksDelayed: "Answers held until the next tick, above the soft mark",
  stalls: "Ticks that came late",
  flushesHung: "Leaders that stepped down over a flush that did not end",
  fullLeadersYielded: "Leaders without space that handed over",
  snapshotsTaken: "Snapshots taken",
  snapshotsSent: "Snapshots sent to the end",
  snapshotsInstalled: "Snapshots received and installed",
  snapshotsFailed: "Snapshots not taken, sent or received to the end",
  installsWithoutSpace: "Times the installation of a snapshot waited for space",
  snapshotsResumed: "Transfers that went on where an earlier one ended",
  groupsRepairing: "Groups that began a repair",
  repairsAlone: "Repairs that no leader helped for ten elections: a majority may be in repair",
  groupsRepaired: "Groups that were caught up after a repair",
  groupsFailed: "Groups that stopped over a fault of their machine",
  removalsTold: "Notices to removed members",
  epochsTold: "Notices to replicas that a forced recovery left behind",
} as const;

export type HostCounters = Counters<typeof hostCounterHelp>;

export function createHostCounters(): HostCounters {
  return createCounters(hostCounterHelp);
}
