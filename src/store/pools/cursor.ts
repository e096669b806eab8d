// The shard cursor: merges the streams of a shard that matching TTVs can be in, in commit-time
// order, from a position to an end that is fixed when the cursor is made. A reader's whole position
// in a shard is therefore one number.
//
// Heads are opened lazily: a stream costs an index look-up before its first block is read, and a
// block whose summary cannot match is never read. A cursor that takes many whole streams goes from
// window to window instead, and finds the blocks of all streams at once. Generations follow each
// other.

import type { DeliverableTtv, MissedReport, TtvRun } from "../api.ts";
import type { PlannedStream } from "../core/lts.ts";
import type { MissingWant } from "../core/missing.ts";
import { isDamage } from "../damage-codes.ts";
import { type BlockRow, metAtUs } from "../layout/index-row.ts";
import { LostBatch } from "../layout/lost-batch.ts";
import { mayMatch } from "../layout/summary.ts";
import { indexAfter, matchTopics, type TopicMatch, type TtvBatch } from "../layout/ttv-view.ts";
import { BatchRun } from "./batch-run.ts";
import type { FilterUse } from "./filter-use.ts";
import { Merge } from "./merge.ts";
import type { ReadAhead } from "./read-ahead.ts";
import type { BatchRef, BatchWindow, ShardSource, SlabSource } from "./source.ts";
import { type BatchOrigin, StoredTtv } from "./stored-ttv.ts";

type Wanted = {
  readonly use: FilterUse;
  readonly residual: PlannedStream["residual"];
  readonly startUs: number;
};

type Head = {
  readonly stream: number;
  readonly origin: BatchOrigin;
  readonly wanted: Wanted[];
  ref: BatchRef | undefined;
  /** The batch that is open, and the index of its next candidate. */
  batch: TtvBatch | undefined;
  at: number;
  /** The block behind it, read while this one is passed on. */
  ahead: { readonly row: BlockRow; batch: TtvBatch | Promise<TtvBatch> } | undefined;
  /** What each of `wanted` matches in the batch, made when `topicCount` was what is kept. */
  topicMatches: TopicMatch[];
  topicCount: number;
  /** Contexts of the uses that match, where that is the same for all TTVs of the batch. */
  alike: readonly unknown[] | undefined;
  /** What is left of the head in this window, where the cursor goes by windows. */
  queue: BatchRef[];
};

export type CursorParts = {
  readonly counters: { blocksSkipped: number };
  /** Shared with all other cursors: `close` gives back what is left of it. */
  readonly readAhead: ReadAhead;
  /** Whole streams from which on a cursor goes by windows. */
  readonly wideStreamsMin: number;
};

/** TTVs in one run. */
const runTtvsMax = 1024;

/** Valid until it is consumed. */
export type CursorItem = { readonly ttv: DeliverableTtv; readonly matches: readonly unknown[] };

export class ShardCursor {
  readonly #source: ShardSource;
  readonly #uses: readonly FilterUse[];
  #positionUs: number;
  #untilUs: number;
  #slab: SlabSource | undefined;
  /** The slab is read window by window, of which this one ends here; undefined = stream by stream. */
  #windowUs: number | undefined;
  #byStream = new Map<number, Head>();
  /** Heads that have a batch; no TTV of theirs is earlier than their time here. */
  readonly #heads = new Merge<Head>();
  #aheadBytes = 0;
  #closed = false;
  #item: CursorItem | undefined;
  /** Where `#item` is: it is the first head, which moves on when its item is consumed. */
  #itemBatch: TtvBatch | undefined;
  readonly #run = new BatchRun();
  /** What `#item` is when there is one. */
  readonly #offered = { ttv: new StoredTtv(), matches: nothing };
  #missed: MissedReport | undefined;

  readonly #parts: CursorParts;

  /** Reads times above `span.afterUs` up to `span.untilUs`, which is applied. */
  constructor(
    source: ShardSource,
    uses: readonly FilterUse[],
    span: { readonly afterUs: number; readonly untilUs: number },
    parts: CursorParts,
  ) {
    this.#parts = parts;
    this.#source = source;
    this.#uses = uses;
    this.#positionUs = span.afterUs;
    this.#untilUs = span.untilUs;
    parts.readAhead.join();
  }

