// What a run of seeds has reached. A counter that stays at zero over a nightly run means that the
// simulation no longer goes where it must, and fails the run.

import { createCounters } from "../../base/index.ts";

export const coverageHelp = {
  leadersElected: "a node became leader",
  electionsLost: "a candidate was refused by a majority",
  votesSplit: "an election ended by its time-out",
  prevotesRefused: "a pre-vote was refused",
  termGapWide: "a node met a term at least three above its own",
  quorumLost: "a leader stepped down for want of a quorum",
  suffixReplaced: "a follower replaced uncommitted entries",
  suffixReplacedLong: "a follower replaced at least four entries",
  suffixReplacedInFlight: "a follower replaced entries on their way to its disk",
  oldTermCommitted: "an entry of an earlier term was committed by a later leader",
  membersChanged: "a membership change was committed",
  membersRolledBack: "a membership change was truncated",
  membersMajorityReplaced: "no majority of the first voters is left",
  memberCrash: "a node crashed with a membership change not yet committed",
  leaderRemoved: "a leader left office for having removed itself",
  learnerVoted: "a node voted that was no voter in its own configuration",
  snapshotsTaken: "a node cut its log",
  snapshotsSent: "a leader sent a snapshot",
  snapshotsInstalled: "a follower installed a snapshot",
  snapshotsLost: "a snapshot message was lost",
  windowsFull: "a peer had a full window",
  proposalsLimited: "a proposal met the limit of uncommitted bytes",
  transfersDone: "a transfer moved leadership",
  transfersAbandoned: "a transfer ran out of time",
  readsServed: "a read was answered by its leader",
  readsForwarded: "a read was answered to another node",
  readsLost: "waiting reads were lost with the leadership",
  crashesClean: "a node crashed with an idle disk",
  crashesKept: "writes under way survived a crash",
  crashesTorn: "a write under way was torn by a crash",
  crashesLost: "writes under way were lost in a crash",
  disksWiped: "a disk was wiped and its node stayed away",
  logsRotted: "synced entries were lost, and their node went into repair",
  logsRepaired: "a node in repair had caught up",
  messagesLost: "a message was lost",
  messagesRepeated: "a message arrived twice",
  messagesHeld: "a message was held for whole elections",
  messagesReplayed: "a very old message arrived again",
  cutsSymmetric: "a link was cut both ways",
  cutsOneWay: "a link was cut one way",
  nodesIsolated: "a node was cut from all others",
  pauses: "a node stood still for some time",
  disksHung: "a sync took longer than an election",
  clocksJumped: "a clock ran ahead",
  batchesProposed: "several commands were proposed at once",
  hardStarts: "a seed began in a known-hard state",
  steadySeeds: "a seed in which every change of leader must have a cause",
  readiesOverlapped: "a ready was taken while another was on its way to the disk",
} as const;

export type CoverageName = keyof typeof coverageHelp;
export type Coverage = Record<CoverageName, number>;

export function createCoverage(): Coverage {
  return createCounters(coverageHelp);
}

export function addCoverage(total: Coverage, part: Coverage): void {
  for (const name of Object.keys(coverageHelp) as CoverageName[]) total[name] += part[name];
}

export function uncovered(total: Coverage): CoverageName[] {
  return (Object.keys(coverageHelp) as CoverageName[]).filter((name) => total[name] === 0);
}
