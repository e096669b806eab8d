// The LevelDB driver: the only home of classic-level.
//
// What it keeps to, each measured or read in LevelDB's source: chained batches (the array form
// costs ten times as much); Buffers for keys and values; `sync: true` never taken for more than
// its own batch, since the log file may have been switched since the earlier ones; at most two
// batches outstanding in the process; `nextv` with a high-water mark of 1 MiB (the default of 16
// KiB makes a trip to the thread pool for every block); background errors are sticky until the
// store is reopened.
// Before LevelDB sees a folder, `level/` looks at it: LevelDB itself drops rotten ends without a word.
// Checkpoints, and what becomes of a damaged store, are left to the owner.

import { ClassicLevel, type Iterator as LevelIterator } from "classic-level";
import {
  asBuffer,
  assert,
  type Disk,
  type DiskFile,
  isCodedError,
  joinPath,
  parentDir,
  replaceFile,
  syncFully,
  toError,
} from "../base/index.ts";
import { createGate, type Gate } from "./gate.ts";
import { GatheredGets } from "./gathered-gets.ts";
import {
  type Kv,
  type KvBatch,
  type KvCursor,
  type KvDriver,
  type KvEntry,
  type KvOptions,
  type KvRange,
  type KvSalvage,
  kvErrors,
} from "./kv.ts";
import { decodeProof, levelFault, takeProof } from "./level/check.ts";
import { salvageLevel } from "./level/salvage.ts";
import { boundsOf, type KvBounds } from "./range.ts";
import { WriteQueue } from "./writes.ts";

type Level = ClassicLevel<Buffer, Buffer>;

/** Two keep LevelDB busy while one is prepared; more only take threads from fdatasync. */
const batchesOutstandingMax = 2;
/** The gate of this process. */
export const batchGate: Gate = createGate(batchesOutstandingMax);

const cursorBytes = 1024 * 1024;
const defaultWriteBufferBytes = 4 * 1024 * 1024;
const defaultCacheBytes = 8 * 1024 * 1024;
const emptyKey = Buffer.alloc(0);
/** Above every key in use, for the upper end of an open range. */
const lastKey = Buffer.alloc(64, 0xff);
/** So many write buffers of rows are compacted at a time; read in pages to find where they end. */
const stretchBuffers = 4;
const stretchPageRows = 100;

export type ClassicComponents = {
  readonly disk: Disk;
  /** Shared by all stores of a process; a test may bring its own. */
  readonly gate?: Gate;
};

export function createClassicDriver(components: ClassicComponents): KvDriver {
  const { disk, gate = batchGate } = components;
  return {
    open: (path, options = {}) => openLevel(path, options, { disk, gate }),
    destroy: (path) => destroyLevel(path, disk),
    setAside: (path, to) => moveLevel(path, to, disk),
    sizeBytes: (path) => disk.usedBytes(path),
    salvage: (path, to) => mendLevel(path, to, { disk, gate }),
    condemn: (path) => replaceFile(disk, path + condemnedSuffix, Buffer.from("condemned\n")),
  };
}

type Parts = { readonly disk: Disk; readonly gate: Gate };

/** A store that was mended, before it takes the place of the damaged one. */
const mendedSuffix = ".mended";
/** Beside a store that failed while it was open, in a way that only mending ends. */
const condemnedSuffix = ".condemned";

