// Reads blocks through the shared cache. A damaged block does not stop its readers: its bytes are
// set aside in `quarantine/`, the loss is counted and told to each reader that passes it.

import {
  type Counters,
  createCounters,
  type Disk,
  isCodedError,
  joinPath,
  type Logger,
  replaceFile,
  toError,
} from "../../base/index.ts";
import { type Structure, varyingCount } from "../core/structure.ts";
import { decodeBlock } from "../layout/block.ts";
import type { BlockRow } from "../layout/index-row.ts";
import { LostBatch } from "../layout/lost-batch.ts";
import type { TtvBatch } from "../layout/ttv-view.ts";
import type { BlockCache, CachedBatch } from "../pools/block-cache.ts";
import type { SlabStores } from "./slab-stores.ts";

export type BlockReaderParts = {
  readonly cache: BlockCache;
  readonly disk: Disk;
  readonly quarantineDir: string;
  readonly logger: Logger;
};

export const blockReaderCounterHelp = {
  blocksLost: "damaged or missing blocks that readers were told about",
};

export class BlockReader {
  readonly counters: Counters<typeof blockReaderCounterHelp> =
    createCounters(blockReaderCounterHelp);
  readonly #parts: BlockReaderParts;

  constructor(parts: BlockReaderParts) {
    this.#parts = parts;
  }

  read(stores: SlabStores, structure: Structure, row: BlockRow): TtvBatch | Promise<TtvBatch> {
    const key = `${stores.path}:${row.stream}:${row.lastTimeUs}`;
    return this.#parts.cache.get(key, () => this.#load(stores, structure, row));
  }

  readUncached(stores: SlabStores, structure: Structure, row: BlockRow): Promise<TtvBatch> {
    return this.#load(stores, structure, row);
  }

  async #load(stores: SlabStores, structure: Structure, row: BlockRow): Promise<CachedBatch> {
    let bytes: Buffer | undefined;
    try {
      bytes = await stores.readBlock(row);
    } catch (error) {
      if (!isCodedError(error, "KV_CORRUPT")) throw error;
      return this.#lost(stores, row, undefined, error.message);
    }
    if (bytes === undefined) return this.#lost(stores, row, undefined, "it is missing");
    try {
      return decodeBlock(bytes, varyingCount(structure));
    } catch (error) {
      if (!isCodedError(error, "STORE_BLOCK_CORRUPT")) throw error;
      return this.#lost(stores, row, bytes, error.message);
    }
  }

  async #lost(
    stores: SlabStores,
    row: BlockRow,
    bytes: Buffer | undefined,
    reason: string,
  ): Promise<CachedBatch> {
    this.counters.blocksLost++;
    const quarantinePath = bytes === undefined ? undefined : await this.#keep(stores, row, bytes);
    this.#parts.logger.error("store.block_lost", {
      ...{ slab: stores.path, stream: row.stream, fromUs: row.firstTimeUs, toUs: row.lastTimeUs },
      ...{ count: row.count, reason, quarantinePath },
    });
    return new LostBatch(row);
  }

  /** A copy that fails, on a full volume maybe, must not keep readers from going on. */
  async #keep(stores: SlabStores, row: BlockRow, bytes: Buffer): Promise<string | undefined> {
    const { disk, quarantineDir, logger } = this.#parts;
    const parts = stores.path.split("/").slice(-3);
    const path = joinPath(quarantineDir, [...parts, row.stream, row.lastTimeUs].join("-"));
    try {
      await disk.makeDir(quarantineDir);
      if (!(await disk.exists(path))) await replaceFile(disk, path, bytes);
      return path;
    } catch (error) {
      logger.warn("store.quarantine_failed", { path, reason: toError(error).message });
      return undefined;
    }
  }
}
