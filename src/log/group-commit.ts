// Writes the records queued by all shards, group by group: one write, one fdatasync.
//
// Invariants: at most one flush is written and not yet synced; `done` callbacks run in append order
// after the sync; while one sync runs the next group collects, so no timer is needed; a queued
// record stays in the queue until it is synced, so a write that found no space loses nothing and is
// made again in a fresh segment under the same number, never twice at one place. The first EIO, and
// any error of a sync, ends the log. What the segments are is left to segments.ts, which records
// lie where to shard-index.ts.

import {
  assert,
  type Cancel,
  type Counters,
  type DiskFile,
  observe,
  toError,
} from "../base/index.ts";
import { tellLog } from "./channel.ts";
import type { LogCounterHelp } from "./counters.ts";
import { logErrors } from "./errors.ts";
import { recordBytes, type ShardSpan } from "./format.ts";
import {
  dataEnd,
  isSpaceError,
  type OpenSegment,
  type Segment,
  type SegmentPool,
} from "./segments.ts";
import type { LogComponents, LogRecord, LogSettings } from "./types.ts";
import { emptyFlushBytes, FlushEncoder, RecordGroup } from "./writer.ts";

export type AppendDone = (error: Error | undefined) => void;
type Queued = {
  readonly record: LogRecord;
  readonly done: AppendDone;
  readonly written: (() => void) | undefined;
};

/**
 * `idle`: nothing to write. `waiting`: a start is planned. `rolling`: the next segment is opened.
 * `writing`: a flush is written or synced. `full`: there is no segment and no space for one.
 */
type Phase = "idle" | "waiting" | "rolling" | "writing" | "full" | "failed" | "closed";

/**
 * Bytes queued within one turn that do not wait for its end. Of more than twice as much a flush takes
 * half: two of about the same size keep disk and writers busy at once, one of everything and one of
 * nothing do not.
 */
const earlyStartBytes = 256 * 1024;
/** Callbacks of one turn while a write is under way. */
const sliceMs = 1;

export type CommitHooks = {
  readonly onSegment: (segment: Segment) => void;
  readonly onSynced: (segment: Segment, offset: number, spans: Iterable<ShardSpan>) => void;
  readonly onRecordSettled: (record: LogRecord) => void;
};

type ProofWaiter = {
  readonly recordCount: number;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
};

export class GroupCommit {
  readonly #dir: string;
  readonly #settings: LogSettings;
  readonly #components: LogComponents;
  readonly #counters: Counters<LogCounterHelp>;
  readonly #hooks: CommitHooks;
  readonly #pool: SegmentPool;
  readonly #group: RecordGroup;
  readonly #encoder: FlushEncoder;
  #queue: Queued[] = [];
  /** Synced and on their way to be told; the first `#toldCount` were. */
  #synced: Queued[] = [];
  #toldCount = 0;
  #isTelling = false;
  /** A write has been given to the disk, and its sync has not. */
  #isWriteOut = false;
  #pendingBytes = 0;
  #phase: Phase = "idle";
  #cancelStart: Cancel | undefined;
  /** A start is planned for the end of this turn. */
  #isStartSoon = false;
  #cancelProof: Cancel | undefined;
  #current: OpenSegment | undefined;
  #nextOrder: number;
  #nextFlush: number;
  #proofWanted = false;
  #failure: Error | undefined;
  #closing = false;
  // Records counted since open: appended >= synced >= proved.
  #appendedCount = 0;
  #syncedCount = 0;
  #provedCount = 0;
  readonly #proofWaiters: ProofWaiter[] = [];
  #restWaiters: Array<() => void> = [];

  constructor(
    place: { dir: string; settings: LogSettings; components: LogComponents; pool: SegmentPool },
    start: { nextOrder: number; nextFlush: number },
    counters: Counters<LogCounterHelp>,
    hooks: CommitHooks,
  ) {
    this.#dir = place.dir;
    this.#settings = place.settings;
    this.#components = place.components;
    this.#pool = place.pool;
    this.#counters = counters;
    this.#hooks = hooks;
    this.#nextOrder = start.nextOrder;
    this.#nextFlush = start.nextFlush;
    const { flushBytesMax: bytesMax, flushRecordsMax: recordsMax } = place.settings;
    this.#group = new RecordGroup({ bytesMax, recordsMax });
    this.#encoder = new FlushEncoder(bytesMax);
  }

  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  get failure(): Error | undefined {
    return this.#failure;
  }

