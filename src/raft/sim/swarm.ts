// What one seed tries: the shape of its cluster, its timing, and which faults it has at which rate
// ("swarm testing": each seed has some fault classes and lacks others, so that rare combinations
// and long quiet stretches both happen). Plain data, drawn from the seed alone.

import type { SeededRandom } from "../../base/index.ts";
import {
  defaultRaftSettings,
  type MessageType,
  type NodeId,
  type RaftSettings,
} from "../core/types.ts";
import { messageTypes } from "../script/parse.ts";

export const faultNames = [
  "loss",
  "repeat",
  "hold",
  "replay",
  "typeloss",
  "cut",
  "crash",
  "pause",
  "slowdisk",
  "wipe",
  "rot",
  "jump",
  "drift",
  "member",
  "transfer",
  "campaign",
  "snapshot",
  "burst",
  "read",
  "lazyready",
  "hardstart",
] as const;

export type FaultName = (typeof faultNames)[number];

export type Swarm = {
  readonly voters: readonly NodeId[];
  readonly learners: readonly NodeId[];
  /** Ids that may be added. */
  readonly spares: readonly NodeId[];
  readonly settings: RaftSettings;
  readonly faults: ReadonlySet<FaultName>;
  readonly tickMs: number;
  readonly delayMsMax: number;
  readonly syncMsMax: number;
  readonly lossRate: number;
  readonly repeatRate: number;
  readonly holdRate: number;
  readonly replayRate: number;
  readonly lostType: MessageType;
  readonly typelossRate: number;
  /** Mean time between two injected faults. */
  readonly faultMs: number;
  readonly proposeMs: number;
  readonly burstMax: number;
  readonly paddingMax: number;
  /** Applied entries between two snapshots, and how many stay in the log below one. */
  readonly snapshotEntries: number;
  readonly trailEntries: number;
  /** The host does not write a commit index that comes alone. */
  readonly lazyCommit: boolean;
  /** Messages travel as bytes. */
  readonly encoded: boolean;
};

/** How often a fault class takes part. */
const participation = 0.45;

export function drawSwarm(random: SeededRandom, without: ReadonlySet<FaultName>): Swarm {
  const faults = new Set<FaultName>();
  for (const name of faultNames) {
    const drawn = random.chance(participation);
    if (drawn && !without.has(name)) faults.add(name);
  }
  const voterCount = random.pick([1, 2, 3, 3, 3, 3, 3, 4, 5, 5, 5]);
  const learnerCount = random.pick([0, 0, 0, 1]);
  const ids = Array.from({ length: voterCount + learnerCount + 2 }, (_, place) => place + 1);
  const electionTicks = random.between(3, 8);
  return {
    voters: ids.slice(0, voterCount),
    learners: ids.slice(voterCount, voterCount + learnerCount),
    spares: ids.slice(voterCount + learnerCount),
    settings: drawSettings(random, electionTicks),
    faults,
    tickMs: 100,
    delayMsMax: random.pick([5, 20, 80, 250]),
    syncMsMax: random.pick([0, 5, 40, 150]),
    lossRate: random.pick([0.01, 0.05, 0.2]),
    repeatRate: random.pick([0.02, 0.1]),
    holdRate: random.pick([0.01, 0.05]),
    replayRate: random.pick([0.01, 0.03]),
    lostType: random.pick(messageTypes),
    typelossRate: random.pick([0.3, 0.8]),
    faultMs: random.pick([60, 150, 400]),
    proposeMs: random.pick([30, 120, 500]),
    burstMax: random.pick([3, 12]),
    paddingMax: random.pick([0, 0, 64, 600]),
    snapshotEntries: random.pick([3, 10, 40]),
    trailEntries: random.pick([0, 0, 2, 10]),
    encoded: random.chance(0.15),
    lazyCommit: random.chance(0.5),
  };
}

function drawSettings(random: SeededRandom, electionTicks: number): RaftSettings {
  return {
    ...defaultRaftSettings,
    electionTicks,
    heartbeatTicks: random.chance(0.3) && electionTicks >= 5 ? 2 : 1,
    preVote: random.chance(0.7),
    checkQuorum: random.chance(0.7),
    inflightMessagesMax: random.pick([1, 2, 4, 256]),
    inflightBytesMax: random.pick([100, 1000, 1_000_000]),
    appendEntriesMax: random.pick([1, 2, 8, 64]),
    appendBytesMax: random.pick([100, 1000, 1_000_000]),
    uncommittedBytesMax: random.pick([200, 2000, 1_000_000]),
    applyBytesMax: random.pick([50, 1_000_000]),
    snapshotTicks: 2 * electionTicks,
  };
}
