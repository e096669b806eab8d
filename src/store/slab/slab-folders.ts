// The folders of a shard's slabs: created empty, opened, removed, set aside.
//
// A folder's name tells its generation and its pack. Its two stores go before it, so that while it is
// there a start finds it and ends the work.

import { joinPath } from "../../base/index.ts";
import type { MendParts } from "../mending.ts";
import { folderName, parseFolderName, type SlabName } from "./slab-name.ts";
import { openSlabPair, storeNames } from "./slab-pair.ts";
import type { SlabExpected } from "./slab-parts.ts";
import { type SlabCounters, SlabStores } from "./slab-stores.ts";

export type SlabFoldersParts = {
  readonly dir: string;
  readonly kv: MendParts;
};

type ExpectSlab = () => SlabExpected | undefined;

export class SlabFolders {
  readonly #parts: SlabFoldersParts;

  constructor(parts: SlabFoldersParts) {
    this.#parts = parts;
  }

  /** An empty slab, whatever a start or rotation that came to nothing has left there. */
  async create(
    slab: SlabName,
    expected?: ExpectSlab,
    counters?: SlabCounters,
  ): Promise<SlabStores> {
    const { kv, dir } = this.#parts;
    await this.remove(slab);
    await kv.disk.makeDir(this.#pathOf(slab));
    await kv.disk.syncDir(dir);
    return this.open(slab, expected, counters);
  }

  /** `expected` is asked at each opening; without it nothing is known to be in the slab. */
  open(slab: SlabName, expected?: ExpectSlab, counters?: SlabCounters): Promise<SlabStores> {
    const path = this.#pathOf(slab);
    return SlabStores.open(path, () => openSlabPair(path, this.#parts.kv, expected?.()), counters);
  }

  /** Bytes that its stores take on the volume. */
  async size(slab: SlabName): Promise<number> {
    const path = this.#pathOf(slab);
    let sizeBytes = 0;
    for (const name of storeNames) {
      sizeBytes += await this.#parts.kv.driver.sizeBytes(joinPath(path, name));
    }
    return sizeBytes;
  }

  /** The index goes first: while it is there, it leads to blocks. */
  async remove(slab: SlabName): Promise<void> {
    const path = this.#pathOf(slab);
    for (const name of [...storeNames].reverse())
      await this.#parts.kv.driver.destroy(joinPath(path, name));
    await this.#parts.kv.disk.removeDir(path);
  }

  /** Moves the stores to the quarantine. REQUIRES: they are closed. */
  async setAside(slab: SlabName): Promise<void> {
    const { dir, kv } = this.#parts;
    const { quarantineDir, disk, logger } = kv;
    const path = this.#pathOf(slab);
    await disk.makeDir(quarantineDir);
    for (const name of storeNames) {
      const to = joinPath(quarantineDir, quarantineName(dir, `${folderName(slab)}-${name}`));
      await kv.driver.setAside(joinPath(path, name), to);
    }
    await disk.removeDir(path);
    logger.warn("store.slab_set_aside", { slab: path, quarantineDir });
  }

  /**
   * Without `isCopied` a copy may name another folder of a generation than `known` does: such are
   * left, and told.
   */
  async removeOrphans(
    known: readonly SlabName[],
    how: "remove" | "set_aside",
    isCopied: boolean,
  ): Promise<readonly SlabName[]> {
    const left: SlabName[] = [];
    const names = new Set(known.map(folderName));
    const numbers = new Set(known.map(({ number }) => number));
    for (const entry of await this.#parts.kv.disk.list(this.#parts.dir)) {
      const slab = entry.isDirectory ? parseFolderName(entry.name) : undefined;
      if (slab === undefined || names.has(entry.name)) continue;
      if (!isCopied && numbers.has(slab.number)) {
        left.push(slab);
        continue;
      }
      // No news: a kill before the first checkpoint of a generation leaves one in each shard.
      this.#parts.kv.logger.debug("store.orphan_removed", { slab: entry.name });
      if (how === "remove") await this.remove(slab);
      else await this.setAside(slab);
    }
    return left;
  }

  #pathOf(slab: SlabName): string {
    return joinPath(this.#parts.dir, folderName(slab));
  }
}

/** Database, shard and thing in one name: a shard's folder is `<database>/<shard>`. */
export function quarantineName(shardDir: string, name: string): string {
  return [...shardDir.split("/").slice(-2), name].join("-");
}
