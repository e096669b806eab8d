// The one record a Raft node consists of, and the few questions all parts ask of it.
//
// Everything that decides anything is in here; there is no other memory. It is changed only by
// `roles`, `election`, `follower`, `leader`, `membership` of the core, each within one call of the
// face in `raft.ts`. Nothing reads a clock, a disk or an unseeded random source.

import { assert, type Random } from "../../base/index.ts";
import { RaftLog } from "./log.ts";
import { ConfigurationHistory, isMember, isVoter } from "./membership.ts";
import type { Progress } from "./progress.ts";
import {
  type HardState,
  type Message,
  type NodeId,
  noNode,
  type RaftBoot,
  type RaftSettings,
  type ReadState,
  type RefusalReason,
  type Refused,
  type Role,
  type SnapshotMeta,
} from "./types.ts";

/** What a ready that is not yet durable will have made durable. */
export type DiskFlight = {
  readonly number: number;
  readonly hardState: HardState | undefined;
  /** Highest index of its entries; lowered when they are replaced while on their way. */
  lastIndex: number;
};

export type WaitingRead = {
  readonly context: string;
  /** Who asked; ourselves for local reads. */
  readonly from: NodeId;
  /** Commit index when the read came; undefined until an entry of the own term is committed. */
  index: number | undefined;
  /** Read round that proves leadership; 0 while none has begun. */
  round: number;
};

export type Transfer = { readonly to: NodeId; elapsed: number; sent: boolean };

export type RaftState = {
  readonly id: NodeId;
  readonly settings: RaftSettings;
  readonly random: Pick<Random, "below">;
  readonly log: RaftLog;
  readonly configurations: ConfigurationHistory;
  /** Neither votes nor stands for election. */
  repairing: boolean;
  term: number;
  vote: NodeId;
  role: Role;
  leader: NodeId;
  /** Ticks since the last sign of a leader; for a leader, since the last check of the quorum. */
  electionElapsed: number;
  electionTimeout: number;
  heartbeatElapsed: number;
  /** Of the election under way, by voter. */
  votes: Map<NodeId, boolean>;
  /** Leader only: peers of the newest configuration, in the order of their ids. */
  peers: Map<NodeId, Progress>;
  /** Leader only: index of the entry that opened the term. */
  barrierIndex: number;
  uncommittedBytes: number;
  transfer: Transfer | undefined;
  reads: WaitingRead[];
  readRound: number;
  /** Latest snapshot that can be sent. */
  snapshot: SnapshotMeta;
  /** Received and not yet handed to the host. */
  incoming: SnapshotMeta | undefined;
  outbox: Message[];
  outboxAfterSync: Message[];
  readStates: ReadState[];
  readsLost: string[];
  /** As last handed to the host. */
  savedHardState: HardState;
  readyNumber: number;
  diskFlights: DiskFlight[];
};

export function createState(
  id: NodeId,
  settings: RaftSettings,
  random: Pick<Random, "below">,
  boot: RaftBoot,
): RaftState {
  const log = new RaftLog(boot.snapshot, boot.entries);
  assert(boot.applied >= boot.snapshot.index, "state machine is behind its own snapshot");
  assert(boot.applied <= log.lastIndex, "state machine is ahead of the log");
  // The commit index may be older than the state machine, and newer than a log written apart.
  log.commitTo(Math.max(boot.applied, Math.min(boot.hardState.commit, log.lastIndex)));
  log.handedOut = boot.applied;
  log.applied = boot.applied;
  const { configuration, configurationIndex } = boot.snapshot;
  const configurations = new ConfigurationHistory(configurationIndex, configuration);
  for (const entry of boot.entries) {
    if (entry.kind === "membership") configurations.add(entry.index, entry.configuration);
  }
  // The hard state has a file of its own: entries of a later term may have survived a crash that it
  // did not. No vote of that term was answered then.
  const behind = boot.hardState.term < log.lastTerm;
  return {
    id,
    settings,
    random,
    log,
    configurations,
    repairing: boot.repairing ?? false,
    term: behind ? log.lastTerm : boot.hardState.term,
    vote: behind ? noNode : boot.hardState.vote,
    role: "follower",
    leader: noNode,
    electionElapsed: 0,
    electionTimeout: drawElectionTimeout(settings, random),
    heartbeatElapsed: 0,
    votes: new Map(),
    peers: new Map(),
    barrierIndex: 0,
    uncommittedBytes: 0,
    transfer: undefined,
    reads: [],
    readRound: 0,
    snapshot: boot.snapshot,
    incoming: undefined,
    outbox: [],
    outboxAfterSync: [],
    readStates: [],
    readsLost: [],
    savedHardState: boot.hardState,
    readyNumber: 0,
    diskFlights: [],
  };
}

export function drawElectionTimeout(settings: RaftSettings, random: Pick<Random, "below">): number {
  return settings.electionTicks + random.below(settings.electionTicks);
}

export function voters(state: RaftState): readonly NodeId[] {
  return state.configurations.newest.voters;
}

/** A voter of the newest configuration: counts in elections and commits. */
export function countsItself(state: RaftState): boolean {
  return isVoter(state.configurations.newest, state.id);
}

export function isPeer(state: RaftState, node: NodeId): boolean {
  return isMember(state.configurations.newest, node);
}

/**
 * Whether the node may stand for election: a voter of the newest configuration, of the one that it
 * knows to be committed, or of one between them. Any of these may be the one in force, and where the
 * others lack what this node's log has, nobody else can be elected.
 */
export function mayCampaign(state: RaftState): boolean {
  return !state.repairing && state.configurations.hasVoterFrom(state.log.commit, state.id);
}

/** Whether the leader has committed an entry of its own term, so that its commit is the newest. */
export function hasOwnCommit(state: RaftState): boolean {
  return state.log.commit >= state.barrierIndex;
}

export function refused(state: RaftState, reason: RefusalReason): Refused {
  return { accepted: false, reason, leader: state.leader };
}
