// What a store must hold and hand out, kept beside it by a simulated history.
//
// The truth is a list of TTVs by shard and commit time: those whose append was acked, and those
// that a full read showed. A TTV that was once there stays there until a drop that was asked for
// reaches its time. Readers are judged against it: see `ReaderModel`.

import type { SimClock } from "../../src/base/index.ts";
import type { MissedReport, Positions, Store } from "../../src/store/index.ts";
import { matches, parseTopicFilter, splitTopic } from "../../src/topic/index.ts";
import { Reader, type Received } from "./store-calls.ts";

export type Truth = {
  readonly topic: string;
  readonly name: string;
  /** Damage took it, and a full read was told so. */
  isLost?: boolean;
};

/** Name of the append in a value; what follows is padding. */
export function nameOf(value: string): string {
  return value.slice(0, value.indexOf("|"));
}

export class TtvModel {
  readonly #byShard = new Map<number, Map<number, Truth>>();
  /** By shard: everything up to here may have been dropped. */
  readonly #droppedUntil = new Map<number, number>();
  readonly #rotted = new Map<number, Set<number>>();

  add(shard: number, timeUs: number, truth: Truth): void {
    let times = this.#byShard.get(shard);
    if (times === undefined) {
      times = new Map();
      this.#byShard.set(shard, times);
    }
    const known = times.get(timeUs);
    if (known !== undefined && known.isLost !== true && known.name !== truth.name) {
      throw new Error(`time ${timeUs} of shard ${shard}: ${known.name} and ${truth.name}`);
    }
    times.set(timeUs, truth);
  }

  /** A block of these rots: who reads them later is told, or gets them out of a cache or the log. */
  rotted(shard: number, timesUs: readonly number[]): void {
    const known = this.#rotted.get(shard) ?? new Set();
    this.#rotted.set(shard, known);
    for (const timeUs of timesUs) known.add(timeUs);
  }

  hasRotted(shard: number, timeUs: number): boolean {
    return this.#rotted.get(shard)?.has(timeUs) === true;
  }

  /** A drop was asked for, done or not. */
  dropped(shard: number, untilUs: number): void {
    this.#droppedUntil.set(shard, Math.max(this.droppedUntil(shard), untilUs));
  }

  droppedUntil(shard: number): number {
    return this.#droppedUntil.get(shard) ?? 0;
  }

  of(shard: number): ReadonlyMap<number, Truth> {
    return this.#byShard.get(shard) ?? new Map();
  }

  /** Nothing that matched a filter may be later than what the store says of it. */
  checkLastMatch(filter: string, shard: number, lastMatchUs: number): void {
    const parsed = parseTopicFilter(filter);
    for (const [timeUs, { topic, name, isLost }] of this.of(shard)) {
      if (isLost || timeUs <= lastMatchUs || !matches(parsed, splitTopic(topic))) continue;
      throw new Error(`${filter}: last match ${lastMatchUs}, but ${name} came at ${timeUs}`);
    }
  }
}

/** A filter of a reader, from the positions at which it was added to those at which it went. */
type Use = {
  readonly filter: string;
  readonly parsed: ReturnType<typeof parseTopicFilter>;
  readonly context: string;
  readonly start: Positions;
  readonly from: Positions;
  until: Positions | undefined;
};

/**
 * Lost, and passed by a reader that was not told: the gap that it lay in ends behind the reader's
 * position. Whoever goes on from there has to be told.
 */
export type Debt = {
  readonly shard: number;
  readonly timeUs: number;
  readonly name: string;
};

/** A reader that ended, or stands, on its way through a gap. */
export type Debtor = {
  readonly debts: readonly Debt[];
  readonly positions: Positions;
  readonly starts: ReadonlyMap<string, Positions>;
};

/**
 * Lets it go on; resolves with how many of its losses it was told of, which is all of them.
 */
