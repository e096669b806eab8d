// The second copy of what a shard cannot be opened without: checkpoint, generations, what is missing,
// holds, and what the stores beside must hold. A small file, written anew behind each checkpoint
// (docs/formats/shard-store.md).
//
// It holds the same rows as the shard store, in which everything else is, and the proof of the shard
// store itself. It is never ahead of the shard store.

import {
  ByteReader,
  ByteWriter,
  crc32,
  type Disk,
  isCodedError,
  joinPath,
  type Logger,
  readFile,
  replaceFile,
  toError,
} from "../base/index.ts";
import type { KvBatch } from "../kv/index.ts";

export type ShardFacts = {
  /** What the shard store held when the copy was written. */
  readonly proof: Buffer;
  /** By key, as latin1. */
  readonly rows: ReadonlyMap<string, Buffer>;
};

/** "damaged" has been set aside already. */
export type FoundFacts = ShardFacts | "missing" | "damaged";

const fileName = "store.copy";
const version = 1;
const crcBytes = 4;

export function encodeFacts({ proof, rows }: ShardFacts): Buffer {
  const writer = new ByteWriter(1024).u8(version).bytes(proof).varint(rows.size);
  for (const [key, value] of rows) writer.bytes(Buffer.from(key, "latin1")).bytes(value);
  writer.u32(crc32(writer.finish()));
  return writer.finish();
}

/** Undefined for anything but a whole copy of this version: there is the shard store itself. */
export function decodeFacts(bytes: Buffer): ShardFacts | undefined {
  const body = bytes.subarray(0, Math.max(0, bytes.length - crcBytes));
  if (bytes.length <= crcBytes || crc32(body) !== bytes.readUInt32BE(body.length)) return undefined;
  try {
    const reader = new ByteReader(body);
    if (reader.u8() !== version) return undefined;
    const proof = Buffer.from(reader.bytes());
    const rows = new Map<string, Buffer>();
    for (let left = reader.varint(); left > 0; left--) {
      const key = reader.bytes().toString("latin1");
      rows.set(key, Buffer.from(reader.bytes()));
    }
    return { proof, rows };
  } catch (error) {
    if (isCodedError(error) && error.code.startsWith("BYTES_")) return undefined;
    throw error;
  }
}

export type FactsPlace = {
  /** Folder of the shard. */
  readonly dir: string;
  readonly disk: Disk;
  readonly quarantineDir: string;
  readonly logger: Logger;
};

export async function readFacts(place: FactsPlace): Promise<FoundFacts> {
  const { dir, disk, quarantineDir, logger } = place;
  const path = joinPath(dir, fileName);
  if (!(await disk.exists(path))) return "missing";
  try {
    const bytes = await readFile(disk, path);
    const facts = decodeFacts(bytes);
    if (facts !== undefined) return facts;
    const quarantinePath = joinPath(
      quarantineDir,
      [...dir.split("/").slice(-2), fileName].join("-"),
    );
    await disk.makeDir(quarantineDir);
    await replaceFile(disk, quarantinePath, bytes);
    logger.error("store.copy_damaged", { path, quarantinePath });
  } catch (error) {
    // Not even readable: the next checkpoint writes it anew.
    logger.error("store.copy_damaged", { path, reason: toError(error).message });
  }
  return "damaged";
}

/** A copy that fails is written by the next checkpoint: until then the older one stands. */
export async function writeFacts(place: FactsPlace, facts: ShardFacts): Promise<void> {
  const path = joinPath(place.dir, fileName);
  try {
    await replaceFile(place.disk, path, encodeFacts(facts));
  } catch (error) {
    place.logger.warn("store.copy_failed", { path, reason: toError(error).message });
  }
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
