// What a layout is to its shard's engine: a machine that items change, and that can be captured for
// a checkpoint. The engine (shard.ts) decides when; the layouts (log-shard.ts, map/map-shard.ts)
// know what an item means.
//
// All calls are synchronous unless they return a promise, and come in commit order.

import type { ByteReader } from "../base/index.ts";
import type { KvBatch } from "../kv/index.ts";

export interface ShardMachine {
  apply(kind: number, timeUs: number, body: ByteReader): void;
  /** After `apply` and the item's `done`: hand the change on to readers. */
  dispatch(timeUs: number): void;
  /**
   * Replay only: what must be ready before `apply` (a slab to be opened, memory to be freed).
   * `body` is for a look ahead.
   */
  beforeReplay(kind: number, body: ByteReader): Promise<void> | undefined;
  /** Replay only: entries are missing here, and later ones may build on what they said. */
  entriesLost(): void;
  /** Freezes what a checkpoint at this moment consists of. */
  capture(): CheckpointImage;
}

export interface CheckpointImage {
  /** Makes the slabs hold, synced, everything applied before the capture. */
  prepare(): Promise<void>;
  addRows(batch: KvBatch): void;
  /** The checkpoint stands (true) or did not come about (false: its rows are dirty again). */
  finish(committed: boolean): void;
}

/** Kinds and version of log entries, frozen once shipped (docs/formats/entries.md). */
export const entryKind = { items: 1 } as const;
export const entryVersion = 1;
/** Items of one entry: what a lost one costs at most. */
export const entryItemsMax = 1_000;
