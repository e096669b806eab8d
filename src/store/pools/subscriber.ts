// A subscriber: one reader per log shard, each in the realtime pool (`tail`) or catching up
// (`behind`). Its filters stay in the trie all the time; changing pools changes a flag.
//
// Hand-over is exact because applies are synchronous: a reader that has read everything up to the
// applied time in one step, and whose filters have not matched since, is at the tail. A TTV is
// offered by exactly one of the two pools: realtime skips readers that are behind and times at or
// below the position.

import { isCodedError, type Logger, toError } from "../../base/index.ts";
import type {
  DeliverableTtv,
  MissedReport,
  ShardNumber,
  Subscriber,
  SubscriberFilter,
  SubscriberOptions,
  SubscriberPort,
  TtvRun,
} from "../api.ts";
import type { MissingWant } from "../core/missing.ts";
import { ShardCursor } from "./cursor.ts";
import { FilterUse, type UseOwner, type UseTable } from "./filter-use.ts";
import type { ReadAhead } from "./read-ahead.ts";
import type { ShardSource } from "./source.ts";

/** What subscribers share: the pools' view of the store. */
export type PoolParts = {
  readonly sources: readonly ShardSource[];
  readonly interest: UseTable;
  readonly counters: PoolCounters;
  readonly readAhead: ReadAhead;
  readonly wideStreamsMin: number;
  readonly logger: Logger;
  /** Resolves in a later turn of the event loop: long backlogs must not hold up the others. */
  readonly nextTurn: () => Promise<void>;
  /** Monotonic. */
  readonly nowMs: () => number;
  /** A read failed: calls back when it makes sense to try again. */
  readonly later: (task: () => void) => void;
  readonly onClosed: (subscriber: SubscriberState) => void;
};

export type PoolCounters = {
  realtimeTtvs: number;
  catchUpTtvs: number;
  handOvers: number;
  fallBehinds: number;
  readFailures: number;
  offerFailures: number;
  missedReports: number;
  blocksSkipped: number;
  readAheadsRefused: number;
};

/** How the readers of a store stand now, one for each subscriber and shard. */
export type PoolState = {
  /** In the realtime pool. */
  tail: number;
  /** Catching up. */
  behind: number;
  /** Of those: had no room for a minute, for something that waits. */
  stuck: number;
  /** How far the last one is behind what is applied, in commit time. */
  lagUsMax: number;
};

/** Without room for so long a reader counts as stuck. */
const stuckMs = 60_000;

export const poolCounterHelp = {
  realtimeTtvs: "TTVs taken from the realtime pool",
  catchUpTtvs: "TTVs taken from the catch-up pool",
  handOvers: "readers that went from catch-up to the tail",
  fallBehinds: "readers that left the tail: without room, or where a replica copied what it lacked",
  readFailures: "catch-up reads that failed and were tried again",
  offerFailures: "TTVs whose subscriber failed to take them, offered again later",
  blocksSkipped: "blocks passed over unread because their summaries rule out a match",
  readAheadsRefused: "blocks that a reader did not read ahead: all readers share a bound",
  missedReports: "reports to readers of what was dropped or damaged before they got it",
};

type Reader = {
  readonly source: ShardSource;
  positionUs: number;
  mode: "tail" | "behind";
  cursor: ShardCursor | undefined;
  /** Since when its subscriber has no room for its next TTV. */
  blockedMs: number | undefined;
  /** So many are offered one by one before a run is looked for again: the last one was declined. */
  singles: number;
};

/** TTVs of one shard before the next shard has its turn. */
const sliceTtvs = 64;
/** Slices in one turn of the event loop. */
const slicesPerTurn = 16;

/** What its cursor has read ahead is for others. */
function letGo(reader: Reader): void {
  reader.cursor?.close();
  reader.cursor = undefined;
}

type Step = "blocked" | "tail" | "more" | Promise<void>;

export class SubscriberState implements Subscriber, UseOwner {
  readonly #parts: PoolParts;
  readonly #port: SubscriberPort;
  readonly #uses = new Map<string, FilterUse>();
  readonly #readers: Reader[] = [];
  readonly #byOrdinal: Array<Reader | undefined> = [];
  #nextReader = 0;
  #pumping = false;
  #wakePending = false;
  #closed = false;
  /** Matches of the TTV that is being dispatched. */
  readonly #matched: unknown[] = [];

