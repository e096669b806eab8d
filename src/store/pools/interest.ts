// Durable interest and the trie of all filters that somebody reads with.
//
// One entry per filter text, shared by every subscriber of that text. An entry knows, per log
// shard, the commit time of the last TTV that matched it: a reader at or past it has nothing left
// to read, so that going to the tail is a comparison and not a scan. Beside it stands how long what
// matched lasts, so that what has expired unread is not counted as waiting.
// The times are saved by checkpoints and brought up to date by replay; where an entry is younger
// than the saved rows, the checkpoint's own time is an upper bound.
// A shard to which nothing is published takes no checkpoints, however many filters come and go: what
// never got a row leaves nothing behind that would wait for one.

import { assert } from "../../base/index.ts";
import type { KvBatch } from "../../kv/index.ts";
import {
  FilterTrie,
  parseTopicFilter,
  rememberedTopicMax,
  type TopicFilter,
} from "../../topic/index.ts";
import type { InterestFace, MatchTimes, Positions, ShardNumber } from "../api.ts";
import { coverOf } from "../core/cover.ts";
import type { Structure } from "../core/structure.ts";
import { rowPrefix, type ShardStore } from "../shard-store.ts";
import { MatchTimesTable, type RowTimes, rowState } from "./match-times.ts";

/** Topics were checked at the door; here only memory is at stake. */
const topicLimits = { levelsMax: 65_535, controlCharacters: "allow" } as const;

/** Topics whose matches are remembered; all are forgotten when one more comes. */
const knownTopicsMax = 10_000;
const none: readonly never[] = [];

export type FilterEntry<Use> = MatchTimes & {
  readonly filter: TopicFilter;
  /** Where its times stand, in each shard. */
  readonly row: number;
  /** Durable subscriptions of this text. */
  refs: number;
  /** Subscribers that read with it now; most filters are of clients that are away. */
  uses: Set<Use> | undefined;
};

/** What interest needs to know of a TTV; `expiryUs` 0: it never expires. */
export type Matchable = { readonly topic: string; readonly expiryUs: number };

/** A stream that has lost TTVs. */
export type LostIn = {
  readonly structure: Structure;
  readonly dollar: boolean;
  readonly untilUs: number;
};

export class InterestTable<Use> implements InterestFace {
  readonly #shards: ShardNumber[] = [];
  readonly #ordinals = new Map<ShardNumber, number>();
  readonly #entries = new Map<string, FilterEntry<Use>>();
  readonly #trie = new FilterTrie<FilterEntry<Use>>();
  /** Entries that a topic matches; forgotten with every change of the trie. */
  readonly #known = new Map<string, ReadonlyArray<FilterEntry<Use>>>();
  #knownRevision = 0;
  readonly #times = new MatchTimesTable();
  /**
   * By shard ordinal: filters without a subscription any more, whose rows are to be deleted. Undefined
   * once the shard is gone.
   */
  readonly #gone: Array<Set<string> | undefined> = [];
  /** By row; undefined where it is free. */
  readonly #rows: Array<FilterEntry<Use> | undefined> = [];
  readonly #freeRows: number[] = [];
  /** By shard ordinal: filters whose rows a checkpoint is writing or deleting. */
  readonly #flushing: Array<readonly string[] | undefined> = [];
  /** By shard ordinal, for one call of `anyWaits`, which asks for millions of filters. */
  readonly #readTo: number[] = [];
  readonly #appliedUs: (ordinal: number) => number;

  /** `appliedUs`: how far a shard is applied; 0 before it is open. */
  constructor(appliedUs: (ordinal: number) => number) {
    this.#appliedUs = appliedUs;
  }

  /**
   * The ordinal of a shard that is to be opened. Its first, or nothing of it was ever applied, for
   * filters that are here already.
   */
  addShard(shard: ShardNumber): number {
    const ordinal = this.#shards.push(shard) - 1;
    this.#ordinals.set(shard, ordinal);
    this.#times.addShard();
    this.#gone.push(new Set());
    this.#readTo.push(0);
    this.#flushing.push(undefined);
    return ordinal;
  }

  /** The shard is gone for good; its ordinal is not used again. */
  removeShard(shard: ShardNumber): void {
    const ordinal = this.#ordinals.get(shard);
    if (ordinal === undefined) return;
    this.#ordinals.delete(shard);
    this.#gone[ordinal] = undefined;
  }