async function openLevel(path: string, options: KvOptions, parts: Parts): Promise<Kv> {
  const { disk } = parts;
  if (openPaths.has(path)) throw kvErrors.locked({ path });
  const mended = path + mendedSuffix;
  // A crash between the two steps of a mending.
  if (!(await disk.exists(path)) && (await disk.exists(mended))) {
    await moveLevel(mended, path, disk);
  }
  await disk.makeDir(path);
  try {
    await checkLevel(path, options, disk);
  } catch (error) {
    throw levelError(path, error);
  }
  const writeBufferBytes = options.writeBufferBytes ?? defaultWriteBufferBytes;
  const level: Level = new ClassicLevel<Buffer, Buffer>(path, {
    keyEncoding: "buffer",
    valueEncoding: "buffer",
    writeBufferSize: writeBufferBytes,
    cacheSize: options.cacheBytes ?? defaultCacheBytes,
  });
  try {
    await level.open({ passive: false });
  } catch (error) {
    throw levelError(path, error);
  }
  try {
    // LevelDB does not sync a manifest that it has just begun: after a power cut a store that was
    // made and written with `sync` might not open.
    await syncFiles(parts.disk, path, /^(MANIFEST-\d+|CURRENT)$/);
  } catch (error) {
    await level.close();
    throw levelError(path, error);
  }
  openPaths.add(path);
  return new ClassicKv(path, level, { ...parts, stretchBytes: stretchBuffers * writeBufferBytes });
}

async function checkLevel(path: string, options: KvOptions, disk: Disk): Promise<void> {
  const { proof, verifyBytesMax = 0 } = options;
  const expected = proof === undefined ? undefined : decodeProof(proof);
  const fault = (await disk.exists(path + condemnedSuffix))
    ? "it failed while it was open"
    : await levelFault(disk, path, { proof: expected, verifyBytesMax });
  if (fault !== undefined) throw kvErrors.corrupt({ path, reason: fault });
}

/** Bytes of the batches in which a mended store is written. */
const mendBatchBytes = 1024 * 1024;

async function mendLevel(path: string, to: string, parts: Parts): Promise<KvSalvage> {
  const { disk } = parts;
  if (openPaths.has(path)) throw kvErrors.locked({ path });
  const mended = path + mendedSuffix;
  await disk.removeDir(mended);
  const kv = await openLevel(mended, {}, parts);
  let found: KvSalvage;
  try {
    let batch = kv.batch();
    found = await salvageLevel(disk, path, ({ key, value }) => {
      batch.put(key, value ?? emptyKey);
      if (batch.sizeBytes < mendBatchBytes) return undefined;
      const full = batch;
      batch = kv.batch();
      return full.write();
    });
    await batch.write();
    await kv.sync();
  } finally {
    await kv.close();
  }
  if (await disk.exists(path)) await moveLevel(path, to, disk);
  await moveLevel(mended, path, disk);
  await disk.remove(path + condemnedSuffix);
  await disk.syncDir(parentDir(path));
  return found;
}

// A log that vanished since it was listed is part of a table by now, and LevelDB removes logs only
// after table and manifest are synced. The folder goes last: it names files made meanwhile.
async function syncFiles(disk: Disk, folder: string, names: RegExp): Promise<void> {
  const entries = (await disk.list(folder)).filter((entry) => names.test(entry.name));
  await Promise.all(entries.map((entry) => syncFile(disk, joinPath(folder, entry.name))));
  await disk.syncDir(folder);
}

async function syncFile(disk: Disk, path: string): Promise<void> {
  const file = await openIfThere(disk, path);
  if (file === undefined) return;
  try {
    await syncFully(file);
  } finally {
    await file.close();
  }
}

async function openIfThere(disk: Disk, path: string): Promise<DiskFile | undefined> {
  try {
    return await disk.open(path, "read");
  } catch (error) {
    if (isCodedError(error, "DISK_NOT_FOUND")) return undefined;
    throw error;
  }
}

type OpenLog = { readonly number: number; readonly sizeBytes: number; readonly file: DiskFile };

async function openLogs(disk: Disk, folder: string): Promise<OpenLog[]> {
  const logs: OpenLog[] = [];
  try {
    for (const { name } of await disk.list(folder)) {
      if (!/^\d+\.log$/.test(name)) continue;
      const file = await openIfThere(disk, joinPath(folder, name));
      if (file === undefined) continue;
      logs.push({ number: Number.parseInt(name, 10), sizeBytes: await file.sizeBytes(), file });
    }
    return logs;
  } catch (error) {
    await closeLogs(logs);
    throw error;
  }
}

