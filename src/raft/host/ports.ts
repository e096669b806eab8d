// What the host needs from others: a state machine for each group, a transport, a store of
// snapshots; and its settings. Each port has a twin in memory beside the real one.

import {
  type CommandEntry,
  defaultRaftSettings,
  type NodeId,
  type RaftSettings,
} from "../core/types.ts";
import type { Uuid } from "./identity.ts";
import type { SnapshotHead, SnapshotManifest } from "./manifest.ts";
import type { Member } from "./members.ts";

/**
 * What a group replicates. Calls never overlap; entries come once each, in the order of the log,
 * from the index after `durableIndex` or after the installed snapshot on. What it throws ends the
 * group on this node.
 */
export interface StateMachine {
  /** Newest version of the snapshots that `install` reads, u16. */
  readonly version: number;
  /**
   * Version of what `capture` makes now, at most `version`; absent: the same. A machine whose
   * versions are raised by an entry says the one in force, so that members whose program is still
   * older can take its snapshots.
   */
  readonly captureVersion?: number;
  /** Highest index in its own durable state; 0 for a machine that lives in memory. */
  readonly durableIndex: number;
  /** One result an entry, for whoever proposed it. Data are views valid until it resolves. */
  apply(entries: readonly CommandEntry[]): readonly unknown[] | Promise<readonly unknown[]>;
  /**
   * The state after the last applied entry. Frozen by the call; read while later entries are
   * applied, in pieces of any size.
   */
  capture(): Iterable<Uint8Array> | AsyncIterable<Uint8Array>;
  /**
   * A snapshot of node `from` is here, and nothing is given up for it yet: for a machine that gets what
   * it stands for by itself. Beside `apply`; rejects when it cannot, and is called again later.
   */
  prepare?(head: SnapshotHead, from: NodeId): Promise<void>;
  /** Replaces the state; `pieces` are those of `capture`, cut elsewhere. */
  install(head: SnapshotHead, pieces: AsyncIterable<Uint8Array>): Promise<void>;
  /**
   * For a machine that makes its state durable itself: instead of `capture`, the host asks for
   * `Group.snapshotAt`, soon.
   */
  wantSnapshot?(): void;
  /** This node leads the group in `term`; with undefined, it leads no more. */
  led?(term: number | undefined): void;
  /** The machine of another member says something, by `RaftHost.tell`; checked no further. */
  told?(from: number, data: Uint8Array): void;
  /** The group has ended on this node: nothing more comes. Once. */
  ended?(reason: Error): void;
}

export type TransportEvents = {
  /** A whole frame, length prefix included; the memory passes to the receiver. */
  readonly onFrame: (frame: Buffer) => void;
  /** What was sent to this site before may be lost. */
  readonly onDown: (siteId: Uuid) => void;
};

/** Carries frames between hosts: in order while a connection lasts, else any may be lost. */
export interface Transport {
  start(events: TransportEvents): Promise<void>;
  /** Whom to keep a connection with; told again at each change. */
  setPeers(peers: readonly Member[]): void;
  /** False when the frame was not taken: no connection, or its queue is full. */
  send(to: Uuid, frame: Uint8Array): boolean;
  close(): Promise<void>;
}

/** A complete snapshot, open. What was replaced by a newer one can still be read. */
export interface SnapshotReader {
  readonly manifest: SnapshotManifest;
  /** @throws RAFT_SNAPSHOT_DAMAGED. */
  read(chunk: number): Promise<Buffer>;
  close(): Promise<void>;
}

/** A snapshot on its way here; what it holds survives a restart. */
export interface SnapshotReceiver {
  readonly manifest: SnapshotManifest;
  /** The chunk wanted next. */
  readonly next: number;
  /** False for one that is not the next, or not what the manifest says. */
  add(chunk: number, data: Uint8Array): Promise<boolean>;
  /** Makes it the group's snapshot. Durable when this resolves. REQUIRES: all chunks. */
  commit(): Promise<void>;
  close(): Promise<void>;
}

/** The newest complete snapshot of each group. */
export interface SnapshotStore {
  /** Undefined when the group has none. @throws RAFT_SNAPSHOT_DAMAGED. */
  latest(group: number): Promise<SnapshotReader | undefined>;
  /** Stores a snapshot of our own; it counts, durably, when this resolves. */
  write(
    head: SnapshotHead,
    pieces: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
  ): Promise<SnapshotManifest>;
  /** Begins, or goes on with what was received of the same snapshot. */
  receive(manifest: SnapshotManifest): Promise<SnapshotReceiver>;
}

export type HostSettings = {
  readonly raft: RaftSettings;
  readonly tickMs: number;
  /** A tick later than this is one tick, and followers wait for their leader before they stand. */
  readonly stallMs: number;
  /** Largest frame taken or sent: a large entry with room around it. */
  readonly frameBytesMax: number;
  readonly groupsMax: number;
  /** Proposed and not yet applied, over all groups; at the brim proposals are refused. */
  readonly proposedBytesMax: number;
  /** From here on answers are held until the next tick, so that writers slow down. */
  readonly proposedBytesSoft: number;
  /** Waiting proposals and reads of one group; refused at the brim. */
  readonly waitersMax: number;
  /** Then the fate of a proposal is unknown, and a read failed. */
  readonly waitTicksMax: number;
  readonly snapshotChunkBytes: number;
  /** Chunks under way to one receiver. */
  readonly snapshotCredits: number;
  /** Transfers at a time, each way; more wait for their core to ask again. */
  readonly snapshotTransfersMax: number;
  /** Bytes of log after which a snapshot is taken. */
  readonly snapshotLogBytes: number;
  /** Applied entries that stay in the log below a snapshot, for followers that lag a little. */
  readonly keptEntries: number;
  /** Up to this much of the log a follower that answers is not cut off from. */
  readonly keptLogBytes: number;
};

/** Ticks of 100 ms; a wait of 15 s outlasts a fail-over. */
export const defaultHostSettings: HostSettings = {
  raft: defaultRaftSettings,
  tickMs: 100,
  stallMs: 500,
  frameBytesMax: 16 * 1024 * 1024,
  groupsMax: 4096,
  proposedBytesMax: 256 * 1024 * 1024,
  proposedBytesSoft: 128 * 1024 * 1024,
  waitersMax: 100_000,
  waitTicksMax: 150,
  snapshotChunkBytes: 256 * 1024,
  snapshotCredits: 8,
  snapshotTransfersMax: 4,
  snapshotLogBytes: 64 * 1024 * 1024,
  keptEntries: 1024,
  keptLogBytes: 512 * 1024 * 1024,
};