  /** Shards that are there, in order of their ordinals. */
  get shards(): ShardNumber[] {
    return [...this.#ordinals.keys()];
  }

  get filterCount(): number {
    return this.#entries.size;
  }

  /** Rows that wait for checkpoints, over all shards. */
  get dirtyCount(): number {
    let count = 0;
    for (const [ordinal, gone] of this.#gone.entries()) {
      if (gone !== undefined) count += gone.size + this.#times.dirtyCount(ordinal);
    }
    return count;
  }

  /** Topics whose matches are remembered. */
  get cachedCount(): number {
    return this.#known.size;
  }

  wants(topic: string): boolean {
    for (const entry of this.#entriesOf(topic)) if (entry.refs > 0) return true;
    return false;
  }

  add(filter: string, start: Positions): void {
    const entry = this.#entryFor(filter, start);
    entry.refs++;
    if (entry.refs !== 1) return;
    // Its row was removed with the last subscription, or never was; unless that is still to be done.
    for (const [ordinal, gone] of this.#gone.entries()) {
      const state = gone?.delete(filter) ? rowState.stale : rowState.missing;
      this.#times.mark(ordinal, entry.row, state);
    }
  }

  remove(filter: string): void {
    const entry = this.#entries.get(filter);
    assert(entry !== undefined && entry.refs > 0, `interest in ${filter} was not counted`);
    entry.refs--;
    if (entry.refs > 0) return;
    for (const [ordinal, gone] of this.#gone.entries()) {
      if (this.#times.state(ordinal, entry.row) !== rowState.missing) gone?.add(filter);
      this.#times.mark(ordinal, entry.row, rowState.current);
    }
    this.#release(entry);
  }

  lastMatchUs(filter: string, shard: ShardNumber): number | undefined {
    const ordinal = this.#ordinals.get(shard);
    const entry = this.#entries.get(filter);
    if (ordinal === undefined || entry === undefined) return undefined;
    return this.lastMatchOf(entry, ordinal);
  }

  /** The same of an entry that somebody uses. */
  lastMatchOf(entry: FilterEntry<Use>, ordinal: number): number {
    return this.#times.lastMatchUs(ordinal, entry.row);
  }

  mayWait(
    filter: string,
    shard: ShardNumber,
    { afterUs, nowUs }: { readonly afterUs: number; readonly nowUs: number },
  ): boolean | undefined {
    const ordinal = this.#ordinals.get(shard);
    const entry = this.#entries.get(filter);
    if (ordinal === undefined || entry === undefined) return undefined;
    return this.#times.mayWait(ordinal, entry.row, afterUs, nowUs);
  }

  timesOf(filter: string): MatchTimes | undefined {
    return this.#entries.get(filter);
  }

  anyWaits(filters: Iterable<MatchTimes | undefined>, after: Positions, nowUs: number): boolean {
    const readTo = this.#readTo;
    readTo.fill(Number.POSITIVE_INFINITY);
    for (const [shard, ordinal] of this.#ordinals) readTo[ordinal] = after.get(shard) ?? 0;
    for (const filter of filters) {
      if (filter === undefined) return true;
      if (this.#times.anyWaits((filter as FilterEntry<Use>).row, readTo, nowUs)) return true;
    }
    return false;
  }

  /** A subscriber reads with this filter from now on. */
  addUse(filter: string, start: Positions, use: Use): FilterEntry<Use> {
    const entry = this.#entryFor(filter, start);
    entry.uses ??= new Set();
    entry.uses.add(use);
    return entry;
  }

  removeUse(entry: FilterEntry<Use>, use: Use): void {
    entry.uses?.delete(use);
    this.#release(entry);
  }

  /** A TTV is applied: notes its time and adds the entries that it matched to `matched`. */
  match(
    ordinal: number,
    { topic, expiryUs }: Matchable,
    timeUs: number,
    matched: Array<FilterEntry<Use>>,
  ): void {
    for (const entry of this.#entriesOf(topic)) {
      this.#times.matched(ordinal, entry.row, timeUs, expiryUs);
      if (entry.refs > 0) this.#times.outdate(ordinal, entry.row);
      matched.push(entry);
    }
  }

  /**
   * TTVs of these streams are gone, and readers are told on their way, up to `untilUs`. Until then
   * nobody who may have wanted them has read all: it counts as the last match.
   */
  lost(ordinal: number, streams: readonly LostIn[]): void {
    for (const { filter, row, refs } of this.#entries.values()) {
      for (const stream of streams) {
        if (this.#times.lastMatchUs(ordinal, row) >= stream.untilUs) continue;
        if (coverOf(stream, filter.words) === "none") continue;
        this.#times.matched(ordinal, row, stream.untilUs, 0);
        if (refs > 0) this.#times.outdate(ordinal, row);
      }
    }
  }

  /** Nobody has matched what was applied up to here: any filter may have matched last there. */
  mayHaveMatched(ordinal: number, untilUs: number): void {
    for (const { row, refs } of this.#entries.values()) {
      const { lastMatchUs, lastLastingUs, expiredUs } = this.#times.get(ordinal, row);
      this.#times.set(ordinal, row, {
        lastMatchUs: Math.max(lastMatchUs, untilUs),
        lastLastingUs: Math.max(lastLastingUs, untilUs),
        expiredUs,
      });
      if (refs > 0) this.#times.outdate(ordinal, row);
    }
  }

  /** Before a shard is replayed: the saved times of the filters that exist by now. */
  async load(ordinal: number, store: ShardStore): Promise<void> {
    const saved = new Map<string, RowTimes>();
    await store.scan(Buffer.from([rowPrefix.lastMatch]), (key, value) => {
      saved.set(key.toString("utf8", 1), decodeRow(value));
    });
    const checkpointUs = store.checkpoint.timeUs;
    for (const [text, { row, refs }] of this.#entries) {
      const latestUs = Math.max(this.#times.lastMatchUs(ordinal, row), checkpointUs);
      const found = saved.get(text);
      this.#times.set(ordinal, row, found ?? matchedAt(latestUs));
      if (refs === 0) continue;
      // A filter without a row gets one, so that the next start knows it exactly.
      if (found === undefined) this.#times.mark(ordinal, row, rowState.missing);
      else if (this.#times.state(ordinal, row) !== rowState.current) {
        this.#times.mark(ordinal, row, rowState.stale);
      }
    }
    for (const text of saved.keys()) {
      if ((this.#entries.get(text)?.refs ?? 0) === 0) this.#gone[ordinal]?.add(text);
    }
  }

  capture(ordinal: number): (batch: KvBatch) => void {
    const rows: Array<[string, Buffer | undefined]> = [];
    for (const row of this.#times.takeDirty(ordinal)) {
      const entry = this.#rows[row];
      assert(entry !== undefined, `row ${row} of no filter waits for a checkpoint`);
      rows.push([entry.filter.text, encodeRow(this.#times.get(ordinal, row))]);
    }
    const gone = this.#gone[ordinal];
    for (const text of gone ?? none) rows.push([text, undefined]);
    gone?.clear();
    this.#flushing[ordinal] = rows.map(([text]) => text);
    return (batch) => {
      for (const [text, value] of rows) {
        const key = Buffer.concat([Buffer.from([rowPrefix.lastMatch]), Buffer.from(text)]);
        if (value === undefined) batch.delete(key);
        else batch.put(key, value);
      }
    };
  }

  finish(ordinal: number, committed: boolean): void {
    const texts = this.#flushing[ordinal];
    this.#flushing[ordinal] = undefined;
    if (committed || texts === undefined) return;
    // Part of them may have been written.
    for (const text of texts) {
      const entry = this.#entries.get(text);
      const isCounted = entry !== undefined && entry.refs > 0;
      if (isCounted) this.#times.mark(ordinal, entry.row, rowState.stale);
      else this.#gone[ordinal]?.add(text);
    }
  }

  /** Every message asks twice, when it is cooked and when it is applied. */
  #entriesOf(topic: string): ReadonlyArray<FilterEntry<Use>> {
    if (this.#entries.size === 0) return none;
    if (this.#knownRevision !== this.#trie.revision) {
      this.#known.clear();
      this.#knownRevision = this.#trie.revision;
    }
    const known = this.#known.get(topic);
    if (known !== undefined) return known;
    const found: Array<FilterEntry<Use>> = [];
    this.#trie.match(topic, (entry) => found.push(entry));
    if (topic.length > rememberedTopicMax) return found;
    if (this.#known.size >= knownTopicsMax) this.#known.clear();
    this.#known.set(topic, found);
    return found;
  }

  #entryFor(text: string, start: Positions): FilterEntry<Use> {
    const known = this.#entries.get(text);
    if (known !== undefined) return known;
    const row = this.#freeRows.pop() ?? this.#rows.length;
    const filter = parseTopicFilter(text, topicLimits);
    const entry: FilterEntry<Use> = { filter, row, refs: 0, uses: undefined };
    this.#rows[row] = entry;
    this.#entries.set(text, entry);
    this.#times.reach(row);
    for (const [ordinal, shard] of this.#shards.entries()) {
      // What was applied before nobody has matched with this filter: it may have matched, and last.
      const latestUs = Math.max(start.get(shard) ?? 0, this.#appliedUs(ordinal));
      this.#times.set(ordinal, row, matchedAt(latestUs));
    }
    this.#trie.add(filter, entry);
    return entry;
  }

  #release(entry: FilterEntry<Use>): void {
    if (entry.refs > 0 || (entry.uses?.size ?? 0) > 0) return;
    this.#trie.remove(entry.filter, entry);
    this.#entries.delete(entry.filter.text);
    this.#rows[entry.row] = undefined;
    this.#freeRows.push(entry.row);
  }
}

/** Something that never expires. */
function matchedAt(timeUs: number): RowTimes {
  return { lastMatchUs: timeUs, lastLastingUs: timeUs, expiredUs: 0 };
}

function encodeRow({ lastMatchUs, lastLastingUs, expiredUs }: RowTimes): Buffer {
  const bytes = Buffer.alloc(24);
  bytes.writeBigUInt64BE(BigInt(lastMatchUs), 0);
  bytes.writeBigUInt64BE(BigInt(lastLastingUs), 8);
  bytes.writeBigUInt64BE(BigInt(expiredUs), 16);
  return bytes;
}

/** A row of one time says nothing of expiries: all may last. */
function decodeRow(bytes: Buffer): RowTimes {
  const time = (at: number): number => Number(bytes.readBigUInt64BE(8 * at));
  const lastMatchUs = time(0);
  if (bytes.length < 24) return { lastMatchUs, lastLastingUs: lastMatchUs, expiredUs: 0 };
  return { lastMatchUs, lastLastingUs: time(1), expiredUs: time(2) };
}