async function syncLogs(disk: Disk, folder: string, logs: readonly OpenLog[]): Promise<Buffer> {
  try {
    await Promise.all(logs.map(({ file }) => syncFully(file)));
    await disk.syncDir(folder);
    return await takeProof(
      disk,
      folder,
      logs.map(({ number, sizeBytes }) => [number, sizeBytes] as const),
    );
  } finally {
    await closeLogs(logs);
  }
}

async function closeLogs(logs: readonly OpenLog[]): Promise<void> {
  await Promise.all(logs.map(({ file }) => file.close()));
}

async function destroyLevel(path: string, disk: Disk): Promise<void> {
  await disk.remove(path + condemnedSuffix);
  if (!(await disk.exists(path))) return;
  try {
    await ClassicLevel.destroy(path);
  } catch (error) {
    throw levelError(path, error);
  }
  await disk.removeDir(path);
  await disk.syncDir(parentDir(path));
}

/** Stores that are open, by path: a folder that was moved under one would be written to still. */
const openPaths = new Set<string>();

async function moveLevel(path: string, to: string, disk: Disk): Promise<void> {
  if (openPaths.has(path)) throw kvErrors.locked({ path });
  await disk.remove(path + condemnedSuffix);
  if (!(await disk.exists(path))) return;
  await disk.rename(path, to);
  await disk.syncDir(parentDir(to));
  await disk.syncDir(parentDir(path));
}

class ClassicKv implements Kv {
  readonly path: string;
  readonly #level: Level;
  readonly #disk: Disk;
  readonly #gate: Gate;
  readonly #writes: WriteQueue;
  readonly #gets: GatheredGets;
  readonly #stretchBytes: number;
  #closing: Promise<void> | undefined;

  constructor(path: string, level: Level, parts: Parts & { readonly stretchBytes: number }) {
    this.path = path;
    this.#level = level;
    this.#gets = new GatheredGets(level);
    this.#disk = parts.disk;
    this.#stretchBytes = parts.stretchBytes;
    this.#gate = parts.gate;
    this.#writes = new WriteQueue(path);
  }

  get(key: Uint8Array): Promise<Buffer | undefined> {
    return this.#read(() => this.#gets.get(asBuffer(key)));
  }

  getMany(keys: readonly Uint8Array[]): Promise<Array<Buffer | undefined>> {
    return this.#read(() => this.#level.getMany(keys.map(asBuffer)));
  }

