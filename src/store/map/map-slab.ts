// The slab of a map shard: one key-value store, the writes it has not taken yet (`overlay`) and a
// bounded cache of versions, also of keys that were looked for and are absent.
//
// Applied writes go to the overlay at once and to the store in batches; after a crash the log
// brings back what the store lost. A key is answered by overlay, then cache, then store.

import { createLru, isCodedError, type Lru, toError } from "../../base/index.ts";
import type { KvBatch } from "../../kv/index.ts";
import type { MapEntry } from "../api.ts";
import { type CopyPage, readPage } from "../copies/copy-source.ts";
import type { DurableKv } from "../durable-kv.ts";
import { storeErrors } from "../errors.ts";
import { prefixEnd } from "../shard-store.ts";
import { afterSubtree, childrenOf, decodeMapKey, encodeMapKey } from "./keys.ts";
import type { MapCopier, MapCopyPoint } from "./map-copy.ts";
import { scanMatching } from "./match.ts";
import { decodeMapValue, encodeMapValue, type Version } from "./value.ts";

/** Read cache of a shard. Offline sessions do not stay in it for long. */
const cacheBytesMax = 16 * 1024 * 1024;
const versionOverheadBytes = 128;
/** Keys of one batch of applied writes. */
const batchKeysMax = 4_096;
/** Replay waits above this many unwritten keys. */
const overlayKeysMax = 65_536;
const listPageCount = 512;

/** A read of the disk; overtaken when the key was set since it began. */
type Load = { version: Promise<Version>; overtaken: boolean };

export class MapSlab {
  readonly #kv: DurableKv;
  readonly #onMemory: (deltaBytes: number) => void;
  readonly #copier: MapCopier | undefined;
  readonly #overlay = new Map<string, Version>();
  readonly #cache: Lru<Version> = createLru(cacheBytesMax, bytesOf);
  readonly #loads = new Map<string, Load>();
  #writing: Promise<void> | undefined;
  #closed = false;
  /** A failure that no waiting mends: what it holds is in the log, nothing more is taken. */
  #failure: Error | undefined;
  #onFailure: (error: Error) => void = () => undefined;

  /** `onMemory`: bytes of the overlay changed by this much. `copier`: keeps a copy of the rows. */
  constructor(
    kv: DurableKv,
    onMemory: (deltaBytes: number) => void = () => undefined,
    copier?: MapCopier,
  ) {
    this.#kv = kv;
    this.#onMemory = onMemory;
    this.#copier = copier;
  }

  /** `listener` runs once, when only a start can mend the slab. */
  onFailure(listener: (error: Error) => void): void {
    this.#onFailure = listener;
  }

  set(key: string, version: Version): void {
    const before = this.#overlay.get(key);
    const beforeBytes = before === undefined ? 0 : bytesOf(before, key);
    this.#overlay.set(key, version);
    this.#copier?.changed(key);
    this.#onMemory(bytesOf(version, key) - beforeBytes);
    this.#cache.delete(key);
    const load = this.#loads.get(key);
    if (load !== undefined) load.overtaken = true;
    this.#kick();
  }

  /** Without disk: undefined when only the disk knows. */
  peek(key: string): Version | undefined {
    return this.#overlay.get(key) ?? this.#cache.get(key);
  }

  /** The applied version; brings it into the cache. */
  load(key: string): Promise<Version> {
    const known = this.peek(key);
    if (known !== undefined) return Promise.resolve(known);
    const underway = this.#loads.get(key);
    if (underway !== undefined) return underway.version;
    const load: Load = { version: Promise.resolve(absent), overtaken: false };
    load.version = this.#read(key, load).finally(() => this.#loads.delete(key));
    this.#loads.set(key, load);
    return load.version;
  }

  async list(
    prefix: string,
    options: { afterKey?: string; countMax: number },
  ): Promise<MapEntry[]> {
    await this.#settled();
    const start = encodeMapKey(prefix);
    const { afterKey, countMax } = options;
    const from = afterKey === undefined ? { gte: start } : { gt: encodeMapKey(afterKey) };
    const end = start.length === 0 ? {} : { lt: prefixEnd(start) };
    const cursor = await this.#kv.cursor({ ...from, ...end });
    const entries: MapEntry[] = [];
    try {
      while (entries.length < countMax) {
        const page = await cursor.next(Math.min(listPageCount, countMax - entries.length));
        if (page.length === 0) break;
        for (const [key, value] of page) entries.push(toEntry(decodeMapKey(key), value));
      }
    } finally {
      await cursor.close();
    }
    return entries;
  }

