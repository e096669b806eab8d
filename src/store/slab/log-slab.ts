// A slab of layout `log`: one generation of one shard. Committed TTVs collect in an open block per
// stream, sealed blocks wait in memory until they are in the slab's stores, and readers find a TTV
// wherever it is.
//
// Invariants: a stream's blocks follow each other in time; a block leaves memory in the same step in
// which it becomes findable on disk; `blocks` never holds a block without all earlier ones of its
// stream being written before it; nothing is overwritten.

import { assert, isCodedError, type Logger, toError } from "../../base/index.ts";
import { kvErrors } from "../../kv/index.ts";
import type { TopicFilter } from "../../topic/index.ts";
import type { CopyPage, SlabStoreName } from "../copies/copy-source.ts";
import type { Lts, PlannedStream } from "../core/lts.ts";
import type { LtsRecord } from "../core/lts-trie.ts";
import type { Place } from "../core/place.ts";
import type { Structure } from "../core/structure.ts";
import { storeErrors } from "../errors.ts";
import {
  type BlockRow,
  type BlockWrite,
  gapOf,
  unreadableSize,
  writeBlock,
} from "../layout/index-row.ts";
import { LostBatch } from "../layout/lost-batch.ts";
import { OpenBlock, type OpenBlockHint } from "../layout/open-block.ts";
import type { TtvBatch } from "../layout/ttv-view.ts";
import { plainRow, type Window, windowsOf } from "../layout/window.ts";
import type { BatchRef, BatchWindow, SlabSource } from "../pools/source.ts";
import type { TtvSource } from "../types.ts";
import type { BlockReader } from "./block-reader.ts";
import { hasWindows } from "./layouts.ts";
import type { SlabProofs, TopicWrite } from "./slab-parts.ts";
import type { SlabStores } from "./slab-stores.ts";

/** Blocks of one batch: larger ones do not make LevelDB faster. */
const batchBlocksMax = 32;
const corruptRow = "STORE_ROW_CORRUPT";
/** Rows of a slab without windows that are sorted in memory: some 200 MB. */
const sortedRowsMax = 2_000_000;
/** Index rows looked up at once. */
const rowPageCount = 64;

export type LogSlabParts = {
  readonly stores: SlabStores;
  readonly lts: Lts;
  /** Reads it again from the stores of a slab that has ended. */
  readonly loadLts: () => Promise<Lts>;
  readonly reader: BlockReader;
  readonly logger: Logger;
  readonly phase: (name: string) => void;
  /** Bytes of unwritten blocks changed by this much. */
  readonly onMemory: (deltaBytes: number) => void;
  readonly onSealed: (stream: number, added: SealedAmount) => void;
  /** A reader needed its stores. */
  readonly onUsed: () => void;
  /** TTVs of a stream, as far as they are sealed. */
  readonly countOf: (stream: number) => number;
  /** Nothing can be written to it any more, and only a start mends that. Called once. */
  readonly onFailure: (error: Error) => void;
};

export type SealedAmount = {
  readonly ttvs: number;
  readonly sizeBytes: number;
  readonly firstUs: number;
};

export type LogSlabSpan = {
  readonly generation: number;
  /** First commit time of the generation. */
  readonly fromUs: number;
  /** First commit time after it; undefined while it is current. */
  readonly toUs: number | undefined;
  /** Everything up to here is on disk when the slab is opened. */
  readonly writtenUs: number;
  readonly layout: string;
};

/** A little more than many frames took: they are seldom of exactly the same size again. */
const hintedBytes = ({ count, framesBytes }: OpenBlock): number =>
  count < 16 ? framesBytes : framesBytes + (framesBytes >>> 3);

type Sealed = { readonly stream: number; readonly block: OpenBlock };

