// A shard's engine, the same for every layout: items are cooked one by one, collected in the entry
// that is open in this turn, proposed, and applied in order once they are durable.
//
// Invariants: commit times strictly grow with the order of items; an item is decided while it is
// cooked and never again; an item's `done` runs after it was applied and before the next one is;
// a checkpoint captures the state between two entries.
// What an item means is left to the layout's machine.

import {
  assert,
  ByteReader,
  ByteWriter,
  type CodedError,
  type Counters,
  createCounters,
  type Logger,
  toError,
} from "../base/index.ts";
import type { KvBatch } from "../kv/index.ts";
import type { CommitClock } from "./commit-clock.ts";
import { storeErrors } from "./errors.ts";
import type { ShardEntry, ShardLog } from "./shard-log.ts";
import type { RecoveryPoint, ShardStore } from "./shard-store.ts";

/** Runs when its item was applied, or with the error that keeps it from ever being so. */
export type ItemDone = (error: CodedError | undefined) => void;

/** State of a layout that items change. All calls are synchronous unless they return a promise. */
export interface ShardMachine {
  apply(kind: number, timeUs: number, body: ByteReader): void;
  /** After `apply` and the item's `done`: hand the change on to readers. */
  dispatch(timeUs: number): void;
  /**
   * Replay only: what must be ready before `apply` (a slab to be opened, memory to be freed).
   * `peek` gives the body that `apply` will get.
   */
  beforeReplay(kind: number, peek: () => ByteReader): Promise<void> | undefined;
  /** Replay only: entries in front of the next one are lost, and with them what they taught. */
  entriesMissing(): void;
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

export type ShardParts = {
  readonly log: ShardLog;
  readonly store: ShardStore;
  readonly time: CommitClock;
  readonly machine: ShardMachine;
  readonly logger: Logger;
  /** Asks for a call of `flush` at the end of this turn. */
  readonly endTurn: (shard: Shard) => void;
  readonly phase: (name: string) => void;
  /** The log will never take an entry again. */
  readonly onFailure: (error: CodedError) => void;
};

export const shardCounterHelp = {
  itemsCooked: "items decided by this leader",
  entriesProposed: "log entries proposed",
  entriesApplied: "log entries applied, replayed ones included",
  checkpoints: "checkpoints committed",
  checkpointsFailed: "checkpoints that did not come about",
};

/** Entry versions: one per kind, frozen once shipped (docs/formats/entries.md). */
export const entryKind = { items: 1 } as const;
const entryVersion = 1;
/** An entry is proposed early at this size: readers of the log hold one entry in memory. */
const entryBytesMax = 256 * 1024;
const entryItemsMax = 1_000;

type OpenEntry = {
  readonly writer: ByteWriter;
  readonly dones: ItemDone[];
  lastUs: number;
};

export class Shard {
  readonly number: number;
  readonly counters: Counters<typeof shardCounterHelp> = createCounters(shardCounterHelp);
  readonly #parts: ShardParts;
  readonly #waiting: Array<{ index: number; dones: ItemDone[] }> = [];
  #open: OpenEntry | undefined;
  #appliedIndex: number;
  #appliedUs: number;
  #epoch: number;
  #recoveries: readonly RecoveryPoint[];
  #checkpointing: Promise<void> | undefined;
  #failure: CodedError | undefined;

  constructor(parts: ShardParts) {
    this.#parts = parts;
    this.number = parts.log.shard;
    const { index, timeUs, epoch, recoveries } = parts.store.checkpoint;
    this.#appliedIndex = index;
    this.#appliedUs = timeUs;
    this.#epoch = epoch;
    this.#recoveries = recoveries;
    parts.time.learn(timeUs);
  }

  /** Commit time of the last applied item. */
  get appliedUs(): number {
    return this.#appliedUs;
  }

  get appliedIndex(): number {
    return this.#appliedIndex;
  }

  get epoch(): number {
    return this.#epoch;
  }

  get recoveries(): readonly RecoveryPoint[] {
    return this.#recoveries;
  }

  get isDirty(): boolean {
    return this.#appliedIndex > this.#parts.store.checkpoint.index;
  }

  get bytesSinceCheckpoint(): number {
    return this.#parts.log.bytesSinceRelease;
  }

  get failure(): CodedError | undefined {
    return this.#failure;
  }

