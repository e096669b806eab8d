// The ordered key-value port under slabs and shard stores. `classic.ts` drives LevelDB;
// `memory.ts` is the twin that models LevelDB's real sync semantics and can lose power.
//
// Order is bytewise. A batch is atomic; batches of one store are applied in the order of their
// `write` calls. A batch written without `sync` is visible when `write` resolves and durable after
// the next `sync()` that begins after that; after a power cut any subset of whole unsynced batches
// may be missing, earlier ones while later ones are there. A batch written with `sync: true` is
// durable itself, but does NOT make earlier unsynced ones durable.
// After a failed write or sync the store takes no more (the same KV_FAILED or KV_DISK_FULL for
// ever; reads go on): close it and open it again; the failed batch may then be there or not.
// Every call on a closed store or cursor fails with KV_CLOSED.

import { defineErrors } from "../base/index.ts";

export const kvErrors = defineErrors({
  locked: {
    code: "KV_LOCKED",
    kind: "invalid",
    message: "{path} is in use by another process",
    help: "Stop the other process or choose another data directory.",
  },
  corrupt: {
    code: "KV_CORRUPT",
    kind: "corrupt",
    message: "the key-value store {path} is damaged: {reason}",
    help: "The store room sets it aside and rebuilds what the log still holds.",
  },
  failed: {
    code: "KV_FAILED",
    kind: "internal",
    message: "the key-value store {path} failed: {reason}",
    help: "Look at the volume's health and free space.",
  },
  full: {
    code: "KV_DISK_FULL",
    kind: "retry",
    message: "no space left on the volume of the key-value store {path}",
    help: "Free space or raise the quota; the owner then opens the store again.",
  },
  closed: {
    code: "KV_CLOSED",
    kind: "closed",
    message: "the key-value store {path} is closed",
    help: "The owner closed it; open it again.",
  },
});

/**
 * From `gte` or `gt` to `lt` or `lte`, bytewise; a missing bound is open. An inverted range is
 * empty. `reverse` walks from the end.
 */
export type KvRange = {
  readonly gte?: Uint8Array;
  readonly gt?: Uint8Array;
  readonly lt?: Uint8Array;
  readonly lte?: Uint8Array;
  readonly reverse?: boolean;
};

export type KvEntry = readonly [key: Buffer, value: Buffer];

/**
 * Collects puts and deletes in order (bytes are copied); nothing happens before `write`. Used once.
 * `sizeBytes` counts keys and values.
 */
export interface KvBatch {
  readonly count: number;
  readonly sizeBytes: number;
  put(key: Uint8Array, value: Uint8Array): this;
  delete(key: Uint8Array): this;
  write(options?: { readonly sync?: boolean }): Promise<void>;
}

/** A consistent snapshot taken when the cursor was made. Close it; closing twice is no error. */
export interface KvCursor {
  /** Up to `countMax` next entries and about 1 MiB; empty only at the end of the range. */
  next(countMax: number): Promise<KvEntry[]>;
  /**
   * Moves to the first key of the range at or after `key`, or at or before it when `reverse`;
   * from a key before the range's beginning that is its first entry. Not while a `next` is under
   * way.
   */
  seek(key: Uint8Array): void;
  close(): Promise<void>;
}

export interface Kv {
  readonly path: string;
  get(key: Uint8Array): Promise<Buffer | undefined>;
  getMany(keys: readonly Uint8Array[]): Promise<Array<Buffer | undefined>>;
  batch(): KvBatch;
  cursor(range: KvRange): KvCursor;
  /** Deletes a range, in several batches when it is large; durable like unsynced batches. */
  clear(range: KvRange): Promise<void>;
  /**
   * Makes every batch whose `write` was called before durable (fsync of logs and folder). Resolves
   * with a proof of it: an open that is given the proof fails when the store does not hold them.
   */
  sync(): Promise<Buffer>;
  /** Bytes on disk of a key range, roughly: what is still in memory does not count. */
  approximateBytes(range: KvRange): Promise<number>;
  /** Rewrites everything as tables in order: what was deleted gives its room back. */
  compact(): Promise<void>;
  /** Waits for the batches under way, does not sync. Idempotent. Closes the cursors. */
  close(): Promise<void>;
}

export type KvOptions = {
  /** Bytes collected in memory before a table is written. Default 4 MiB. */
  readonly writeBufferBytes?: number;
  /** Bytes of decompressed table blocks kept for reads. Default 8 MiB. */
  readonly cacheBytes?: number;
  /** What a sync answered, this one or one before it: what the store must hold. */
  readonly proof?: Uint8Array | undefined;
  /** Bytes of tables whose checksums are all looked at before it is opened. Default 0. */
  readonly verifyBytesMax?: number;
};

/** What was found in a store that was mended. */
export type KvSalvage = {
  /** What could not be read, in words of its files. */
  readonly faults: readonly string[];
  /** Every file that holds entries was there, as far as can be told, and whole. */
  readonly isWhole: boolean;
};

export interface KvDriver {
  /**
   * Opens or creates the store in the folder `path`; the folder's name is durable then.
   * @throws KV_CORRUPT when it is damaged or does not hold what the proof says: nothing in the folder
   * has changed then; KV_LOCKED, KV_FAILED, KV_DISK_FULL; codes of the disk when the folder cannot
   * be made.
   */
  open(path: string, options?: KvOptions): Promise<Kv>;
  /**
   * Removes the store's folder with all it holds; no error when it is gone already. A crash in the
   * middle may leave a damaged store: have the removal on record first, and call it again.
   * @throws KV_LOCKED while it is open.
   */
  destroy(path: string): Promise<void>;
  /**
   * Moves the store's folder out of the way, to a path where nothing is; no error when it is gone.
   * The parent folder of `to` exists.
   * @throws KV_LOCKED while it is open; codes of the disk.
   */
  setAside(path: string, to: string): Promise<void>;
  /** Bytes that the store's folder takes on its volume, open or not; 0 when it is gone. */
  sizeBytes(path: string): Promise<number>;
  /**
   * Puts a new store with every intact entry of the damaged one in its place, and sets that aside
   * to `to`, where nothing is. A crash on the way leaves the one or the other. Takes room and time
   * for all entries. The same parents and errors as `setAside`.
   */
  salvage(path: string, to: string): Promise<KvSalvage>;
  /** From now on, also after a restart, `open` finds it damaged: until it is mended or gone. */
  condemn(path: string): Promise<void>;
}
