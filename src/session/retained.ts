// Retained messages: one entry per topic in the `state` database, in the shard of the topic. The
// order of puts to one topic is the order of the calls.
//
// Reading with a filter goes shard by shard in key order; a position is "<shard index>:<topic>", so
// a job can go on after a restart. Pages are as large as the store makes them, never unbounded.

import { type CodedError, isCodedError } from "../base/index.ts";
import type { MapEntry, MapShard, Store, Ttv } from "../store/index.ts";
import { hasWildcard } from "../topic/index.ts";
import type { Retained } from "./api.ts";
import { isExpired } from "./core/choose.ts";
import { decodeMessage, encodeMessage } from "./core/records.ts";
import { sessionErrors } from "./errors.ts";
import { retainedPrefix, retainedTopicBytesMax } from "./keys.ts";

export type RetainedEntry = {
  readonly message: Ttv;
  /** Where to go on after this entry. */
  readonly position: string;
  /** State shard and commit time of the put. */
  readonly shard: number;
};

export type RetainedPage = {
  readonly entries: readonly RetainedEntry[];
  /** Undefined at the end. A page may be empty before the end. */
  readonly next: string | undefined;
};

export class RetainedStore implements Retained {
  readonly #store: Store;
  readonly #nowUs: () => number;
  readonly #onCorrupt: (key: string, error: CodedError) => void;

  /** `nowUs`: wall clock, for expiries. `onCorrupt` hears of each entry that is passed over. */
  constructor(
    store: Store,
    nowUs: () => number,
    onCorrupt: (key: string, error: CodedError) => void,
  ) {
    this.#store = store;
    this.#nowUs = nowUs;
    this.#onCorrupt = onCorrupt;
  }

  put(message: Ttv, isEmpty: boolean, done: (error: CodedError | undefined) => void): void {
    const size = Buffer.byteLength(message.topic);
    if (size > retainedTopicBytesMax) {
      done(sessionErrors.retainedTopicTooLong({ max: retainedTopicBytesMax, size }));
      return;
    }
    const key = retainedPrefix + message.topic;
    const value = isEmpty ? undefined : encodeMessage(message);
    this.#store.state(message.topic).write([{ key, value }], [], (error) => done(error));
  }

  async get(topic: string): Promise<Ttv | undefined> {
    const entry = await this.#store.state(topic).get(retainedPrefix + topic);
    if (entry === undefined) return undefined;
    const message = messageOf(entry);
    return isExpired(message, this.#nowUs()) ? undefined : message;
  }

  async page(
    filter: string,
    after: string | undefined,
    countMax: number,
  ): Promise<{ messages: Ttv[]; next: string | undefined }> {
    const page = await this.readPage(filter, after, countMax);
    return { messages: page.entries.map((entry) => entry.message), next: page.next };
  }

  /** As `page`, with the position of each entry. */
  async readPage(
    filter: string,
    after: string | undefined,
    countMax: number,
  ): Promise<RetainedPage> {
    if (!hasWildcard(filter)) return this.#readOne(filter, after);
    const shards = this.#store.stateShards;
    const { index, topic } = parsePosition(after);
    const shard = shards[index];
    if (shard === undefined) return { entries: [], next: undefined };
    const afterKey = topic === undefined ? {} : { afterKey: retainedPrefix + topic };
    const found = await shard.match(retainedPrefix, filter, { ...afterKey, countMax });
    const entries = this.#live(shard, found.entries, index);
    if (found.nextAfterKey !== undefined) {
      const nextTopic = found.nextAfterKey.slice(retainedPrefix.length);
      return { entries, next: formatPosition(index, nextTopic) };
    }
    const isLast = index + 1 >= shards.length;
    return { entries, next: isLast ? undefined : `${index + 1}` };
  }

  /** Where the next state shard begins; undefined behind the last. */
  positionPastShard(filter: string, after: string | undefined): string | undefined {
    if (!hasWildcard(filter)) return undefined;
    const next = parsePosition(after).index + 1;
    return next < this.#store.stateShards.length ? `${next}` : undefined;
  }

  async #readOne(topic: string, after: string | undefined): Promise<RetainedPage> {
    if (after !== undefined) return { entries: [], next: undefined };
    const shard = this.#store.state(topic);
    const entry = await shard.get(retainedPrefix + topic);
    const found = entry === undefined ? [] : [entry];
    return { entries: this.#live(shard, found, 0), next: undefined };
  }

  #live(shard: MapShard, found: readonly MapEntry[], index: number): RetainedEntry[] {
    const nowUs = this.#nowUs();
    const entries: RetainedEntry[] = [];
    for (const entry of found) {
      const message = this.#readable(entry);
      if (message === undefined || isExpired(message, nowUs)) continue;
      const position = formatPosition(index, message.topic);
      entries.push({ message, position, shard: shard.number });
    }
    return entries;
  }

  /** One damaged entry must not keep its readers from all the others. */
  #readable(entry: MapEntry): Ttv | undefined {
    try {
      return messageOf(entry);
    } catch (error) {
      if (!isCodedError(error) || error.kind !== "corrupt") throw error;
      this.#onCorrupt(entry.key, error);
      return undefined;
    }
  }
}

function messageOf(entry: MapEntry): Ttv {
  return { ...decodeMessage(entry.value), timeUs: entry.timeUs };
}

function formatPosition(index: number, topic: string): string {
  return `${index}:${topic}`;
}

function parsePosition(position: string | undefined): { index: number; topic: string | undefined } {
  if (position === undefined) return { index: 0, topic: undefined };
  const colon = position.indexOf(":");
  if (colon < 0) return { index: Number(position), topic: undefined };
  return { index: Number(position.slice(0, colon)), topic: position.slice(colon + 1) };
}
