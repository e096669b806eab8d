// What readers need of a log shard: where TTVs after a position are, in memory or on disk.
//
// A call that can be answered from memory is answered at once; only disk makes it a promise. That
// is what makes hand-over to the tail exact: the last stretch is read in one synchronous step.

import type { TopicFilter } from "../../topic/index.ts";
import type { MissedReport, ShardNumber } from "../api.ts";
import type { PlannedStream } from "../core/lts.ts";
import type { MissingWant } from "../core/missing.ts";
import type { BlockRow } from "../layout/index-row.ts";
import type { TtvBatch } from "../layout/ttv-view.ts";

/** A batch by its extent: in memory with its view, on disk with its index row. */
export type BatchRef =
  | { readonly kind: "memory"; readonly batch: TtvBatch }
  | { readonly kind: "disk"; readonly row: BlockRow };

/** Batches between two times that no batch spans. */
export type BatchWindow = {
  /** The next window begins above it. */
  readonly untilUs: number;
  /** Those of one stream ascend by time. */
  readonly refs: ReadonlyArray<readonly [stream: number, ref: BatchRef]>;
};

export interface SlabSource {
  readonly generation: number;
  /** Exclusive lower and inclusive upper commit time; the current one ends at infinity. */
  readonly afterUs: number;
  readonly untilUs: number;
  plan(filter: TopicFilter): PlannedStream[];
  /** First batch of a stream with a TTV later than `afterUs`; undefined when there is none. */
  next(stream: number, afterUs: number): BatchRef | undefined | Promise<BatchRef | undefined>;
  /** The same where it is a block on disk and known without asking the disk; else undefined. */
  known?(stream: number, afterUs: number): BlockRow | undefined;
  /**
   * For who wants most streams: every batch of the first window that ends above `afterUs`. Undefined
   * where the slab has no windows.
   */
  windowAfter?(afterUs: number): BatchWindow | Promise<BatchWindow> | undefined;
  read(stream: number, row: BlockRow): TtvBatch | Promise<TtvBatch>;
}

export interface ShardSource {
  readonly number: ShardNumber;
  readonly ordinal: number;
  readonly appliedUs: number;
  /** Everything up to here has been offered to readers at the tail. */
  readonly dispatchedUs: number;
  /** The slab that holds the first TTVs after a position, opened when needed. */
  slabAfter(positionUs: number): SlabSource | undefined | Promise<SlabSource | undefined>;
  /**
   * The first stretch above a position whose TTVs were dropped or lost; undefined = there is none.
   * It begins at the position or later, and is passed by going to its end. `wants` says what its
   * count is about.
   */
  missedAfter(positionUs: number, wants: () => readonly MissingWant[]): MissedReport | undefined;
}
