// Decoded blocks under one byte budget, shared by all readers. A block that several readers need
// at once is read once. Blocks that are not on disk yet never enter: they would push out what was
// just read.

import { type Counters, createCounters, createLru, type Lru } from "../../base/index.ts";
import type { TtvBatch } from "../layout/ttv-view.ts";

/** A batch that is wholly in memory, with what it costs. */
export type CachedBatch = TtvBatch & { readonly memoryBytes: number };

export const blockCacheCounterHelp = {
  blocksRead: "blocks read from disk",
  blocksShared: "blocks answered from the cache or from a read under way",
};

export class BlockCache {
  readonly counters: Counters<typeof blockCacheCounterHelp> = createCounters(blockCacheCounterHelp);
  readonly #cache: Lru<CachedBatch>;
  readonly #reads = new Map<string, Promise<CachedBatch>>();

  constructor(bytesMax: number) {
    this.#cache = createLru(bytesMax, (batch) => batch.memoryBytes);
  }

  get sizeBytes(): number {
    return this.#cache.sizeBytes;
  }

  /** Part of what was asked for that somebody else had read, since the start; 0 to 1. */
  get sharingRatio(): number {
    const { blocksRead, blocksShared } = this.counters;
    return blocksShared === 0 ? 0 : blocksShared / (blocksRead + blocksShared);
  }

  /** The cached batch, or a read of it. `key` is unique for the bytes read, for ever. */
  get(key: string, read: () => Promise<CachedBatch>): CachedBatch | Promise<CachedBatch> {
    const cached = this.#cache.get(key);
    if (cached !== undefined) {
      this.counters.blocksShared++;
      return cached;
    }
    const underway = this.#reads.get(key);
    if (underway !== undefined) {
      this.counters.blocksShared++;
      return underway;
    }
    this.counters.blocksRead++;
    const reading = read()
      .then((batch) => {
        this.#cache.set(key, batch);
        return batch;
      })
      .finally(() => this.#reads.delete(key));
    this.#reads.set(key, reading);
    return reading;
  }
}
