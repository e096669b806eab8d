// The second copy of what a shard cannot be opened without: checkpoint, generations, what is missing,
// holds, and what the stores beside must hold. A small file, written anew behind each checkpoint
// (docs/formats/shard-store.md).
//
// It holds the same rows as the shard store, in which everything else is, and the proof of the shard
// store itself. It is never ahead of the shard store.

import type { KvBatch } from "../kv/index.ts";
import { beginCopy, type CopyPlace, readCopy, readRows, writeCopy } from "./copy-file.ts";

export type ShardFacts = {
  /** What the shard store held when the copy was written. */
  readonly proof: Buffer;
  /** By key, as latin1. */
  readonly rows: ReadonlyMap<string, Buffer>;
};

/** "damaged" has been set aside already. */
export type FoundFacts = ShardFacts | "missing" | "damaged";

const fileName = "store.copy";

export function readFacts(place: CopyPlace): Promise<FoundFacts> {
  return readCopy(place, fileName, (reader) => ({ proof: reader.bytes(), rows: readRows(reader) }));
}

/** False when it could not be written, which is logged: the older copy stands. */
export function writeFacts(place: CopyPlace, { proof, rows }: ShardFacts): Promise<boolean> {
  const body = beginCopy().bytes(proof).varint(rows.size);
  for (const [key, value] of rows) body.bytes(Buffer.from(key, "latin1")).bytes(value);
  return writeCopy(place, fileName, body);
}

/** A batch that also tells what it changes. */
export class WatchedBatch implements KvBatch {
  readonly #batch: KvBatch;
  readonly #onChange: (key: string, value: Buffer | undefined) => void;

  constructor(batch: KvBatch, onChange: (key: string, value: Buffer | undefined) => void) {
    this.#batch = batch;
    this.#onChange = onChange;
  }

  get count(): number {
    return this.#batch.count;
  }

  get sizeBytes(): number {
    return this.#batch.sizeBytes;
  }

  put(key: Uint8Array, value: Uint8Array): this {
    this.#batch.put(key, value);
    this.#onChange(Buffer.from(key).toString("latin1"), Buffer.from(value));
    return this;
  }

  delete(key: Uint8Array): this {
    this.#batch.delete(key);
    this.#onChange(Buffer.from(key).toString("latin1"), undefined);
    return this;
  }

  write(options?: { readonly sync?: boolean }): Promise<void> {
    return this.#batch.write(options);
  }
}