export async function settleDebts(
  { debts, positions, starts }: Debtor,
  store: Store,
  clock: SimClock,
  model: TtvModel,
): Promise<number> {
  const reader = new Reader(store, [...starts.keys()], positions, { starts });
  await clock.runUntil(() => reader.subscriber.atTail, 60_000);
  reader.subscriber.close();
  let told = 0;
  for (const { shard, timeUs, name } of debts) {
    if (timeUs <= model.droppedUntil(shard)) continue;
    const isTold = reader.missedReports.some(
      (report) => report.shard === shard && report.fromUs < timeUs && timeUs <= report.toUs,
    );
    if (!isTold) throw new Error(`reader: nobody tells it that ${name} of ${shard} is lost`);
    told++;
  }
  return told;
}

/** A reader with a window, and what it must have received. */
export class ReaderModel {
  readonly reader: Reader;
  readonly #begin: Map<number, number>;
  readonly #uses: Use[] = [];
  #contexts = 0;
  #ended: Map<number, number> | undefined;

  constructor(
    store: Store,
    filters: readonly string[],
    options: { start: Positions; positions: Positions; room: number },
  ) {
    const { start, positions, room } = options;
    this.#begin = store.tail();
    for (const [shard, tailUs] of this.#begin) {
      this.#begin.set(shard, Math.min(tailUs, positions.get(shard) ?? 0));
    }
    this.reader = new Reader(store, filters, positions, { start, room });
    for (const filter of filters) this.#noteUse(filter, filter, start, this.#begin);
  }

  /** Filters it reads with now. */
  get filters(): string[] {
    return this.#uses.filter((use) => use.until === undefined).map((use) => use.filter);
  }

  setFilter(filter: string, start: Positions): void {
    const at = this.reader.subscriber.positions();
    this.#endUse(filter, at);
    const context = `${filter}~${++this.#contexts}`;
    this.reader.subscriber.setFilter({ filter, start, durable: true, context });
    this.#noteUse(filter, context, start, at);
  }

  removeFilter(filter: string): void {
    this.#endUse(filter, this.reader.subscriber.positions());
    this.reader.subscriber.removeFilter(filter);
  }

  /** What it has by now is all that it ever gets: it was closed, or its process is gone. */
  end(): void {
    this.#ended ??= this.reader.subscriber.positions();
  }

  close(): void {
    this.end();
    this.reader.subscriber.close();
  }