export class LogSlab implements SlabSource {
  readonly generation: number;
  readonly afterUs: number;
  untilUs: number;
  /** Undefined once it was forgotten; see `ready`. */
  #lts: Lts | undefined;
  #loading: Promise<void> | undefined;
  readonly #parts: LogSlabParts;
  readonly #openedUs: number;
  readonly #open = new Map<number, OpenBlock>();
  /** What the last block of each stream held. */
  readonly #hints = new Map<number, OpenBlockHint>();
  /** Sealed and not yet on disk, by stream, oldest first. */
  readonly #unwritten = new Map<number, OpenBlock[]>();
  readonly #queue: Sealed[] = [];
  #topics: TopicWrite[] = [];
  readonly #lastWrittenUs = new Map<number, number>();
  readonly #rowPages = new Map<number, BlockRow[]>();
  readonly #hasWindows: boolean;
  /** Blocks up to here are in windows on disk. */
  #windowedUs: number;
  /** Blocks on disk that no window lists yet; a checkpoint's worth. */
  #unlisted: BlockRow[] = [];
  /** Walks under way: whoever replaces the slab waits for them. */
  #walks = 0;
  #onIdle: (() => void) | undefined;
  #sealedCount = 0;
  #writtenCount = 0;
  #writing: Promise<void> | undefined;
  #closed = false;
  #failure: Error | undefined;

  constructor(parts: LogSlabParts, span: LogSlabSpan) {
    this.#parts = parts;
    this.generation = span.generation;
    this.afterUs = span.fromUs - 1;
    this.untilUs = span.toUs === undefined ? Number.POSITIVE_INFINITY : span.toUs - 1;
    this.#openedUs = span.writtenUs;
    this.#windowedUs = span.writtenUs;
    this.#hasWindows = hasWindows(span.layout);
    this.#lts = parts.lts;
  }

  // -------------------------------------------------------------- what is learned

  /** REQUIRES: nothing is awaited since `ready`, or a walk is under way. @throws KV_CLOSED. */
  get lts(): Lts {
    if (this.#lts === undefined) throw kvErrors.closed({ path: this.#parts.stores.path });
    return this.#lts;
  }

  get trieBytes(): number {
    return this.#lts?.sizeBytes ?? 0;
  }

  /** Undefined when `lts` is there; else reads it. @throws codes of its stores. */
  ready(): Promise<void> | undefined {
    if (this.#lts !== undefined) return undefined;
    this.#loading ??= this.#load().finally(() => {
      this.#loading = undefined;
    });
    return this.#loading;
  }

