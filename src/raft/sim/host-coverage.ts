// What a run of the simulated hosts has reached. A counter at zero over a long run means that the
// simulation no longer goes where it must.

import { createCounters } from "../../base/index.ts";

export const hostCoverageHelp = {
  writesDone: "a write was acknowledged",
  writesUnknown: "the fate of a write was not known",
  writesRefused: "a write was refused and did not happen",
  readsDone: "a read was answered",
  kills: "a process was killed",
  powerCuts: "a machine lost its power",
  allPowerCuts: "all machines lost their power at once",
  pauses: "a process stood still",
  stallsNoted: "a host noticed that it had stood still",
  disksHung: "syncs of a disk hung for a while",
  flushesHung: "a leader stepped down over a hanging flush",
  eioNodes: "a node ended over an EIO",
  disksFull: "a volume had no space",
  refusedFull: "a proposal was refused for want of space",
  logsRotted: "synced records of a log were damaged",
  writesMisdirected: "a sector was overwritten by what belongs elsewhere",
  slotsMended: "one slot of term and vote was damaged and mended",
  metasLost: "term and vote of a replica were lost, and it stayed down",
  snapshotsRotted: "a stored snapshot was damaged",
  repairsBegun: "a group went into repair",
  repairsEnded: "a group in repair was caught up",
  disksWiped: "a disk was lost",
  identitiesRefused: "a wiped, foreign or unknown disk was refused",
  strangersHeard: "frames of a disk that is no member were refused",
  framesLost: "a frame was lost",
  framesRepeated: "a frame arrived twice",
  framesDamaged: "a frame arrived damaged and was refused",
  linksCut: "a link was cut",
  snapshotsTaken: "a snapshot was taken",
  snapshotsInstalled: "a snapshot was received and installed",
  snapshotsResumed: "a transfer went on where an earlier one ended",
  membersChanged: "a membership change was done",
  membersRemoved: "a member was removed from its group",
  removalsTold: "a removed member was told so",
  transfers: "leadership was handed over on request",
  programsUpgraded: "a node came back with a newer program",
  versionsRaised: "all replicas changed to the newer version at one index",
  leadersSeen: "a group got a leader of a new term",
} as const;

export type HostCoverage = Record<keyof typeof hostCoverageHelp, number>;

export function createHostCoverage(): HostCoverage {
  return createCounters(hostCoverageHelp);
}

export function addHostCoverage(total: HostCoverage, part: HostCoverage): void {
  for (const name of Object.keys(hostCoverageHelp) as Array<keyof HostCoverage>) {
    total[name] += part[name];
  }
}

export function uncoveredHosts(total: HostCoverage): string[] {
  return Object.entries(total).flatMap(([name, count]) => (count === 0 ? [name] : []));
}