  /** What it is owed yet. */
  check(model: TtvModel): Debtor {
    const debts: Debt[] = [];
    const positions = this.#ended ?? this.reader.subscriber.positions();
    const received = new Map<number, Received[]>();
    for (const each of this.reader.received) {
      const list = received.get(each.shard) ?? [];
      received.set(each.shard, list);
      if (each.timeUs <= (list.at(-1)?.timeUs ?? 0)) {
        throw new Error(`reader: ${nameOf(each.value)} out of order or twice`);
      }
      list.push(each);
    }
    for (const [shard, positionUs] of positions) {
      debts.push(...this.#checkShard(model, shard, positionUs, received.get(shard) ?? []));
    }
    const living = this.#uses.filter(({ until }) => until === undefined);
    const starts = new Map(living.map(({ filter, start }) => [filter, start]));
    return { debts, positions, starts };
  }

  #checkShard(model: TtvModel, shard: number, positionUs: number, got: Received[]): Debt[] {
    const debts: Debt[] = [];
    const truths = model.of(shard);
    const byTime = new Map(got.map((each) => [each.timeUs, each]));
    for (const { timeUs, value } of got) {
      const truth = truths.get(timeUs);
      if (truth?.name !== nameOf(value)) {
        throw new Error(`reader: got ${nameOf(value)} at ${timeUs}, where ${truth?.name} is`);
      }
      if (timeUs > positionUs)
        throw new Error(`reader: position ${positionUs} is behind ${timeUs}`);
    }
    const missing = new Map<MissedReport, number>();
    // Reports of damage overlap, one for each stream: only their sum says something.
    let lostCount = 0;
    for (const [timeUs, truth] of truths) {
      if (timeUs <= (this.#begin.get(shard) ?? 0) || timeUs > positionUs) continue;
      const wanted = this.#contextsFor(shard, timeUs, truth.topic);
      const each = byTime.get(timeUs);
      const had = [...(each?.filters ?? [])].sort();
      if (had.join() === wanted.join()) continue;
      const isDropped = timeUs <= model.droppedUntil(shard);
      const isDamaged = truth.isLost === true || model.hasRotted(shard, timeUs);
      const mayMiss = isDamaged || isDropped;
      const report = mayMiss ? this.reportFor(shard, timeUs) : undefined;
      if (each === undefined && report === undefined && truth.isLost === true) {
        if (this.#isWantedNow(shard, timeUs, truth.topic)) {
          debts.push({ shard, timeUs, name: truth.name });
        }
        continue;
      }
      if (each !== undefined || report === undefined) {
        const story = `wanted by [${wanted}], got by [${had}]; position ${positionUs}`;
        throw new Error(
          `reader: ${truth.name} at ${timeUs} of shard ${shard}: ${story}; ${this.#describe(shard)}`,
        );
      }
      if (isDamaged) lostCount += isDropped ? 0 : 1;
      else missing.set(report, (missing.get(report) ?? 0) + 1);
    }
    if (lostCount > this.#toldOfDamage(shard)) {
      throw new Error(`reader: ${lostCount} lost, told of ${this.#toldOfDamage(shard)}`);
    }
    for (const [report, count] of missing) {
      if (count > report.count)
        throw new Error(`reader: ${count} missing, told of ${report.count}`);
    }
    return debts;
  }

  /** By a filter that it still has. */
  #isWantedNow(shard: number, timeUs: number, topic: string): boolean {
    const words = splitTopic(topic);
    return this.#uses.some(({ parsed, start, until }) => {
      return until === undefined && timeUs > (start.get(shard) ?? 0) && matches(parsed, words);
    });
  }

  #toldOfDamage(shard: number): number {
    let count = 0;
    for (const report of this.reader.missedReports) {
      if (report.shard === shard && report.reason !== "expired") count += report.count;
    }
    return count;
  }

  /** What is known of a reader that got something wrong. */
  #describe(shard: number): string {
    const uses = this.#uses.map(({ context, start, from, until }) => {
      const [startUs, fromUs, untilUs] = [start, from, until].map((each) => each?.get(shard));
      return `${context}: start ${startUs}, from ${fromUs}, until ${untilUs}`;
    });
    const reports = this.reader.missedReports.map(({ fromUs, toUs, count }) => [
      fromUs,
      toUs,
      count,
    ]);
    return `began at ${this.#begin.get(shard)}; ${uses.join("; ")}; ${JSON.stringify(reports)}`;
  }

  /** What this reader was told of a time that it passed. */
  reportFor(shard: number, timeUs: number): MissedReport | undefined {
    return this.reader.missedReports.find(
      (report) => report.shard === shard && report.fromUs < timeUs && timeUs <= report.toUs,
    );
  }

  #contextsFor(shard: number, timeUs: number, topic: string): string[] {
    const found: string[] = [];
    const words = splitTopic(topic);
    for (const use of this.#uses) {
      if (timeUs <= (use.start.get(shard) ?? 0) || timeUs <= (use.from.get(shard) ?? 0)) continue;
      if (use.until !== undefined && timeUs > (use.until.get(shard) ?? 0)) continue;
      if (matches(use.parsed, words)) found.push(use.context);
    }
    return found.sort();
  }

  #noteUse(filter: string, context: string, start: Positions, from: Positions): void {
    const parsed = parseTopicFilter(filter);
    this.#uses.push({ filter, parsed, context, start, from, until: undefined });
  }

  #endUse(filter: string, at: Positions): void {
    for (const use of this.#uses) if (use.filter === filter) use.until ??= at;
  }
}