  constructor(parts: PoolParts, options: SubscriberOptions<unknown>) {
    this.#parts = parts;
    this.#port = options.port;
    for (const source of parts.sources) {
      // A position above what is applied names TTVs that were lost: their times may come again.
      const positionUs = Math.min(options.positions.get(source.number) ?? 0, source.appliedUs);
      this.#addReader(source, positionUs);
    }
    for (const filter of options.filters) this.#addUse(filter);
  }

  get atTail(): boolean {
    return this.#readers.every((reader) => this.#isAtTail(reader));
  }

  position(shard: ShardNumber): number {
    const reader = this.#readers.find((candidate) => candidate.source.number === shard);
    return reader === undefined ? 0 : this.#positionOf(reader);
  }

  positions(): Map<ShardNumber, number> {
    const positions = new Map<ShardNumber, number>();
    for (const reader of this.#readers) {
      positions.set(reader.source.number, this.#positionOf(reader));
    }
    return positions;
  }

  /** Adds its readers to what is counted. */
  addTo(state: PoolState): void {
    const nowMs = this.#parts.nowMs();
    for (const reader of this.#readers) {
      if (reader.mode === "tail" || this.#isAtTail(reader)) {
        state.tail++;
        continue;
      }
      state.behind++;
      const lagUs = reader.source.appliedUs - reader.positionUs;
      state.lagUsMax = Math.max(state.lagUsMax, lagUs);
      if (nowMs - (reader.blockedMs ?? nowMs) >= stuckMs) state.stuck++;
    }
  }

  /** A shard that has just been made: read from its beginning. */
  addSource(source: ShardSource): void {
    if (this.#closed) return;
    this.#addReader(source, 0);
    this.wake();
  }

  /** A shard that has gone, with its TTVs. */
  removeSource(source: ShardSource): void {
    const at = this.#readers.findIndex((reader) => reader.source === source);
    if (at < 0) return;
    for (const reader of this.#readers.splice(at, 1)) letGo(reader);
    this.#byOrdinal[source.ordinal] = undefined;
  }

  /** A shard was at `tailUs`, and is at a later state that nobody has read. */
  moved(ordinal: number, tailUs: number): void {
    const reader = this.#byOrdinal[ordinal];
    if (reader === undefined) return;
    if (reader.mode === "tail") {
      reader.positionUs = Math.max(reader.positionUs, tailUs);
      reader.mode = "behind";
      this.#parts.counters.fallBehinds++;
    }
    reader.cursor = undefined;
    this.wake();
  }

  wake(): void {
    if (this.#closed) return;
    this.#wakePending = true;
    if (!this.#pumping) void this.#pump();
  }

  /** A replaced filter keeps the positions: they are the subscriber's, not the filter's. */
  setFilter(filter: SubscriberFilter): void {
    if (this.#closed) return;
    const replaced = this.#uses.get(filter.filter);
    this.#addUse(filter);
    // After the new use was added, so that the shared entry keeps what it knows.
    if (replaced !== undefined) this.#parts.interest.removeUse(replaced.entry, replaced);
    this.wake();
  }

  removeFilter(filter: string): void {
    const use = this.#uses.get(filter);
    if (use === undefined) return;
    this.#uses.delete(filter);
    this.#parts.interest.removeUse(use.entry, use);
    for (const reader of this.#readers) letGo(reader);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const filter of [...this.#uses.keys()]) this.removeFilter(filter);
    for (const reader of this.#readers) letGo(reader);
    this.#parts.onClosed(this);
  }

  // -------------------------------------------------------------- realtime

  /** A use of this subscriber matched the TTV that is being dispatched. */
  collect(use: FilterUse, shard: ShardNumber, timeUs: number): boolean {
    if (timeUs <= use.startUs(shard)) return false;
    this.#matched.push(use.context);
    return this.#matched.length === 1;
  }

  /** All uses were collected: offers the TTV if this reader is at the tail. */
  offerLive(ordinal: number, ttv: DeliverableTtv): void {
    const matches = this.#matched.splice(0);
    const reader = this.#byOrdinal[ordinal];
    if (this.#closed || reader === undefined || reader.mode !== "tail") return;
    if (ttv.timeUs <= reader.positionUs) return;
    if (this.#offerSafely(ttv, matches)) {
      reader.positionUs = ttv.timeUs;
      this.#parts.counters.realtimeTtvs++;
      return;
    }
    // Everything before this TTV was dispatched; it and what follows wait on disk and in blocks.
    reader.positionUs = ttv.timeUs - 1;
    reader.mode = "behind";
    this.#parts.counters.fallBehinds++;
  }

  /** Others wait behind this subscriber: its fault counts as no room, until later. */
  #offerSafely(ttv: DeliverableTtv, matches: readonly unknown[]): boolean {
    try {
      return this.#port.offer(ttv, matches);
    } catch (error) {
      this.#offerFailed(error);
      return false;
    }
  }

  #offerRunSafely(run: TtvRun, matches: readonly unknown[]): number {
    try {
      return this.#port.offerRun?.(run, matches) ?? 0;
    } catch (error) {
      this.#offerFailed(error);
      return 0;
    }
  }

  #offerFailed(error: unknown): void {
    this.#parts.counters.offerFailures++;
    this.#parts.logger.error("store.offer_failed", { reason: toError(error).message });
    this.#parts.later(() => this.wake());
  }

  // -------------------------------------------------------------- catch-up

  async #pump(): Promise<void> {
    this.#pumping = true;
    try {
      while (this.#wakePending && !this.#closed) {
        this.#wakePending = false;
        await this.#round();
      }
    } catch (error) {
      this.#readFailed(toError(error));
    } finally {
      this.#pumping = false;
    }
    if (this.#wakePending) this.wake();
  }

  #readFailed(error: Error): void {
    for (const reader of this.#readers) letGo(reader);
    if (this.#closed) return;
    // Its slab was dropped, or closed to keep to the limit: the next cursor finds out.
    if (!isCodedError(error, "KV_CLOSED")) {
      this.#parts.counters.readFailures++;
      this.#parts.logger.error("store.catch_up_failed", { reason: error.message });
    }
    this.#parts.later(() => this.wake());
  }

  /** Slices of all readers in turn, until each is at the tail or there is no room. */
  async #round(): Promise<void> {
    let slices = 0;
    for (let idle = 0; idle < this.#readers.length && !this.#closed; ) {
      const count = this.#readers.length;
      const reader = this.#readers[this.#nextReader % count] as Reader;
      this.#nextReader = (this.#nextReader + 1) % count;
      if (reader.mode === "tail") {
        idle++;
        continue;
      }
      const step = this.#advance(reader);
      if (step === "blocked") return this.#relax();
      if (step === "tail") {
        idle++;
        continue;
      }
      idle = 0;
      if (step instanceof Promise) await step;
      else if (++slices % slicesPerTurn === 0) await this.#parts.nextTurn();
    }
  }

  #advance(reader: Reader): Step {
    for (let taken = 0; taken < sliceTtvs; ) {
      reader.cursor ??= this.#nextCursor(reader);
      const cursor = reader.cursor;
      if (cursor === undefined) return "tail";
      const item = cursor.peek();
      this.#tellMissed(cursor.takeMissed());
      if (item instanceof Promise) return item;
      if (item === "end") {
        reader.positionUs = Math.max(reader.positionUs, cursor.untilUs);
        letGo(reader);
        this.#port.moved(reader.source.number, reader.positionUs);
        continue;
      }
      const { ttv, matches } = item;
      const inRun = reader.singles > 0 ? 0 : this.#offerRun(reader, cursor, matches);
      if (inRun > 0) {
        taken += inRun;
        continue;
      }
      if (!this.#offerSafely(ttv, matches)) {
        reader.blockedMs ??= this.#parts.nowMs();
        reader.singles = 0;
        return "blocked";
      }
      reader.singles = Math.max(0, reader.singles - 1);
      cursor.consume();
      this.#took(reader, 1, ttv.timeUs);
      taken++;
    }
    return "more";
  }

  /** How many were taken together; 0: the next one is to be offered by itself. */
  #offerRun(reader: Reader, cursor: ShardCursor, matches: readonly unknown[]): number {
    if (this.#port.offerRun === undefined) return 0;
    const run = cursor.peekRun();
    if (run === undefined) return 0;
    const { count } = run;
    const taken = this.#offerRunSafely(run, matches);
    // Taken in part there is no room, which the next one is told when it is offered by itself.
    if (taken < count) reader.singles = taken > 0 ? 1 : count;
    if (taken === 0) return 0;
    const timeUs = run.timeUs(taken - 1);
    cursor.consume(taken);
    this.#took(reader, taken, timeUs);
    return taken;
  }

  #took(reader: Reader, count: number, timeUs: number): void {
    reader.blockedMs = undefined;
    reader.positionUs = timeUs;
    this.#parts.counters.catchUpTtvs += count;
  }

  /** Up to what is applied now, or to what is missing next; undefined = the tail is reached. */
  #nextCursor(reader: Reader): ShardCursor | undefined {
    const { source } = reader;
    for (;;) {
      const missed = this.#missedBy(reader);
      const hasMore = this.#hasMatchesAfter(reader);
      if (missed === undefined && !hasMore) {
        reader.positionUs = Math.max(reader.positionUs, source.appliedUs);
        reader.mode = "tail";
        this.#parts.counters.handOvers++;
        this.#port.reachedTail?.(source.number);
        return undefined;
      }
      if (missed !== undefined && (!hasMore || missed.fromUs <= this.#wantedAfter(reader))) {
        reader.positionUs = Math.max(reader.positionUs, missed.toUs);
        this.#tellMissed(missed);
        continue;
      }
      const untilUs = Math.min(source.appliedUs, missed?.fromUs ?? Number.POSITIVE_INFINITY);
      const span = { afterUs: this.#wantedAfter(reader), untilUs };
      return new ShardCursor(source, [...this.#uses.values()], span, this.#parts);
    }
  }

  #tellMissed(missed: MissedReport | undefined): void {
    if (missed === undefined || missed.count === 0) return;
    this.#parts.counters.missedReports++;
    this.#port.missed(missed);
  }

  #relax(): void {
    for (const reader of this.#readers) reader.cursor?.relax();
  }

  #isAtTail(reader: Reader): boolean {
    if (reader.mode === "tail") return true;
    return !this.#hasMatchesAfter(reader) && this.#missedBy(reader) === undefined;
  }

  #hasMatchesAfter(reader: Reader): boolean {
    const { ordinal, number } = reader.source;
    for (const use of this.#uses.values()) {
      const lastMatchUs = use.lastMatchUs(ordinal);
      if (lastMatchUs > Math.max(reader.positionUs, use.startUs(number))) return true;
    }
    return false;
  }

  #missedBy(reader: Reader): MissedReport | undefined {
    const { ordinal, number } = reader.source;
    const wants = (): MissingWant[] =>
      [...this.#uses.values()].map((use) => ({
        words: use.entry.filter.words,
        afterUs: Math.max(reader.positionUs, use.startUs(number)),
        lastMatchUs: use.lastMatchUs(ordinal),
      }));
    return reader.source.missedAfter(this.#wantedAfter(reader), wants);
  }

  /** Nothing up to here is wanted any more; infinite where nothing is wanted at all. */
  #wantedAfter(reader: Reader): number {
    let startUs = Number.POSITIVE_INFINITY;
    for (const use of this.#uses.values()) {
      startUs = Math.min(startUs, use.startUs(reader.source.number));
    }
    return Math.max(reader.positionUs, startUs);
  }

  #positionOf(reader: Reader): number {
    if (reader.mode !== "tail") return reader.positionUs;
    return Math.max(reader.positionUs, reader.source.dispatchedUs);
  }

  #addReader(source: ShardSource, positionUs: number): void {
    const reader: Reader = {
      source,
      positionUs,
      mode: "behind",
      cursor: undefined,
      blockedMs: undefined,
      singles: 0,
    };
    this.#readers.push(reader);
    this.#byOrdinal[source.ordinal] = reader;
  }

  #addUse(filter: SubscriberFilter): void {
    const use = new FilterUse(this.#parts.interest, this, filter);
    this.#uses.set(filter.filter, use);
    for (const reader of this.#readers) letGo(reader);
  }
}
