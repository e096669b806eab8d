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

  async #load(stores: SlabStores, structure: Structure, row: BlockRow): Promise<CachedBatch> {
    const bytes = await stores.readBlock(row);
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
    const { disk, quarantineDir, logger } = this.#parts;
    this.counters.blocksLost++;
    const quarantinePath = joinPath(quarantineDir, `block-${row.stream}-${row.lastTimeUs}`);
    if (bytes !== undefined) {
      await disk.makeDir(quarantineDir);
      await replaceFile(disk, quarantinePath, bytes);
    }
    logger.error("store.block_lost", {
      slab: stores.path,
      stream: row.stream,
      fromUs: row.firstTimeUs,
      toUs: row.lastTimeUs,
      count: row.count,
      reason,
      quarantinePath: bytes === undefined ? undefined : quarantinePath,
    });
    return new LostBatch(row);
  }
}
