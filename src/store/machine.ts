// What a layout is to its shard's engine: a machine that items change, and that can be captured for
// a checkpoint. The engine (shard.ts) decides when; the layouts (log-shard.ts, map/map-shard.ts)
// know what an item means.
//
// All calls are synchronous unless they return a promise, and come in commit order.

import type { ByteReader, ByteSource, ByteWriter, CodedError } from "../base/index.ts";
import type { KvBatch, KvEntry } from "../kv/index.ts";
import type { CopySource } from "./copies/copy-source.ts";
import type { StagedState } from "./copies/staged.ts";
import type { ShardStore } from "./shard-store.ts";

/** What is cooked into the open entry, and who is told of it. */
export interface Item {
  readonly kind: number;
  /** At least as much as `encode` writes. */
  readonly sizeBytes: number;
  /** `done` runs when the operating system has the entry, before it is durable and applied. */
  readonly isEarly?: boolean;
  /**
   * How many items it is in the entry, all of its kind, one microsecond apart; `encode` writes the
   * heads of all but the first. Default 1.
   */
  readonly count?: number;
  encode(writer: ByteWriter, timeUs: number): void;
  /** Runs once when it was applied, or with the error that keeps it from ever being so. */
  done(error: CodedError | undefined): void;
}

export interface ShardMachine {
  apply(kind: number, timeUs: number, body: ByteReader): void;
  /**
   * The same for an item that was cooked here, whose bytes in the entry end at `endsAt`: it need not
   * be decoded; all of them where it is several. False: nothing was done, `apply` has to.
   */
  applyCooked?(item: Item, timeUs: number, entry: ByteSource, endsAt: number): boolean;
  /** After items up to this time were applied and told of: hand the changes on to readers. */
  dispatch(timeUs: number): void;
  /**
   * Replay only: what must be ready before `apply` (a slab to be opened, memory to be freed).
   * `body` is for a look ahead.
   */
  beforeReplay(kind: number, body: ByteReader): Promise<void> | undefined;
  /** Replay only: entries are missing here, and later ones may build on what they said. */
  entriesLost(): void;
  /** Somebody waits for a checkpoint that begins from now on. */
  readonly isAwaited?: boolean;
  /** Freezes what a checkpoint at this moment consists of. */
  capture(): CheckpointImage;
  /**
   * This process gives out no commit times any more: what was decided and not applied is forgotten,
   * and whoever waits for it without an item of his own is told.
   */
  depose?(reason: CodedError): void;
  /** All that was proposed before is applied or void: decisions are made from here on. */
  claim?(): void;
  /** What it gives to a replica that lacks it. */
  supply?(store: ShardStore): CopySource;
  /** Copies what another replica has, of whose shard store these are the rows, beside what is here. */
  stage?(source: CopySource, facts: readonly KvEntry[]): Promise<StagedState>;
}

export interface CheckpointImage {
  /** Makes the slabs hold, synced, everything applied before the capture. */
  prepare(): Promise<void>;
  addRows(batch: KvBatch): void;
  /** The checkpoint stands (true) or did not come about (false: its rows are dirty again). */
  finish(committed: boolean): void;
}

/**
 * Kinds and version of log entries, frozen once shipped (docs/formats/entries.md). `none` is never
 * stored: a place in a replicated log that has nothing for the shard.
 */
export const entryKind = { none: 0, items: 1 } as const;
export const entryVersion = 1;
/** Items of one entry: what a lost one costs at most. */
export const entryItemsMax = 1_000;