  /** Brings back what the log holds above the checkpoint, then takes proposals. */
  async recover(): Promise<void> {
    const { log, machine } = this.#parts;
    let expected = this.#appliedIndex + 1;
    // A log that ends below the checkpoint has lost nothing that is needed: it goes on above it.
    log.release(this.#appliedIndex);
    await log.replay(expected, async (entry) => {
      if (entry.index > expected) {
        const { number: shard } = this;
        const lost = { shard, fromIndex: expected, toIndex: entry.index - 1 };
        this.#parts.logger.warn("store.entries_missing", lost);
        machine.entriesMissing();
      }
      expected = entry.index + 1;
      await this.#replayEntry(entry, machine);
    });
    this.#parts.time.claim();
    log.start(expected, {
      onCommitted: (entry) => this.#commit(entry),
      onFailed: (error) => this.fail(storeErrors.failed({ reason: error.message }, error)),
    });
    if (log.gaps.length > 0) await this.#beginEpoch();
  }

  /**
   * Gives the item its commit time and puts it into the open entry.
   * REQUIRES: everything that decides about the item has been decided against proposed state.
   */
  cook(kind: number, encode: (writer: ByteWriter, timeUs: number) => void, done: ItemDone): number {
    assert(this.#failure === undefined, "cooking on a failed shard");
    const timeUs = this.#parts.time.next();
    let entry = this.#open;
    if (entry === undefined) {
      entry = { writer: new ByteWriter(512), dones: [], lastUs: timeUs };
      entry.writer.u64(timeUs);
      this.#open = entry;
      this.#parts.endTurn(this);
    }
    entry.writer.u8(kind).varint(timeUs - entry.lastUs);
    entry.lastUs = timeUs;
    encode(entry.writer, timeUs);
    entry.dones.push(done);
    this.counters.itemsCooked++;
    if (entry.writer.length >= entryBytesMax || entry.dones.length >= entryItemsMax) this.flush();
    return timeUs;
  }

  /** Proposes the open entry. */
  flush(): void {
    const entry = this.#open;
    if (entry === undefined) return;
    this.#open = undefined;
    if (this.#failure !== undefined) {
      for (const done of entry.dones) done(this.#failure);
      return;
    }
    const index = this.#parts.log.propose(entryKind.items, entryVersion, entry.writer.finish());
    this.#waiting.push({ index, dones: entry.dones });
    this.counters.entriesProposed++;
  }

  /** Takes nothing more and tells everybody who waits. */
  fail(error: CodedError): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    this.#parts.onFailure(error);
    this.flush();
    for (const { dones } of this.#waiting.splice(0)) for (const done of dones) done(error);
  }

  /** Commits a checkpoint of everything applied; at most one at a time. */
  checkpoint(): Promise<void> {
    this.#checkpointing ??= this.#takeCheckpoint().finally(() => {
      this.#checkpointing = undefined;
    });
    return this.#checkpointing;
  }

  async #takeCheckpoint(): Promise<void> {
    // Never inside an apply: a checkpoint stands between two entries.
    await Promise.resolve();
    const { store, machine, log, phase } = this.#parts;
    const record = {
      index: this.#appliedIndex,
      timeUs: this.#appliedUs,
      epoch: this.#epoch,
      recoveries: this.#recoveries,
    };
    const image = machine.capture();
    phase("checkpoint.captured");
    try {
      await image.prepare();
      phase("checkpoint.prepared");
      await store.commit(record, (batch) => image.addRows(batch));
      phase("checkpoint.committed");
    } catch (error) {
      image.finish(false);
      this.counters.checkpointsFailed++;
      this.#parts.logger.error("store.checkpoint_failed", {
        shard: this.number,
        reason: toError(error).message,
      });
      throw error;
    }
    image.finish(true);
    this.counters.checkpoints++;
    log.release(record.index);
    phase("checkpoint.released");
  }

  #commit(entry: ShardEntry): void {
    const waiting = this.#waiting[0]?.index === entry.index ? this.#waiting.shift() : undefined;
    this.#applyEntry(entry, waiting?.dones);
  }

  #applyEntry(entry: ShardEntry, dones: readonly ItemDone[] | undefined): void {
    const { machine } = this.#parts;
    const reader = new ByteReader(entry.payload);
    let timeUs = reader.u64();
    for (let item = 0; reader.remaining > 0; item++) {
      const kind = reader.u8();
      timeUs += reader.varint();
      machine.apply(kind, timeUs, reader);
      this.#appliedUs = timeUs;
      dones?.[item]?.(undefined);
      machine.dispatch(timeUs);
    }
    this.#appliedIndex = entry.index;
    this.counters.entriesApplied++;
  }

  async #replayEntry(entry: ShardEntry, machine: ShardMachine): Promise<void> {
    if (entry.kind !== entryKind.items || entry.version > entryVersion) {
      throw storeErrors.formatNewer({
        what: `entry ${entry.index} of shard ${this.number}`,
        version: entry.version,
      });
    }
    // The payload is a view of the log's buffer and `beforeReplay` may wait: keep a copy.
    const payload = Buffer.from(entry.payload);
    const reader = new ByteReader(payload);
    let timeUs = reader.u64();
    while (reader.remaining > 0) {
      const kind = reader.u8();
      timeUs += reader.varint();
      const ready = machine.beforeReplay(kind, () => new ByteReader(payload, reader.offset));
      if (ready !== undefined) await ready;
      machine.apply(kind, timeUs, reader);
      this.#appliedUs = timeUs;
      this.#parts.time.learn(timeUs);
    }
    this.#appliedIndex = entry.index;
    this.counters.entriesApplied++;
  }

  /** After a loss: positions of older epochs above the loss are told about it by their readers. */
  async #beginEpoch(): Promise<void> {
    const checkpointUs = this.#parts.store.checkpoint.timeUs;
    this.#epoch++;
    this.#recoveries = [
      ...this.#recoveries,
      { epoch: this.#epoch, fromUs: checkpointUs, toUs: this.#appliedUs },
    ];
    this.#parts.logger.error("store.entries_lost", {
      shard: this.number,
      epoch: this.#epoch,
      gaps: this.#parts.log.gaps.map((gap) => ({ from: gap.fromIndex, to: gap.toIndex })),
    });
    await this.checkpoint();
  }
}