  async match(
    prefix: string,
    filter: string,
    options: { afterKey?: string; countMax: number },
  ): Promise<{ entries: MapEntry[]; nextAfterKey: string | undefined; keysRead: number }> {
    await this.#settled();
    const { afterKey, countMax } = options;
    // "retained/" and "retained" name the same level: `list` takes the former.
    const level = prefix.endsWith("/") ? prefix.slice(0, -1) : prefix;
    const from =
      afterKey === undefined ? { gte: childrenOf(level) } : { gt: encodeMapKey(afterKey) };
    const cursor = await this.#kv.cursor({ ...from, lt: afterSubtree(level) });
    const entries: MapEntry[] = [];
    try {
      const keysRead = await scanMatching(cursor, level, filter.split("/"), (key, value) => {
        entries.push(toEntry(key, value));
        return entries.length < countMax;
      });
      const last = entries.length < countMax ? undefined : entries.at(-1)?.key;
      return { entries, nextAfterKey: last, keysRead };
    } finally {
      await cursor.close();
    }
  }

  /** Resolves when the overlay is small enough for more; undefined when it is. */
  room(): Promise<void> | undefined {
    return this.#overlay.size < overlayKeysMax ? undefined : this.#settled();
  }

  /** Everything set before the call is in the store and synced; resolves with the proof of it. */
  async sync(): Promise<Uint8Array> {
    await this.#settled();
    return this.#kv.sync();
  }

  /** Copies all rows, so that a rotten store can be mended. Before the checkpoint of `point`. */
  async copy(point: MapCopyPoint): Promise<void> {
    await this.#copier?.write(this.#kv, point);
  }

  /** The next copy says nothing of deleted rows. */
  renewCopy(): void {
    this.#copier?.renew();
  }

  /** Deleted rows give their room back. */
  async compact(): Promise<void> {
    await this.#settled();
    await this.#kv.compact();
  }

  /** Rows as they lie, for another replica: what is not written yet is in the log. */
  page(after: Uint8Array | undefined): Promise<CopyPage> {
    return readPage(this.#kv, after);
  }

  /** What is not written yet stays in the log. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#kv.close();
    await this.#writing;
    for (const [key, version] of this.#overlay) this.#onMemory(-bytesOf(version, key));
    this.#overlay.clear();
  }

  async #read(key: string, load: Load): Promise<Version> {
    for (;;) {
      load.overtaken = false;
      const row = await this.#kv.get(encodeMapKey(key)).catch((error: unknown) => {
        throw this.#readFailed(error);
      });
      // Written while the disk was read: the overlay, or what it has become, is newer.
      const newer = this.peek(key);
      if (newer !== undefined) return newer;
      if (load.overtaken) continue;
      const version: Version = row === undefined ? absent : decodeMapValue(row);
      this.#cache.set(key, version);
      return version;
    }
  }

  /** A key that cannot be read may be anything: nobody may build on it. */
  #readFailed(error: unknown): unknown {
    if (!isCodedError(error, "KV_CORRUPT") || this.#closed) return error;
    void this.#kv.condemn(error).then((damage) => this.#fail(damage));
    return error;
  }

  #fail(error: Error): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    if (!this.#closed) this.#onFailure(error);
  }

  #kick(): void {
    if (this.#writing !== undefined || this.#closed || this.#failure !== undefined) return;
    this.#writing = this.#drainAll();
  }

  async #drainAll(): Promise<void> {
    // Begins after the current turn's applies, so that they share a batch.
    await Promise.resolve();
    try {
      await this.#drain();
    } catch (error) {
      this.#fail(toError(error));
    }
    this.#writing = undefined;
    if (this.#overlay.size > 0) this.#kick();
  }

  async #drain(): Promise<void> {
    while (this.#overlay.size > 0) {
      const taken: Array<[string, Version]> = [];
      for (const entry of this.#overlay) {
        taken.push(entry);
        if (taken.length >= batchKeysMax) break;
      }
      await this.#kv.write((batch) => addVersions(batch, taken));
      for (const [key, version] of taken) {
        if (this.#overlay.get(key) !== version) continue;
        this.#overlay.delete(key);
        this.#onMemory(-bytesOf(version, key));
        // A key that was deleted is seldom asked for again: what has ended costs no memory.
        if (version.value !== undefined) this.#cache.set(key, version);
      }
    }
  }

  /** Everything in the overlay now has reached the store. */
  async #settled(): Promise<void> {
    const waitingFor = new Map(this.#overlay);
    for (const [key, version] of waitingFor) {
      while (this.#overlay.get(key) === version) {
        if (this.#closed) throw storeErrors.closed();
        if (this.#failure !== undefined) throw this.#failure;
        this.#kick();
        await this.#writing;
      }
    }
  }
}

const absent: Version = { timeUs: 0, value: undefined };

function bytesOf(version: Version, key: string): number {
  return versionOverheadBytes + key.length + (version.value?.length ?? 0);
}

function toEntry(key: string, row: Buffer): MapEntry {
  const { timeUs, value } = decodeMapValue(row);
  return { key, timeUs, value: value ?? Buffer.alloc(0) };
}

function addVersions(batch: KvBatch, versions: ReadonlyArray<[string, Version]>): void {
  for (const [key, { timeUs, value }] of versions) {
    const name = encodeMapKey(key);
    if (value === undefined) batch.delete(name);
    else batch.put(name, encodeMapValue(timeUs, value));
  }
}
