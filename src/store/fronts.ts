// Where what is written to a shard at this node goes: to the shard itself on a single node, and on a
// replica to whoever leads it, by whatever the program that runs the replicas puts in front of it.

import type { CodedError } from "../base/index.ts";
import type {
  AppendDone,
  AppendRequest,
  AppendRun,
  AppendRunDone,
  MapShard,
  MapWrite,
  PublisherClaim,
  ShardNumber,
  WriterStamp,
} from "./api.ts";
import type { EvidenceItem } from "./evidence.ts";
import type { Decided, ShardRequest } from "./verdict.ts";

/** What is written to a log shard from outside of it. A log shard is its own front. */
export interface LogFront {
  readonly number: ShardNumber;
  append(request: AppendRequest, done: AppendDone): void;
  /** Only where the shard is led here for ever. */
  appendRun?(run: AppendRun, done: AppendRunDone): void;
  release(item: EvidenceItem, done: (error: CodedError | undefined, known: boolean) => void): void;
  openEvidence(publisher: string, claim: PublisherClaim): Promise<void>;
  closeEvidence(publisher: string, claim: PublisherClaim): void;
  endEvidence(publisher: string, incarnation: number): Promise<void>;
  /** As `EvidenceFace.list`; what is proposed counts, here and in the two below. */
  listEvidence(publisher: string, claim: PublisherClaim): number[];
  isTaken(item: EvidenceItem): boolean;
  isRouted(item: EvidenceItem): boolean;
  openWriter(name: string): Promise<number>;
  closeWriter(name: string): Promise<void>;
  writerResult(stamp: WriterStamp): number | undefined;
  rotate(): Promise<void>;
  dropUntil(untilUs: number, options?: { readonly force?: boolean }): Promise<number>;
  hold(name: string, afterUs: number): Promise<void>;
  releaseHold(name: string): Promise<void>;
}

/** A shard as whoever forwards to its leader needs it: where it is led here, it decides. */
export interface ShardReplica {
  readonly number: ShardNumber;
  /** Reads see everything up to here. */
  readonly appliedUs: number;
  /** Nothing will be applied any more. */
  readonly failure: CodedError | undefined;
  /** Runs `then` once this time is applied, at once where it is, or when the shard has ended. */
  whenApplied(timeUs: number, then: () => void): void;
  /** Runs a call whose faults are counted here. */
  callSafely(call: () => void): void;
  /** Why a request of this size can never be taken. */
  sizeError(sizeBytes: number): CodedError | undefined;
  /** Whether requests of this kind are for this layout. */
  takes(kind: ShardRequest["kind"]): boolean;
  /** Opens a writer of another node. */
  openWriter(name: string): Promise<number>;
  /** What must be known before these are taken, in the same turn; resolves with what ends it. */
  prepare(requests: readonly ShardRequest[]): Promise<() => void> | undefined;
  /**
   * Decides a request, or answers it as it was decided under this stamp. `done` gets an error where it
   * is not decided now and may be asked again under the same stamp. REQUIRES: `takes`, `prepare`.
   */
  take(stamp: WriterStamp, request: ShardRequest, done: Decided): void;
}

/** What takes more than one entry, and may be done twice. */
export type ShardCall =
  | { readonly kind: "rotate" }
  | { readonly kind: "drop"; readonly untilUs: number; readonly force: boolean }
  | { readonly kind: "end_evidence"; readonly publisher: string; readonly incarnation: number };

export interface LogReplica extends ShardReplica {
  /** Carries it out where the shard is led here; resolves with the number of what was dropped. */
  call(call: ShardCall): Promise<number>;
  /** Evidence that is applied here, by packet id: whether it is routed. */
  takenIds(publisher: string, incarnation: number): Promise<ReadonlyMap<number, boolean>>;
  writerResult(stamp: WriterStamp): number | undefined;
  /** What is applied here is in its slabs. */
  checkpoint(): Promise<void>;
}

export interface MapReplica
  extends ShardReplica,
    Pick<MapShard, "number" | "appliedUs" | "get" | "list" | "match" | "watch" | "barrier"> {
  /** Why these can never be written. */
  writesError(writes: readonly MapWrite[]): CodedError | undefined;
}

/** Puts something in front of each shard that is opened. */
export interface ShardFronts {
  log(replica: LogReplica): LogFront;
  map(replica: MapReplica): MapShard;
}