  async #load(): Promise<void> {
    this.#parts.onUsed();
    this.#lts = await this.#parts.loadLts();
  }

  /** REQUIRES: sealed, and wholly written. */
  forgetTrie(): void {
    if (this.#walks === 0) this.#lts = undefined;
  }

  // -------------------------------------------------------------- writing

  /** Records that an applied entry brought; they are on disk with the next write at the latest. */
  learn(records: readonly LtsRecord[], timeUs: number): void {
    if (records.length === 0) return;
    this.lts.apply(records);
    this.remember(records, timeUs);
  }

  /** Records that the trie has already: what a generation begins with. */
  remember(records: readonly LtsRecord[], timeUs: number): void {
    for (const record of records) this.#topics.push({ record, timeUs });
  }

  /** An applied TTV. The frame is copied. */
  append(ttv: TtvSource, place: Place): void {
    const { stream } = place;
    let block = this.#open.get(stream);
    if (block !== undefined && !block.fits(ttv.to - ttv.from)) {
      this.#seal(stream, block);
      block = undefined;
    }
    if (block === undefined) {
      block = new OpenBlock(undefined, this.#hints.get(stream));
      this.#open.set(stream, block);
    }
    const before = block.count === 0 ? 0 : block.memoryBytes;
    block.appendAt(ttv, place);
    const added = block.memoryBytes - before;
    if (added !== 0) this.#parts.onMemory(added);
    if (block.isFull) this.#seal(stream, block);
  }

  sealAll(): void {
    for (const [stream, block] of [...this.#open]) this.#seal(stream, block);
  }

  /**
   * Seals the largest open blocks, until they make up half of what all take: small ones would cost
   * more on disk than they free.
   */
  sealLargest(): void {
    const blocks = [...this.#open].sort(([, a], [, b]) => b.memoryBytes - a.memoryBytes);
    let leftBytes = blocks.reduce((sum, [, block]) => sum + block.memoryBytes, 0) / 2;
    for (const [stream, block] of blocks) {
      if (leftBytes <= 0) return;
      leftBytes -= block.memoryBytes;
      this.#seal(stream, block);
    }
  }

  /** The generation has ended: no time at or above `toUs` belongs to it. */
  end(toUs: number): void {
    this.untilUs = toUs - 1;
    this.sealAll();
    this.lts.forgetPlaces();
  }

  /** Everything sealed before the call is in the stores. @throws STORE_CLOSED, KV_CORRUPT. */
  async flush(): Promise<void> {
    const sealed = this.#sealedCount;
    while (this.#isUsable && (this.#writtenCount < sealed || this.#topics.length > 0)) {
      this.#kick();
      await this.#writing;
    }
    // Topics taken by a write under way are on disk when it ends.
    await this.#writing;
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#closed) throw storeErrors.closed();
  }

  /**
   * Resolves with what the stores have proved to hold. A window ends at `untilUs`.
   * REQUIRES: no block has TTVs both up to `untilUs` and later.
   */
  async sync(untilUs: number): Promise<SlabProofs> {
    await this.flush();
    await this.#endWindow(untilUs);
    return this.#parts.stores.sync();
  }

  async #endWindow(untilUs: number): Promise<void> {
    if (!this.#hasWindows) return;
    const rows = this.#unlisted.filter((row) => row.lastTimeUs <= untilUs);
    if (rows.length > 0) {
      const lastUs = rows.reduce((last, row) => Math.max(last, row.lastTimeUs), 0);
      await this.#parts.stores.writeWindow({ untilUs: lastUs, rows });
    }
    // In one step: readers find each block in memory or on disk.
    this.#unlisted = this.#unlisted.filter((row) => row.lastTimeUs > untilUs);
    this.#windowedUs = Math.max(this.#windowedUs, untilUs);
  }

  /** Holds off its replacement while somebody goes through all of it; end it by calling back. */
  beginWalk(): () => void {
    this.#walks++;
    return () => {
      this.#walks--;
      if (this.#walks === 0) this.#onIdle?.();
    };
  }

  /** Resolves when nobody walks. */
  async idle(): Promise<void> {
    if (this.#walks === 0) return;
    await new Promise<void>((resolve) => {
      this.#onIdle = resolve;
    });
  }

  get isResting(): boolean {
    return this.#parts.stores.isResting;
  }

  /** Closes the stores until the next read. REQUIRES: sealed, and wholly written. */
  rest(): void {
    this.#parts.stores.rest();
  }

  /** What is not written yet stays in the log. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#parts.stores.close();
    await this.#writing;
  }

  get #isUsable(): boolean {
    return !this.#closed && this.#failure === undefined;
  }

  #seal(stream: number, block: OpenBlock): void {
    block.seal();
    this.#open.delete(stream);
    const waiting = this.#unwritten.get(stream);
    if (waiting === undefined) this.#unwritten.set(stream, [block]);
    else waiting.push(block);
    this.#queue.push({ stream, block });
    this.#sealedCount++;
    this.#hints.set(stream, { ttvs: block.count, framesBytes: hintedBytes(block) });
    this.#parts.onSealed(stream, {
      ttvs: block.count,
      sizeBytes: block.framesBytes,
      firstUs: block.timeUs(0),
    });
    this.#parts.phase("slab.sealed");
    this.#kick();
  }

  #kick(): void {
    if (this.#writing !== undefined || this.#closed || this.#failure !== undefined) return;
    if (this.#queue.length === 0 && this.#topics.length === 0) return;
    this.#writing = Promise.resolve()
      .then(() => this.#drain())
      .catch((error: unknown) => {
        // Closing ends a write without success; anything else is a fault that a start mends.
        if (this.#closed || this.#failure !== undefined) return;
        this.#failure = toError(error);
        const fields = { slab: this.#parts.stores.path, reason: this.#failure.message };
        this.#parts.logger.error("store.slab_write_given_up", fields);
        this.#parts.onFailure(this.#failure);
      })
      .finally(() => {
        this.#writing = undefined;
      });
  }

  async #drain(): Promise<void> {
    while (this.#queue.length > 0 || this.#topics.length > 0) {
      const sealed = this.#queue.slice(0, batchBlocksMax);
      const topics = this.#topics;
      this.#topics = [];
      const writes = sealed.map(({ stream, block }): BlockWrite => writeBlock(stream, block));
      await this.#parts.stores.write(writes, topics);
      this.#queue.splice(0, sealed.length);
      for (const [at, item] of sealed.entries()) this.#settle(item, (writes[at] as BlockWrite).row);
      this.#writtenCount += sealed.length;
      this.#parts.phase("slab.written");
    }
  }

  #settle({ stream, block }: Sealed, row: BlockRow): void {
    const waiting = this.#unwritten.get(stream);
    assert(waiting?.[0] === block, "blocks of a stream are written in order");
    waiting.shift();
    if (waiting.length === 0) this.#unwritten.delete(stream);
    this.#lastWrittenUs.set(stream, row.lastTimeUs);
    if (this.#hasWindows) this.#unlisted.push(plainRow(row));
    this.#parts.onMemory(-block.memoryBytes);
  }

  // -------------------------------------------------------------- reading

  plan(filter: TopicFilter): PlannedStream[] {
    return this.lts.plan(filter);
  }

  structureOf(stream: number): Structure {
    return this.lts.structureOf(stream);
  }

  next(stream: number, afterUs: number): BatchRef | undefined | Promise<BatchRef | undefined> {
    const writtenUs = this.#lastWrittenUs.get(stream) ?? this.#openedUs;
    if (afterUs >= writtenUs) return this.#nextInMemory(stream, afterUs);
    this.#parts.onUsed();
    const row = this.known(stream, afterUs);
    if (row !== undefined) return { kind: "disk", row };
    return this.#nextOnDisk(stream, afterUs, writtenUs);
  }

  known(stream: number, afterUs: number): BlockRow | undefined {
    const page = this.#rowPages.get(stream);
    const row = page?.find((candidate) => candidate.lastTimeUs > afterUs);
    // A page answers only from its first row on: rows before it are not known.
    return row === page?.[0] ? undefined : row;
  }

  /** All batches of the first window that ends above `afterUs`; undefined without windows. */
  windowAfter(afterUs: number): BatchWindow | Promise<BatchWindow> | undefined {
    if (!this.#hasWindows) return undefined;
    return afterUs >= this.#windowedUs ? this.#lastWindow() : this.#windowOnDisk(afterUs);
  }

  read(stream: number, row: BlockRow): TtvBatch | Promise<TtvBatch> {
    const gap = gapOf(row);
    if (gap !== undefined) return new LostBatch(row, gap);
    const loading = this.ready();
    if (loading !== undefined) return loading.then(() => this.read(stream, row));
    this.#parts.onUsed();
    return this.#parts.reader.read(this.#parts.stores, this.structureOf(stream), row);
  }

  /** Like `read`, for one who looks at everything once: nothing is pushed out of the cache. */
  async readUncached(stream: number, row: BlockRow): Promise<TtvBatch> {
    const gap = gapOf(row);
    if (gap !== undefined) return new LostBatch(row, gap);
    await this.ready();
    this.#parts.onUsed();
    return this.#parts.reader.readUncached(this.#parts.stores, this.structureOf(stream), row);
  }

  /** Index rows of a stream, as far as blocks are on disk. */
  rows(stream: number, afterUs: number, countMax: number): Promise<BlockRow[]> {
    this.#parts.onUsed();
    return this.#parts.stores.rowsAfter(stream, afterUs, countMax);
  }

  /** All windows, in order. REQUIRES: the slab has ended and is wholly on disk. */
  async *windows(): AsyncGenerator<Window> {
    this.#parts.onUsed();
    const { stores } = this.#parts;
    if (!this.#hasWindows) {
      const rows: BlockRow[] = [];
      await stores.scanRows((row) => {
        if (rows.length >= sortedRowsMax) {
          throw storeErrors.limitReached({ limit: "blocks of an old layout", max: sortedRowsMax });
        }
        rows.push(plainRow(row));
      });
      yield* windowsOf(rows, 1);
      return;
    }
    for (let afterUs = 0; ; ) {
      const window = await stores.windowAfter(afterUs);
      if (window === undefined) return;
      yield window;
      afterUs = window.untilUs;
    }
  }

  topics(): Promise<TopicWrite[]> {
    return this.#parts.stores.topics();
  }

  /** Rows of its stores, as far as they are on disk. */
  page(store: SlabStoreName, after: Uint8Array | undefined): Promise<CopyPage> {
    this.#parts.onUsed();
    return this.#parts.stores.page(store, after);
  }

  async compact(): Promise<void> {
    this.#parts.onUsed();
    await this.#parts.stores.compact();
  }

  async #windowOnDisk(afterUs: number): Promise<BatchWindow> {
    this.#parts.onUsed();
    const windowedUs = this.#windowedUs;
    const found = await this.#parts.stores.windowAfter(afterUs);
    if (found !== undefined) {
      const refs = found.rows.map((row) => [row.stream, { kind: "disk", row }] as const);
      return { untilUs: found.untilUs, refs };
    }
    // Another window may have ended while the disk was read.
    return windowedUs === this.#windowedUs ? this.#lastWindow() : this.#windowOnDisk(afterUs);
  }

  /** What no window on disk lists. */
  #lastWindow(): BatchWindow {
    const refs: Array<readonly [number, BatchRef]> = [];
    for (const row of this.#unlisted) refs.push([row.stream, { kind: "disk", row }]);
    for (const [stream, batches] of this.#unwritten) {
      for (const batch of batches) refs.push([stream, { kind: "memory", batch }]);
    }
    for (const [stream, batch] of this.#open) refs.push([stream, { kind: "memory", batch }]);
    return { untilUs: this.untilUs, refs };
  }

  async #nextOnDisk(
    stream: number,
    afterUs: number,
    writtenUs: number,
  ): Promise<BatchRef | undefined> {
    const rows = await this.#rowsAfter(stream, afterUs, writtenUs);
    const row = rows[0];
    if (row !== undefined) {
      this.#rowPages.set(stream, rows);
      return { kind: "disk", row };
    }
    // Blocks may have left memory for the disk while the disk was read.
    const nowWrittenUs = this.#lastWrittenUs.get(stream) ?? this.#openedUs;
    if (nowWrittenUs > writtenUs) return this.next(stream, afterUs);
    return this.#nextInMemory(stream, afterUs);
  }

  /** Where the rows cannot be read, one in their place says how many TTVs they led to at most. */
  async #rowsAfter(stream: number, afterUs: number, writtenUs: number): Promise<BlockRow[]> {
    try {
      return await this.#parts.stores.rowsAfter(stream, afterUs, rowPageCount);
    } catch (error) {
      const isDamaged = isCodedError(error, "KV_CORRUPT") || isCodedError(error, corruptRow);
      if (!isDamaged) throw error;
      const { stores, logger, countOf } = this.#parts;
      const lost = { stream, firstTimeUs: afterUs + 1, lastTimeUs: writtenUs };
      const count = countOf(stream);
      logger.error("store.rows_lost", { slab: stores.path, ...lost, count, reason: error.message });
      return [{ ...lost, count, sizeBytes: unreadableSize, summary: new Uint8Array(0) }];
    }
  }

  #nextInMemory(stream: number, afterUs: number): BatchRef | undefined {
    for (const batch of this.#unwritten.get(stream) ?? []) {
      if (batch.timeUs(batch.count - 1) > afterUs) return { kind: "memory", batch };
    }
    const batch = this.#open.get(stream);
    if (batch === undefined || batch.timeUs(batch.count - 1) <= afterUs) return undefined;
    return { kind: "memory", batch };
  }
}
