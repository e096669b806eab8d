// Retained messages: one entry per topic in the `state` database, in the shard of the topic. The
// order of puts to one topic is the order of the calls.
//
// Reading with a filter goes shard by shard in key order; a position is "<shard index>:<topic>", so
// a job can go on after a restart. Pages are as large as the store makes them, never unbounded.
//
// A page is read and decoded once for all who ask for it at about the same time, as when everybody
// comes back at once: pages are kept under a byte budget until something is put into their shard, by
// whichever node.

import { type CodedError, createLru, isCodedError, type Lru } from "../base/index.ts";
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

export type RetainedOptions = {
  /** Wall clock, for expiries. */
  readonly nowUs: () => number;
  /** Hears of each entry that is passed over. */
  readonly onCorrupt: (key: string, error: CodedError) => void;
  readonly cacheBytesMax: number;
};

type KeptPage = { readonly revision: number; readonly page: RetainedPage };

/** What an entry takes beside its frame and topic, about. */
const entryOverheadBytes = 250;
/** What a page takes beside its entries and its name, as measured. */
const pageOverheadBytes = 350;

/** An empty page counts too, and its name: a filter may be as long as a message. */
function pageBytes({ page }: KeptPage, name: string): number {
  let bytes = pageOverheadBytes + 2 * name.length;
  for (const { message } of page.entries) {
    bytes += message.frame.length + 4 * message.topic.length + entryOverheadBytes;
  }
  return bytes;
}

export class RetainedStore implements Retained {
  readonly #store: Store;
  readonly #nowUs: () => number;
  readonly #onCorrupt: (key: string, error: CodedError) => void;
  readonly #pages: Lru<KeptPage>;
  /** Pages that are being read. */
  readonly #reading = new Map<string, { revision: number; page: Promise<RetainedPage> }>();
  /** Counts what was put, as it is applied, by state shard: a page is of one count. */
  readonly #revisions = new Map<number, number>();

  constructor(store: Store, options: RetainedOptions) {
    this.#store = store;
    this.#nowUs = options.nowUs;
    this.#onCorrupt = options.onCorrupt;
    this.#pages = createLru(options.cacheBytesMax, pageBytes);
    for (const shard of store.stateShards) {
      const changed = (): undefined => {
        this.#revisions.set(shard.number, (this.#revisions.get(shard.number) ?? 0) + 1);
      };
      shard.watch(retainedPrefix, { applied: changed, replaced: changed });
    }
  }

  /** Pages that are kept. */
  get pageCount(): number {
    return this.#pages.count;
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
    const nowUs = this.#nowUs();
    const messages = page.entries.map((entry) => entry.message);
    return { messages: messages.filter((one) => !isExpired(one, nowUs)), next: page.next };
  }

  /** As `page`, with the position of each entry. What has expired since it was read may be in it. */
  readPage(filter: string, after: string | undefined, countMax: number): Promise<RetainedPage> {
    if (!hasWildcard(filter)) return this.#readOne(filter, after);
    const shard = this.#store.stateShards[parsePosition(after).index];
    if (shard === undefined) return Promise.resolve({ entries: [], next: undefined });
    const revision = this.#revisions.get(shard.number) ?? 0;
    const name = `${countMax} ${filter} ${after ?? ""}`;
    const kept = this.#reading.get(name) ?? this.#pages.get(name);
    if (kept?.revision === revision) return Promise.resolve(kept.page);
    const page = this.#readShard(shard, filter, after, countMax);
    const reading = { revision, page };
    this.#reading.set(name, reading);
    const over = (): void => {
      if (this.#reading.get(name) === reading) this.#reading.delete(name);
    };
    page.then((read) => {
      over();
      const isCurrent = (this.#revisions.get(shard.number) ?? 0) === revision;
      if (isCurrent) this.#pages.set(name, { revision, page: read });
    }, over);
    return page;
  }

  async #readShard(
    shard: MapShard,
    filter: string,
    after: string | undefined,
    countMax: number,
  ): Promise<RetainedPage> {
    const shards = this.#store.stateShards;
    const { index, topic } = parsePosition(after);
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