  batch(): KvBatch {
    if (this.#writes.isClosed) throw kvErrors.closed({ path: this.path });
    return new ClassicBatch(this.#level, (batch, sync) =>
      this.#writes.run(() => this.#gate.run(() => guarded(this.path, batch.write({ sync })))),
    );
  }

  cursor(range: KvRange): KvCursor {
    if (this.#writes.isClosed) throw kvErrors.closed({ path: this.path });
    return new ClassicCursor(this.#level, this.#writes, range);
  }

  clear(range: KvRange): Promise<void> {
    const bounds = boundsOf(range);
    const { gte = emptyKey, lt } = bounds;
    const hasEmptyKey = gte.length === 0 && lt?.length !== 0;
    return this.#writes.run(() =>
      this.#gate.run(async () => {
        // classic-level's clear stops at a step without key bytes: it would leave an empty key.
        if (hasEmptyKey) await guarded(this.path, this.#level.del(emptyKey));
        await guarded(this.path, this.#level.clear(bounds));
      }),
    );
  }

  // The sizes are taken between two writes, so that a proof ends where a batch does; the syncs, which
  // take long, run beside later ones.
  sync(): Promise<Buffer> {
    const [disk, path] = [this.#disk, this.path];
    return this.#writes.runThen(
      () => guarded(path, openLogs(disk, path)),
      (logs) => guarded(path, syncLogs(disk, path, logs)),
    );
  }

  approximateBytes(range: KvRange): Promise<number> {
    const { gte = emptyKey, lt = lastKey } = boundsOf(range);
    if (Buffer.compare(gte, lt) >= 0) return Promise.resolve(0);
    return this.#read(() => this.#level.approximateSize(gte, lt));
  }

  // LevelDB writes rows and what deleted them into one table, which it merges with the levels above
  // it only: a table that lies deepest keeps both. So each stretch of keys gets a new write at either
  // end, which makes a table above all that the stretch has. Stretch by stretch: all stores share
  // LevelDB's one thread.
  async compact(): Promise<void> {
    await this.#compactRange(emptyKey, emptyKey);
    for (let from: Buffer | undefined = emptyKey; from !== undefined; ) {
      const next: Buffer | undefined = await this.#endOfStretch(from);
      await this.#renew([from, next ?? lastKey]);
      await this.#compactRange(from, next ?? lastKey);
      from = next;
    }
  }

  #compactRange(from: Buffer, to: Buffer): Promise<void> {
    return this.#read(() => this.#level.compactRange(from, to));
  }

  /** A key that enough rows lie before; undefined where there are fewer. */
  async #endOfStretch(from: Buffer): Promise<Buffer | undefined> {
    const cursor = this.cursor({ gte: from });
    try {
      for (let seenBytes = 0; ; ) {
        const rows = await cursor.next(stretchPageRows);
        const last = rows.at(-1);
        if (last === undefined) return undefined;
        for (const [key, value] of rows) seenBytes += key.length + value.length;
        if (seenBytes >= this.#stretchBytes && !last[0].equals(from)) return last[0];
      }
    } finally {
      // One that is open keeps what it may still read.
      await cursor.close();
    }
  }

  /** Writes what these keys have. */
  #renew(keys: readonly Buffer[]): Promise<void> {
    return this.#writes.run(() =>
      this.#gate.run(async () => {
        const values = await guarded(this.path, this.#level.getMany([...keys]));
        const batch = this.#level.batch();
        for (const [at, key] of keys.entries()) {
          const value = values[at];
          if (value === undefined) batch.del(key);
          else batch.put(key, value);
        }
        await guarded(this.path, batch.write());
      }),
    );
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await this.#writes.close();
    try {
      await guarded(this.path, this.#level.close());
    } finally {
      openPaths.delete(this.path);
    }
  }

  async #read<T>(call: () => Promise<T>): Promise<T> {
    if (this.#writes.isClosed) throw kvErrors.closed({ path: this.path });
    return guarded(this.path, call());
  }
}

type LevelBatch = ReturnType<Level["batch"]>;

class ClassicBatch implements KvBatch {
  readonly #batch: LevelBatch;
  readonly #write: (batch: LevelBatch, sync: boolean) => Promise<void>;
  #isUsed = false;
  count = 0;
  sizeBytes = 0;

  constructor(level: Level, write: (batch: LevelBatch, sync: boolean) => Promise<void>) {
    this.#batch = level.batch();
    this.#write = write;
  }

  put(key: Uint8Array, value: Uint8Array): this {
    this.#batch.put(asBuffer(key), asBuffer(value));
    this.count++;
    this.sizeBytes += key.length + value.length;
    return this;
  }

  delete(key: Uint8Array): this {
    this.#batch.del(asBuffer(key));
    this.count++;
    this.sizeBytes += key.length;
    return this;
  }