  get isFull(): boolean {
    return this.#phase === "full";
  }

  get current(): Segment | undefined {
    return this.#current?.segment;
  }

  /** Opens the first segment of this process. Without space the log starts full. */
  async openFirst(): Promise<void> {
    await this.#roll(emptyFlushBytes);
    if (this.#failure !== undefined) throw this.#failure;
  }

  append(record: LogRecord, done: AppendDone, written?: () => void): void {
    assert(this.#failure === undefined && !this.#closing, "append to a log that has ended");
    this.#queue.push({ record, done, written });
    this.#pendingBytes += recordBytes(record);
    this.#appendedCount++;
    if (this.#phase === "idle") this.#planStart(this.#settings.idleFlushIntervalMs);
    else if (this.#cancelStart !== undefined && this.#isGroupFull()) this.#planStart(0);
    // The disk begins while this turn goes on: else a writer with much under way would wait for the
    // disk, and the disk for the writer, in turns.
    if (this.#isStartSoon && this.#pendingBytes >= earlyStartBytes) this.#start();
  }

  /** Asks for a flush that proves the last one, when none is on its way. */
  requestProof(): void {
    if (this.#provedCount === this.#appendedCount) return;
    this.#proofWanted = true;
    if (this.#phase === "idle") this.#planStart(0);
  }

  prove(): Promise<void> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    if (this.#provedCount === this.#appendedCount) return Promise.resolve();
    if (this.#phase === "closed") return Promise.reject(logErrors.closed({ path: this.#dir }));
    const recordCount = this.#appendedCount;
    const proved = new Promise<void>((resolve, reject) => {
      this.#proofWaiters.push({ recordCount, resolve, reject });
    });
    this.requestProof();
    return proved;
  }

  /** There may be space again. */
  retry(): void {
    if (this.#phase !== "full") return;
    this.#phase = "waiting";
    this.#start();
  }

  /** The log ends: everything queued, and all that comes, gets the same error. */
  fail(cause: Error): void {
    if (this.#failure !== undefined || this.#phase === "closed") return;
    const failure = logErrors.failed({ path: this.#dir, reason: cause.message }, cause);
    this.#failure = failure;
    this.#components.logger.error("log.failed", { path: this.#dir, reason: cause.message });
    tellLog(() => ({ event: "failed", path: this.#dir, reason: cause.message }));
    this.#pool.stop();
    this.#callSafely(() => this.#components.onFailure?.(failure));
    this.#endWith("failed", failure);
  }

  /** Writes what is queued and its proof. Without space for it, what is queued gets LOG_CLOSED. */
  async close(): Promise<void> {
    this.#closing = true;
    if (this.#cancelStart !== undefined) this.#planStart(0);
    await this.#rest();
    if (this.#phase === "idle" && this.#provedCount < this.#syncedCount) {
      this.requestProof();
      await this.#rest();
    }
    if (this.#failure === undefined) {
      this.#endWith("closed", logErrors.closed({ path: this.#dir }));
    }
    const current = this.#current;
    this.#current = undefined;
    await current?.file.close();
  }

  /** Resolves when nothing is on its way to the disk. */
  #rest(): Promise<void> {
    if (this.#isResting()) return Promise.resolve();
    return new Promise((resolve) => {
      this.#restWaiters.push(resolve);
    });
  }

  #isResting(): boolean {
    return this.#phase === "idle" || this.#phase === "full" || this.#failure !== undefined;
  }

  #setPhase(phase: Phase): void {
    this.#phase = phase;
    if (!this.#isResting() && phase !== "closed") return;
    const waiters = this.#restWaiters;
    this.#restWaiters = [];
    for (const resolve of waiters) resolve();
  }

  #isGroupFull(): boolean {
    return (
      this.#queue.length >= this.#settings.flushRecordsMax ||
      this.#pendingBytes >= this.#settings.flushBytesMax
    );
  }

  #planStart(delayMs: number): void {
    this.#cancelStart?.();
    this.#cancelStart = undefined;
    this.#cancelProof?.();
    this.#cancelProof = undefined;
    this.#phase = "waiting";
    if (delayMs <= 0 || this.#isGroupFull()) {
      this.#isStartSoon = true;
      this.#components.clock.soon(() => this.#start());
    } else {
      this.#cancelStart = this.#components.clock.schedule(delayMs, () => {
        this.#cancelStart = undefined;
        this.#start();
      });
    }
  }

  #start(): void {
    if (this.#phase !== "waiting") return;
    this.#isStartSoon = false;
    if (this.#queue.length === 0 && !this.#proofWanted) {
      this.#goIdle();
      return;
    }
    this.#group.clear();
    const shareBytes = Math.max(earlyStartBytes, this.#pendingBytes / 2);
    for (const { record } of this.#queue) {
      if (this.#group.sizeBytes >= shareBytes || !this.#group.tryAdd(record)) break;
    }
    const current = this.#current;
    const sizeBytes = this.#group.sizeBytes;
    if (current === undefined || !hasRoom(current.segment, sizeBytes)) {
      void this.#roll(sizeBytes);
      return;
    }
    this.#write(current);
  }

  #goIdle(): void {
    this.#setPhase("idle");
    if (this.#provedCount === this.#syncedCount || this.#closing) return;
    this.#cancelProof = this.#components.clock.schedule(this.#settings.idleProofMs, () => {
      this.#cancelProof = undefined;
      if (this.#phase === "idle") this.requestProof();
    });
  }

  async #roll(flushBytes: number): Promise<void> {
    this.#phase = "rolling";
    if (!this.#pool.isReady) this.#counters.segmentWaits++;
    let opened: OpenSegment;
    try {
      opened = await this.#pool.take(this.#nextOrder, this.#nextFlush, flushBytes);
    } catch (error) {
      if (this.#phase !== "rolling") return;
      if (isSpaceError(error)) this.#setPhase("full");
      else this.fail(toError(error));
      return;
    }
    if (this.#phase !== "rolling") {
      await this.#closeFile(opened.file);
      return;
    }
    const former = this.#current;
    this.#current = opened;
    this.#nextOrder++;
    // Its synced header says that all flushes before it are synced.
    this.#noteProved(this.#syncedCount);
    this.#hooks.onSegment(opened.segment);
    this.#phase = "waiting";
    this.#start();
    if (former !== undefined) await this.#closeFile(former.file);
  }

  async #closeFile(file: DiskFile): Promise<void> {
    try {
      await file.close();
    } catch (error) {
      // All that counts in it is synced: a handle that does not close costs nothing but itself.
      const fields = { path: file.path, reason: toError(error).message };
      this.#components.logger.warn("log.close_failed", fields);
    }
  }

  #write(current: OpenSegment): void {
    this.#phase = "writing";
    this.#proofWanted = false;
    const { segment, file } = current;
    const number = this.#nextFlush;
    const bytes = this.#encoder.encode(this.#group, number, number - 1, segment.seed);
    this.#isWriteOut = true;
    file.write(bytes, segment.endOffset, (error) => {
      this.#isWriteOut = false;
      if (this.#phase !== "writing") return;
      if (error === undefined) {
        this.#sync(current, bytes.length);
        this.#tellWritten();
      } else if (isSpaceError(error)) this.#abandon(current);
      else this.fail(error);
    });
  }

  /** The system has the flush, and the sync is under way: those who want no more are told. */
  #tellWritten(): void {
    for (const { written } of this.#queue.slice(0, this.#group.records.length)) {
      if (written !== undefined) this.#callSafely(written);
    }
  }

  // What the failed write left behind the last flush is ignored for ever: the next segment starts
  // with this flush's number, and a segment ends where the next one starts.
  #abandon(current: OpenSegment): void {
    this.#counters.spaceWaits++;
    this.#current = undefined;
    void this.#closeFile(current.file);
    void this.#roll(this.#group.sizeBytes);
  }

  #sync(current: OpenSegment, sizeBytes: number): void {
    const { clock } = this.#components;
    const startMs = clock.elapsedMs();
    current.file.fdatasync((error) => {
      if (this.#phase !== "writing") return;
      if (error !== undefined) {
        this.fail(error);
        return;
      }
      const tookMs = clock.elapsedMs() - startMs;
      this.#counters.syncs++;
      this.#counters.syncMsSum += tookMs;
      const { syncTimes } = this.#components;
      if (syncTimes !== undefined) observe(syncTimes, tookMs);
      if (tookMs > this.#counters.syncMsMax) this.#counters.syncMsMax = tookMs;
      tellLog(() => ({
        ...{ event: "flush", path: this.#dir, number: this.#nextFlush },
        ...{ records: this.#group.records.length, sizeBytes, syncMs: tookMs },
      }));
      this.#complete(current.segment, sizeBytes);
    });
  }

  #complete(segment: Segment, sizeBytes: number): void {
    const count = this.#group.records.length;
    this.#counters.flushes++;
    this.#counters.bytes += sizeBytes;
    this.#counters.records += count;
    const offset = segment.endOffset;
    segment.endOffset += sizeBytes;
    this.#nextFlush++;
    // This flush proves those before it; an empty one has nothing of its own to prove.
    const formerCount = this.#syncedCount;
    this.#syncedCount += count;
    this.#hooks.onSynced(segment, offset, this.#group.spans.values());
    const synced = this.#takeSynced(count);
    this.#noteProved(formerCount);
    // The disk gets its next flush before the callbacks take their time.
    this.#planNext();
    for (const each of synced) this.#synced.push(each);
    if (!this.#isTelling) this.#tellSynced();
  }

  /** Not all at once while a write is under way: its sync begins when this turn ends. */
  #tellSynced(): void {
    const { clock } = this.#components;
    const untilMs = clock.elapsedMs() + sliceMs;
    this.#isTelling = true;
    for (;;) {
      const next = this.#synced[this.#toldCount];
      if (next === undefined) break;
      this.#toldCount++;
      this.#settle(next.record, next.done, undefined);
      if (this.#isWriteOut && clock.elapsedMs() > untilMs) {
        clock.soon(() => this.#tellSynced());
        return;
      }
    }
    this.#synced = [];
    this.#toldCount = 0;
    this.#isTelling = false;
  }

  #takeSynced(count: number): Queued[] {
    const synced = count === this.#queue.length ? this.#queue : this.#queue.slice(0, count);
    this.#queue = count === this.#queue.length ? [] : this.#queue.slice(count);
    for (const { record } of synced) this.#pendingBytes -= recordBytes(record);
    return synced;
  }

  #planNext(): void {
    const delayMs = this.#closing || this.#isGroupFull() ? 0 : this.#settings.flushIntervalMs;
    if (this.#queue.length > 0 && delayMs > 0) {
      this.#planStart(delayMs);
      return;
    }
    this.#phase = "waiting";
    this.#start();
  }

  #noteProved(recordCount: number): void {
    this.#provedCount = recordCount;
    while (this.#proofWaiters.length > 0) {
      const first = this.#proofWaiters[0] as ProofWaiter;
      if (first.recordCount > recordCount) break;
      this.#proofWaiters.shift();
      first.resolve();
    }
    if (this.#proofWaiters.length > 0) this.#wantProof();
  }

  // Somebody waits for a proof: when no records follow by themselves, an empty flush does it.
  #wantProof(): void {
    this.#proofWanted = true;
    if (this.#phase === "idle") this.#planStart(0);
  }

  #endWith(phase: "failed" | "closed", error: Error): void {
    this.#cancelStart?.();
    this.#cancelStart = undefined;
    this.#cancelProof?.();
    const pending = this.#queue;
    this.#queue = [];
    this.#pendingBytes = 0;
    this.#setPhase(phase);
    for (const { reject } of this.#proofWaiters.splice(0)) reject(error);
    this.#isWriteOut = false;
    this.#tellSynced();
    for (const { record, done } of pending) this.#settle(record, done, error);
  }

  #settle(record: LogRecord, done: AppendDone, error: Error | undefined): void {
    this.#hooks.onRecordSettled(record);
    this.#callSafely(() => done(error));
  }

  // A callback's fault is its owner's: the others behind it must still hear of their records.
  #callSafely(call: () => void): void {
    try {
      call();
    } catch (error) {
      this.#counters.callbackErrors++;
      this.#components.logger.error("log.callback_failed", { reason: toError(error).message });
    }
  }
}

function hasRoom(segment: Segment, sizeBytes: number): boolean {
  return segment.endOffset + sizeBytes <= dataEnd(segment);
}