  /** Where it ends: earlier than it was made for where a generation has gone meanwhile. */
  get untilUs(): number {
    return this.#untilUs;
  }

  /** The next match; "end" when none is left; a promise when the disk has to be asked first. */
  peek(): CursorItem | "end" | Promise<void> {
    for (;;) {
      if (this.#item !== undefined) return this.#item;
      if (this.#positionUs >= this.#untilUs) return "end";
      if (this.#slab === undefined) {
        const entering = this.#enterSlab();
        if (entering !== undefined) return entering;
        if (this.#slab === undefined) continue;
      }
      const waiting = this.#advance();
      if (waiting !== undefined) return waiting;
    }
  }

  /** The item of `peek` and what may be taken with it; undefined where that is nothing. */
  peekRun(): TtvRun | undefined {
    const head = this.#heads.first;
    const batch = this.#itemBatch;
    if (this.#item === undefined || head === undefined || batch === undefined) return undefined;
    // So far the TTVs of the first head come before those of any other.
    const count = runLength(head, batch, Math.min(this.#untilUs, this.#heads.secondUs));
    return count < 2 ? undefined : this.#run.set(head.origin, batch, head.at, count);
  }

  /** The item of `peek` was taken, or the first `count` of `peekRun`. */
  consume(count = 1): void {
    const head = this.#heads.first;
    const batch = this.#itemBatch;
    if (this.#item === undefined || head === undefined || batch === undefined) return;
    this.#item = undefined;
    this.#itemBatch = undefined;
    const next = head.at + count;
    const positionUs = batch.timeUs(next - 1);
    this.#positionUs = positionUs;
    head.at = next;
    this.#heads.moveFirst(next < batch.count ? batch.timeUs(next) : positionUs + 1);
  }

  /** A damaged block was passed since the last call. */
  takeMissed(): MissedReport | undefined {
    const missed = this.#missed;
    this.#missed = undefined;
    return missed;
  }

  /** Lets go of decoded blocks, for a reader that has no room for a while. */
  relax(): void {
    this.#giveAhead(this.#aheadBytes);
    for (const head of this.#byStream.values()) {
      head.ahead = undefined;
      if (head.ref?.kind === "disk") head.batch = undefined;
    }
  }

  /** It is not asked any more. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.relax();
    this.#parts.readAhead.leave();
  }

  #giveAhead(sizeBytes: number): void {
    this.#aheadBytes -= sizeBytes;
    this.#parts.readAhead.give(sizeBytes);
  }

  // -------------------------------------------------------------- slabs and heads

  #enterSlab(): Promise<void> | undefined {
    const slab = this.#source.slabAfter(this.#positionUs);
    if (slab instanceof Promise) return slab.then((found) => this.#begin(found));
    return this.#begin(slab);
  }

  #begin(slab: SlabSource | undefined): Promise<void> | undefined {
    const isNext = slab !== undefined && slab.afterUs < this.#untilUs;
    const fromUs = isNext ? slab.afterUs : this.#untilUs;
    // Only where it begins counts: its reader asks again, for what it wants.
    const missed = this.#source.missedAfter(this.#positionUs, wantsNothing);
    if (missed !== undefined && missed.fromUs < fromUs) {
      // A generation has gone since this cursor was made: its reader is told before it goes on.
      this.#untilUs = Math.max(this.#positionUs, missed.fromUs);
      return undefined;
    }
    if (!isNext) {
      this.#positionUs = this.#untilUs;
      return undefined;
    }
    const byStream = new Map<number, Head>();
    for (const use of this.#uses) {
      for (const planned of slab.plan(use.entry.filter)) {
        let head = byStream.get(planned.stream);
        if (head === undefined) {
          head = createHead(planned, this.#source.number, slab.generation);
          byStream.set(planned.stream, head);
        }
        const startUs = use.startUs(this.#source.number);
        head.wanted.push({ use, residual: planned.residual, startUs });
      }
    }
    this.#slab = slab;
    this.#byStream = byStream;
    this.#heads.clear();
    this.#giveAhead(this.#aheadBytes);
    this.#windowUs = undefined;
    const afterUs = Math.max(this.#positionUs, slab.afterUs);
    if (isWide(byStream, this.#parts.wideStreamsMin)) {
      const entering = this.#enterWindow(slab, afterUs);
      if (entering !== "none") return entering;
    }
    return this.#seekAll(slab, afterUs);
  }

  /** The window that ends above `afterUs` is the one that is read now; "none" without windows. */
  #enterWindow(slab: SlabSource, afterUs: number): Promise<void> | undefined | "none" {
    const found = slab.windowAfter?.(afterUs);
    if (found === undefined) return "none";
    if (!(found instanceof Promise)) return this.#fillWindow(slab, found, afterUs);
    return found.then(
      (window) => this.#fillWindow(slab, window, afterUs),
      (error: unknown) => {
        // Rows lead to the blocks as well, and say what is lost.
        if (!isDamage(error)) throw error;
        this.#windowUs = undefined;
        return this.#seekAll(slab, afterUs);
      },
    );
  }

  #fillWindow(slab: SlabSource, { untilUs, refs }: BatchWindow, afterUs: number): undefined {
    this.#windowUs = untilUs;
    // The window before is read to its end: nothing is left in any queue.
    const touched = new Set<Head>();
    for (const [stream, ref] of refs) {
      const head = this.#byStream.get(stream);
      if (head === undefined) continue;
      head.queue.push(ref);
      touched.add(head);
    }
    for (const head of touched) this.#seek(slab, head, afterUs);
    return undefined;
  }

  #seekAll(slab: SlabSource, afterUs: number): Promise<void> | undefined {
    const waits: Array<Promise<void>> = [];
    for (const head of this.#byStream.values()) {
      const waiting = this.#seek(slab, head, afterUs);
      if (waiting !== undefined) waits.push(waiting);
    }
    return waits.length === 0 ? undefined : Promise.all(waits).then(() => undefined);
  }

  /** Moves a head to its next batch that can match, and keeps it among the heads if there is one. */
  #seek(slab: SlabSource, head: Head, afterUs: number): Promise<void> | undefined {
    const found =
      this.#windowUs === undefined ? slab.next(head.stream, afterUs) : nextOf(head, afterUs);
    if (found instanceof Promise) return found.then((ref) => this.#place(slab, head, ref, afterUs));
    return this.#place(slab, head, found, afterUs);
  }

  #place(
    slab: SlabSource,
    head: Head,
    ref: BatchRef | undefined,
    afterUs: number,
  ): Promise<void> | undefined {
    if (ref === undefined) return undefined;
    const firstUs = ref.kind === "memory" ? ref.batch.timeUs(0) : metAtUs(ref.row);
    if (firstUs > this.#untilUs) return undefined;
    if (ref.kind === "disk" && !blockMayMatch(head, ref.row)) {
      this.#parts.counters.blocksSkipped++;
      return this.#seek(slab, head, ref.row.lastTimeUs);
    }
    head.ref = ref;
    head.batch = ref.kind === "memory" ? ref.batch : undefined;
    head.topicMatches = [];
    head.at = -1;
    this.#heads.push(head, Math.max(firstUs, afterUs + 1));
    return undefined;
  }

  /** One step of the merge: sets `#item`, or moves on, or tells what to wait for. */
  #advance(): Promise<void> | undefined {
    const slab = this.#slab as SlabSource;
    const head = this.#heads.first;
    if (head === undefined || this.#heads.firstUs > this.#untilUs) {
      const windowUs = this.#windowUs ?? slab.untilUs;
      this.#positionUs = Math.min(windowUs, this.#untilUs);
      if (head === undefined && windowUs < Math.min(slab.untilUs, this.#untilUs)) {
        const entering = this.#enterWindow(slab, windowUs);
        return entering === "none" ? undefined : entering;
      }
      this.#slab = undefined;
      this.#heads.clear();
      return undefined;
    }
    const batch = head.batch ?? this.#open(slab, head);
    if (batch instanceof Promise) return batch;
    if (batch instanceof LostBatch) return this.#passLost(slab, head, batch);
    if (head.at < 0) head.at = indexAfter(batch, this.#heads.firstUs - 1);
    return this.#scan(slab, head, batch);
  }

  #open(slab: SlabSource, head: Head): TtvBatch | Promise<void> {
    const ref = head.ref as BatchRef;
    if (ref.kind === "memory") {
      head.batch = ref.batch;
      return ref.batch;
    }
    const batch = this.#takeAhead(head, ref.row) ?? slab.read(head.stream, ref.row);
    this.#readAhead(slab, head, ref.row);
    if (batch instanceof Promise) {
      return batch.then((view) => {
        head.batch = view;
      });
    }
    head.batch = batch;
    return batch;
  }

  /** Begins to read the block behind `row`, where it is known without asking the disk. */
  #readAhead(slab: SlabSource, head: Head, { lastTimeUs }: BlockRow): void {
    const row = this.#windowUs === undefined ? slab.known?.(head.stream, lastTimeUs) : rowOf(head);
    if (row === undefined || metAtUs(row) > this.#untilUs || !blockMayMatch(head, row)) return;
    if (this.#closed || !this.#parts.readAhead.take(row.sizeBytes, this.#aheadBytes)) return;
    this.#aheadBytes += row.sizeBytes;
    const batch = slab.read(head.stream, row);
    const ahead: Head["ahead"] = { row, batch };
    head.ahead = ahead;
    // A fault is told to whoever waits for it; a cursor that is let go has nobody who does.
    if (batch instanceof Promise) {
      batch.then(
        (view) => {
          ahead.batch = view;
        },
        () => undefined,
      );
    }
  }

  #takeAhead(head: Head, row: BlockRow): TtvBatch | Promise<TtvBatch> | undefined {
    const { ahead } = head;
    if (ahead === undefined) return undefined;
    head.ahead = undefined;
    this.#giveAhead(ahead.row.sizeBytes);
    return ahead.row.lastTimeUs === row.lastTimeUs ? ahead.batch : undefined;
  }

  #scan(slab: SlabSource, head: Head, batch: TtvBatch): Promise<void> | undefined {
    while (head.at < batch.count) {
      const timeUs = batch.timeUs(head.at);
      if (timeUs > this.#untilUs) break;
      // An open batch meets new topics while it is read.
      if (head.topicCount !== batch.topicCount || head.topicMatches.length === 0) look(head, batch);
      const matches = head.alike ?? matchesAt(head, batch, timeUs);
      if (matches === undefined) {
        head.at++;
        continue;
      }
      if (timeUs > this.#heads.secondUs) {
        // Another stream comes first.
        this.#heads.moveFirst(timeUs);
        return undefined;
      }
      this.#item = this.#offered;
      this.#offered.ttv.set(head.origin, batch, head.at, timeUs);
      this.#offered.matches = matches;
      this.#itemBatch = batch;
      return undefined;
    }
    const lastUs = Math.max(batch.timeUs(batch.count - 1), this.#heads.firstUs - 1);
    this.#heads.removeFirst();
    if (lastUs >= this.#untilUs) return undefined;
    return this.#seek(slab, head, lastUs);
  }

  #passLost(slab: SlabSource, head: Head, batch: LostBatch): Promise<void> | undefined {
    const { firstTimeUs, lastTimeUs, count } = batch.row;
    // One report says why: damage counts for more.
    const isDamaged = batch.reason === "damaged" || this.#missed?.reason === "damaged";
    this.#missed = {
      shard: this.#source.number,
      fromUs: Math.min(firstTimeUs - 1, this.#missed?.fromUs ?? Number.POSITIVE_INFINITY),
      toUs: Math.max(lastTimeUs, this.#missed?.toUs ?? 0),
      count: count + (this.#missed?.count ?? 0),
      estimated: true,
      reason: isDamaged ? "damaged" : "expired",
    };
    this.#heads.removeFirst();
    return this.#seek(slab, head, lastTimeUs);
  }
}

const nothing: readonly unknown[] = [];
const wantsNothing = (): readonly MissingWant[] => [];

function createHead(planned: PlannedStream, shard: number, generation: number): Head {
  const { stream, structure } = planned;
  return {
    stream,
    origin: { shard, generation, stream, structure },
    ahead: undefined,
    wanted: [],
    ref: undefined,
    batch: undefined,
    at: -1,
    topicMatches: [],
    topicCount: 0,
    alike: undefined,
    queue: [],
  };
}

/** Many streams, and all that is in them: nothing that a summary could leave out. */
function isWide(heads: ReadonlyMap<number, Head>, wideStreamsMin: number): boolean {
  if (heads.size < wideStreamsMin) return false;
  for (const { wanted } of heads.values()) {
    if (!wanted.some(({ residual }) => residual === "all")) return false;
  }
  return true;
}

/** The next batch of a head in its window. */
function nextOf({ queue }: Head, afterUs: number): BatchRef | undefined {
  for (let ref = queue.shift(); ref !== undefined; ref = queue.shift()) {
    const lastUs =
      ref.kind === "memory" ? ref.batch.timeUs(ref.batch.count - 1) : ref.row.lastTimeUs;
    if (lastUs > afterUs) return ref;
  }
  return undefined;
}

/** The next block of a head in its window. */
function rowOf({ queue }: Head): BlockRow | undefined {
  return queue[0]?.kind === "disk" ? queue[0].row : undefined;
}

function blockMayMatch(head: Head, { summary }: BlockRow): boolean {
  return head.wanted.some(({ residual }) => mayMatch(summary, residual));
}

/** What the head's batch holds by now is matched with what is wanted of it. */
function look(head: Head, batch: TtvBatch): void {
  const { wanted } = head;
  head.topicMatches = wanted.map(({ residual }) => matchTopics(batch, residual));
  head.topicCount = batch.topicCount;
  const isEven = head.topicMatches.every((match) => typeof match === "string");
  const fromUs = batch.timeUs(0);
  head.alike = isEven && allStarted(wanted, fromUs) ? matchesAt(head, batch, fromUs) : undefined;
}

/**
 * Contexts of the uses that match the head's candidate; undefined where none does. REQUIRES that its
 * batch was looked at.
 */
function matchesAt(head: Head, batch: TtvBatch, timeUs: number): readonly unknown[] | undefined {
  const { wanted } = head;
  let matches: readonly unknown[] | undefined;
  for (let at = 0; at < wanted.length; at++) {
    const { use, startUs } = wanted[at] as Wanted;
    const match = head.topicMatches[at];
    if (match === "none" || match === undefined) continue;
    if (match !== "all" && match[batch.topicId(head.at)] !== 1) continue;
    if (timeUs <= startUs) continue;
    matches = matches === undefined ? use.alone : [...matches, use.context];
  }
  return matches;
}

/**
 * How many TTVs of the head may go together, its candidate first. REQUIRES that its batch was looked
 * at.
 */
function runLength(head: Head, batch: TtvBatch, untilUs: number): number {
  const { at, wanted, topicMatches } = head;
  if (batch.expiryUs(at) !== 0 || !allStarted(wanted, batch.timeUs(at))) return 1;
  const flags = batch.flags(at);
  const first = batch.topicId(at);
  const isEven = topicMatches.every((match) => typeof match === "string");
  const end = Math.min(batch.count, at + runTtvsMax);
  let next = at + 1;
  while (next < end && batch.timeUs(next) <= untilUs) {
    if (batch.flags(next) !== flags || batch.expiryUs(next) !== 0) break;
    if (!isEven && !matchesAlike(topicMatches, first, batch.topicId(next))) break;
    next++;
  }
  return next - at;
}

function allStarted(wanted: readonly Wanted[], timeUs: number): boolean {
  for (const { startUs } of wanted) if (timeUs <= startUs) return false;
  return true;
}

function matchesAlike(matches: readonly TopicMatch[], first: number, second: number): boolean {
  for (const match of matches) {
    if (typeof match !== "string" && match[first] !== match[second]) return false;
  }
  return true;
}