  write(options: { readonly sync?: boolean } = {}): Promise<void> {
    assert(!this.#isUsed, "a batch is written once");
    this.#isUsed = true;
    return this.#write(this.#batch, options.sync === true);
  }
}

// classic-level 3.0.0 ends an iterator that is sought outside its range, and aborts the whole
// process (an assertion of LevelDB) when the store is empty at that. So no seek outside the range
// reaches it: before the beginning it is clamped, behind the end the cursor is at its end without
// asking. The upper bound of a reverse walk cannot be clamped to, being exclusive; LevelDB does
// not get it: the walk begins by a seek to it and drops the entry found at the bound itself.
class ClassicCursor implements KvCursor {
  readonly #store: WriteQueue;
  readonly #bounds: KvBounds;
  readonly #isReverse: boolean;
  readonly #iterator: LevelIterator<Level, Buffer, Buffer>;
  #dropsUpperBound = false;
  #isAtEnd = false;
  #isClosed = false;

  constructor(level: Level, store: WriteQueue, range: KvRange) {
    this.#store = store;
    const bounds = boundsOf(range);
    const isReverse = range.reverse === true;
    this.#bounds = bounds;
    this.#isReverse = isReverse;
    const lowerBound = bounds.gte === undefined ? {} : { gte: bounds.gte };
    this.#iterator = level.iterator({
      ...(isReverse ? lowerBound : bounds),
      reverse: isReverse,
      highWaterMarkBytes: cursorBytes,
    });
    if (isReverse && bounds.lt !== undefined) this.seek(bounds.lt);
  }

  async next(countMax: number): Promise<KvEntry[]> {
    this.#refuseClosed();
    if (this.#isAtEnd) return [];
    const entries = await guarded(this.#store.path, this.#iterator.nextv(countMax));
    if (!this.#dropsUpperBound) return entries;
    this.#dropsUpperBound = false;
    const { lt } = this.#bounds;
    const [first] = entries;
    if (lt === undefined || first === undefined || Buffer.compare(first[0], lt) < 0) return entries;
    entries.shift();
    return entries.length > 0 ? entries : this.next(countMax);
  }

  seek(key: Uint8Array): void {
    this.#refuseClosed();
    const { gte, lt } = this.#bounds;
    let target = asBuffer(key);
    if (this.#isReverse) {
      if (lt !== undefined && Buffer.compare(target, lt) > 0) target = lt;
      this.#dropsUpperBound = lt !== undefined;
      this.#isAtEnd = gte !== undefined && Buffer.compare(target, gte) < 0;
    } else {
      if (gte !== undefined && Buffer.compare(target, gte) < 0) target = gte;
      this.#isAtEnd = lt !== undefined && Buffer.compare(target, lt) >= 0;
    }
    if (this.#isAtEnd) return;
    this.#iterator.seek(target);
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await guarded(this.#store.path, this.#iterator.close());
  }

  #refuseClosed(): void {
    if (this.#isClosed || this.#store.isClosed) throw kvErrors.closed({ path: this.#store.path });
  }
}

async function guarded<T>(path: string, call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (error) {
    throw levelError(path, error);
  }
}

const closedCodes = new Set([
  "LEVEL_DATABASE_NOT_OPEN",
  "LEVEL_ITERATOR_NOT_OPEN",
  "LEVEL_BATCH_NOT_OPEN",
]);

/** classic-level wraps what LevelDB said: the innermost code and message count. */
function levelError(path: string, error: unknown): Error {
  if (isCodedError(error)) {
    if (error.code === "DISK_FULL") return kvErrors.full({ path }, error);
    return error.code.startsWith("KV_") ? error : failed(path, error);
  }
  const outer = toError(error);
  const inner = outer.cause === undefined ? outer : toError(outer.cause);
  const code = "code" in inner ? String(inner.code) : "";
  const reason = inner.message;
  if (code === "LEVEL_LOCKED") return kvErrors.locked({ path }, error);
  if (code === "LEVEL_CORRUPTION") return kvErrors.corrupt({ path, reason }, error);
  if (/no space left|disk quota/i.test(reason)) return kvErrors.full({ path, reason }, error);
  if (closedCodes.has(code)) return kvErrors.closed({ path }, error);
  return failed(path, inner);
}

function failed(path: string, cause: Error): Error {
  return kvErrors.failed({ path, reason: cause.message }, cause);
}
