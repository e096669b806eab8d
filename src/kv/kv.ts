// The ordered key-value port under slabs and shard stores. `classic.ts` drives LevelDB;
// `memory.ts` is the twin that models LevelDB's real sync semantics and can lose power.
//
// Order is bytewise. A batch is atomic. A batch written without `sync` is visible at once and
// durable after the next `sync()` that begins after it; after a power cut any subset of whole
// unsynced batches may be missing. A batch written with `sync: true` is durable itself, but does
// NOT make earlier unsynced ones durable.
// After a failed write the store is unusable (`KV_FAILED` for ever): close it and open it again.

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
  closed: {
    code: "KV_CLOSED",
    kind: "closed",
    message: "the key-value store {path} is closed",
    help: "The owner closed it; open it again.",
  },
});

/** Half-open unless said: `gte`/`gt` to `lt`/`lte`, bytewise. */
export type KvRange = {
  readonly gte?: Uint8Array;
  readonly gt?: Uint8Array;
  readonly lt?: Uint8Array;
  readonly lte?: Uint8Array;
  readonly reverse?: boolean;
};

export type KvEntry = readonly [key: Buffer, value: Buffer];

/** Collects puts and deletes in order; nothing happens before `write`. Used once. */
export interface KvBatch {
  readonly count: number;
  readonly sizeBytes: number;
  put(key: Uint8Array, value: Uint8Array): this;
  delete(key: Uint8Array): this;
  write(options?: { readonly sync?: boolean }): Promise<void>;
}

/** A consistent snapshot taken when the cursor was made. Close it. */
export interface KvCursor {
  /** Up to `countMax` next entries and about 1 MiB; empty at the end of the range. */
  next(countMax: number): Promise<KvEntry[]>;
  /** Moves to the first key at or after `key` (at or before it when `reverse`), within the range. */
  seek(key: Uint8Array): void;
  close(): Promise<void>;
}

export interface Kv {
  readonly path: string;
  get(key: Uint8Array): Promise<Buffer | undefined>;
  getMany(keys: readonly Uint8Array[]): Promise<Array<Buffer | undefined>>;
  batch(): KvBatch;
  cursor(range: KvRange): KvCursor;
  /** Deletes a range; visible at once, durable like an unsynced batch. */
  clear(range: KvRange): Promise<void>;
  /** Makes every batch written before the call durable (fsync of logs and folder). */
  sync(): Promise<void>;
  /** Bytes on disk of a key range, roughly. */
  approximateBytes(range: KvRange): Promise<number>;
  close(): Promise<void>;
}

export type KvOptions = {
  /** Bytes collected in memory before a table is written. */
  readonly writeBufferBytes?: number;
  readonly cacheBytes?: number;
};

export interface KvDriver {
  /** Opens or creates the store in the folder `path`. @throws KV_LOCKED, KV_CORRUPT, KV_FAILED. */
  open(path: string, options?: KvOptions): Promise<Kv>;
  /** Removes the store's folder with all it holds; no error when it is gone already. */
  destroy(path: string): Promise<void>;
}
