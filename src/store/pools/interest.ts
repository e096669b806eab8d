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

/** Topics were checked at the door; here only memory is at stake. */
const topicLimits = { levelsMax: 65_535, controlCharacters: "allow" } as const;

/** Topics whose matches are remembered; all are forgotten when one more comes. */
const knownTopicsMax = 10_000;
const none: readonly never[] = [];

/** Times are by shard ordinal. */
export type FilterEntry<Use> = MatchTimes & {
  readonly filter: TopicFilter;
  /** Durable subscriptions of this text. */
  refs: number;
  /** Subscribers that read with it now. */
  readonly uses: Set<Use>;
  readonly lastMatchUs: number[];
  readonly lastLastingUs: number[];
  readonly expiredUs: number[];
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
  /**
   * By shard ordinal: filters whose row is out of date, and whether there may be one. Removed filters
   * are among them while there may.
   */
  readonly #dirty: Array<Map<string, boolean> | undefined> = [];
  readonly #flushing: Array<ReadonlyMap<string, boolean> | undefined> = [];
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
    this.#dirty.push(new Map());
    this.#flushing.push(undefined);
    for (const { lastMatchUs, lastLastingUs, expiredUs } of this.#entries.values()) {
      for (const times of [lastMatchUs, lastLastingUs, expiredUs]) times.push(0);
    }
    return ordinal;
  }

  /** The shard is gone for good; its ordinal is not used again. */
  removeShard(shard: ShardNumber): void {
    const ordinal = this.#ordinals.get(shard);
    if (ordinal === undefined) return;
    this.#ordinals.delete(shard);
    this.#dirty[ordinal] = undefined;
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
    return this.#dirty.reduce((sum, dirty) => sum + (dirty?.size ?? 0), 0);
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
    for (const dirty of this.#dirty) if (dirty?.has(filter) === false) dirty.set(filter, false);
  }

  remove(filter: string): void {
    const entry = this.#entries.get(filter);
    assert(entry !== undefined && entry.refs > 0, `interest in ${filter} was not counted`);
    entry.refs--;
    if (entry.refs > 0) return;
    for (const dirty of this.#dirty) {
      if (dirty?.get(filter) === false) dirty.delete(filter);
      else dirty?.set(filter, true);
    }
    this.#release(entry);
  }

  lastMatchUs(filter: string, shard: ShardNumber): number | undefined {
    const ordinal = this.#ordinals.get(shard);
    return ordinal === undefined ? undefined : this.#entries.get(filter)?.lastMatchUs[ordinal];
  }

  mayWait(
    filter: string,
    shard: ShardNumber,
    { afterUs, nowUs }: { readonly afterUs: number; readonly nowUs: number },
  ): boolean | undefined {
    const ordinal = this.#ordinals.get(shard);
    const entry = this.#entries.get(filter);
    if (ordinal === undefined || entry === undefined) return undefined;
    if ((entry.lastLastingUs[ordinal] ?? 0) > afterUs) return true;
    return (entry.lastMatchUs[ordinal] ?? 0) > afterUs && (entry.expiredUs[ordinal] ?? 0) > nowUs;
  }

  timesOf(filter: string): MatchTimes | undefined {
    return this.#entries.get(filter);
  }

  waiting(after: Positions, nowUs: number): (times: MatchTimes) => boolean {
    const never = Number.POSITIVE_INFINITY;
    const afterUs = this.#shards.map((shard) =>
      this.#ordinals.has(shard) ? (after.get(shard) ?? 0) : never,
    );
    return ({ lastMatchUs, lastLastingUs, expiredUs }) => {
      for (let ordinal = 0; ordinal < afterUs.length; ordinal++) {
        const fromUs = afterUs[ordinal] ?? never;
        if ((lastMatchUs[ordinal] ?? 0) <= fromUs) continue;
        if ((lastLastingUs[ordinal] ?? 0) > fromUs || (expiredUs[ordinal] ?? 0) > nowUs)
          return true;
      }
      return false;
    };
  }

  /** A subscriber reads with this filter from now on. */
  addUse(filter: string, start: Positions, use: Use): FilterEntry<Use> {
    const entry = this.#entryFor(filter, start);
    entry.uses.add(use);
    return entry;
  }

  removeUse(entry: FilterEntry<Use>, use: Use): void {
    entry.uses.delete(use);
    this.#release(entry);
  }

  /** A TTV is applied: notes its time and adds the entries that it matched to `matched`. */
  match(
    ordinal: number,
    { topic, expiryUs }: Matchable,
    timeUs: number,
    matched: Array<FilterEntry<Use>>,
  ): void {
    const dirty = this.#dirty[ordinal];
    for (const entry of this.#entriesOf(topic)) {
      entry.lastMatchUs[ordinal] = timeUs;
      if (expiryUs === 0) entry.lastLastingUs[ordinal] = timeUs;
      else if (expiryUs > (entry.expiredUs[ordinal] ?? 0)) entry.expiredUs[ordinal] = expiryUs;
      // One that does not wait has its row.
      const text = entry.filter.text;
      if (entry.refs > 0 && dirty?.has(text) === false) dirty.set(text, true);
      matched.push(entry);
    }
  }

  /**
   * TTVs of these streams are gone, and readers are told on their way, up to `untilUs`. Until then
   * nobody who may have wanted them has read all: it counts as the last match.
   */
  lost(ordinal: number, streams: readonly LostIn[]): void {
    for (const entry of this.#entries.values()) {
      const { filter, refs, lastMatchUs, lastLastingUs } = entry;
      for (const stream of streams) {
        if ((lastMatchUs[ordinal] ?? 0) >= stream.untilUs) continue;
        if (coverOf(stream, filter.words) === "none") continue;
        lastMatchUs[ordinal] = stream.untilUs;
        lastLastingUs[ordinal] = stream.untilUs;
        if (refs > 0) this.#dirty[ordinal]?.set(filter.text, true);
      }
    }
  }

  /** Nobody has matched what was applied up to here: any filter may have matched last there. */
  mayHaveMatched(ordinal: number, untilUs: number): void {
    for (const { filter, refs, lastMatchUs, lastLastingUs } of this.#entries.values()) {
      lastMatchUs[ordinal] = Math.max(lastMatchUs[ordinal] ?? 0, untilUs);
      lastLastingUs[ordinal] = Math.max(lastLastingUs[ordinal] ?? 0, untilUs);
      if (refs > 0) this.#dirty[ordinal]?.set(filter.text, true);
    }
  }

  /** Before a shard is replayed: the saved times of the filters that exist by now. */
  async load(ordinal: number, store: ShardStore): Promise<void> {
    const saved = new Map<string, Row>();
    await store.scan(Buffer.from([rowPrefix.lastMatch]), (key, value) => {
      saved.set(key.toString("utf8", 1), decodeRow(value));
    });
    const checkpointUs = store.checkpoint.timeUs;
    const dirty = this.#dirty[ordinal];
    for (const [text, entry] of this.#entries) {
      const start = entry.lastMatchUs[ordinal] ?? 0;
      const row = saved.get(text);
      const latestUs = Math.max(start, checkpointUs);
      entry.lastMatchUs[ordinal] = row?.lastMatchUs ?? latestUs;
      entry.lastLastingUs[ordinal] = row?.lastLastingUs ?? latestUs;
      entry.expiredUs[ordinal] = row?.expiredUs ?? 0;
      // A filter without a row gets one, so that the next start knows it exactly.
      if (row === undefined && entry.refs > 0) dirty?.set(text, false);
    }
    for (const text of saved.keys()) {
      const isCounted = (this.#entries.get(text)?.refs ?? 0) > 0;
      if (!isCounted || dirty?.has(text)) dirty?.set(text, true);
    }
  }

  capture(ordinal: number): (batch: KvBatch) => void {
    const texts = this.#dirty[ordinal] ?? new Map<string, boolean>();
    this.#flushing[ordinal] = texts;
    this.#dirty[ordinal] = new Map();
    const rows: Array<[Buffer, Buffer | undefined]> = [];
    for (const text of texts.keys()) {
      const key = Buffer.concat([Buffer.from([rowPrefix.lastMatch]), Buffer.from(text)]);
      const entry = this.#entries.get(text);
      const kept = entry !== undefined && entry.refs > 0;
      rows.push([key, kept ? encodeRow(entry, ordinal) : undefined]);
    }
    return (batch) => {
      for (const [key, value] of rows) {
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
    for (const text of texts.keys()) this.#dirty[ordinal]?.set(text, true);
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
    // What was applied before nobody has matched with this filter: it may have matched, and last.
    const latestUs = this.#shards.map((shard, ordinal) =>
      Math.max(start.get(shard) ?? 0, this.#appliedUs(ordinal)),
    );
    const entry: FilterEntry<Use> = {
      filter: parseTopicFilter(text, topicLimits),
      refs: 0,
      uses: new Set(),
      lastMatchUs: latestUs,
      lastLastingUs: [...latestUs],
      expiredUs: latestUs.map(() => 0),
    };
    this.#entries.set(text, entry);
    this.#trie.add(entry.filter, entry);
    return entry;
  }

  #release(entry: FilterEntry<Use>): void {
    if (entry.refs > 0 || entry.uses.size > 0) return;
    this.#trie.remove(entry.filter, entry);
    this.#entries.delete(entry.filter.text);
  }
}

type Row = {
  readonly lastMatchUs: number;
  readonly lastLastingUs: number;
  readonly expiredUs: number;
};

function encodeRow(entry: FilterEntry<unknown>, ordinal: number): Buffer {
  const bytes = Buffer.alloc(24);
  const { lastMatchUs, lastLastingUs, expiredUs } = entry;
  [lastMatchUs, lastLastingUs, expiredUs].forEach((times, at) => {
    bytes.writeBigUInt64BE(BigInt(times[ordinal] ?? 0), 8 * at);
  });
  return bytes;
}

/** A row of one time says nothing of expiries: all may last. */
function decodeRow(bytes: Buffer): Row {
  const time = (at: number): number => Number(bytes.readBigUInt64BE(8 * at));
  const lastMatchUs = time(0);
  if (bytes.length < 24) return { lastMatchUs, lastLastingUs: lastMatchUs, expiredUs: 0 };
  return { lastMatchUs, lastLastingUs: time(1), expiredUs: time(2) };
}
