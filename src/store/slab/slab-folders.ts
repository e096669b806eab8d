// The folders of a shard's slabs: created empty, opened, removed, set aside.
//
// A folder's name tells its generation. Its two stores go before it, so that while it is there a
// start finds it and ends the work.

import { joinPath } from "../../base/index.ts";
import type { MendParts } from "../mending.ts";
import { openSlabPair, storeNames } from "./slab-pair.ts";
import type { SlabExpected } from "./slab-parts.ts";
import { SlabStores } from "./slab-stores.ts";

export type SlabFoldersParts = {
  readonly dir: string;
  readonly kv: MendParts;
};

type ExpectSlab = () => SlabExpected | undefined;

export function folderName(generation: number): string {
  return `g${String(generation).padStart(8, "0")}`;
}

export class SlabFolders {
  readonly #parts: SlabFoldersParts;

  constructor(parts: SlabFoldersParts) {
    this.#parts = parts;
  }

  /** An empty slab, whatever a start or rotation that came to nothing has left there. */
  async create(generation: number, expected?: ExpectSlab): Promise<SlabStores> {
    const { kv, dir } = this.#parts;
    await this.remove(generation);
    await kv.disk.makeDir(this.#pathOf(generation));
    await kv.disk.syncDir(dir);
    return this.open(generation, expected);
  }

  /** `expected` is asked at each opening; without it nothing is known to be in the slab. */
  open(generation: number, expected?: ExpectSlab): Promise<SlabStores> {
    const path = this.#pathOf(generation);
    return SlabStores.open(path, () => openSlabPair(path, this.#parts.kv, expected?.()));
  }

  /** Bytes that its stores take on the volume. */
  async size(generation: number): Promise<number> {
    const path = this.#pathOf(generation);
    let sizeBytes = 0;
    for (const name of storeNames) {
      sizeBytes += await this.#parts.kv.driver.sizeBytes(joinPath(path, name));
    }
    return sizeBytes;
  }

  async remove(generation: number): Promise<void> {
    const path = this.#pathOf(generation);
    for (const name of storeNames) await this.#parts.kv.driver.destroy(joinPath(path, name));
    await this.#parts.kv.disk.removeDir(path);
  }

  /** Moves the stores to the quarantine. REQUIRES: they are closed. */
  async setAside(generation: number): Promise<void> {
    const { dir, kv } = this.#parts;
    const { quarantineDir, disk, logger } = kv;
    const path = this.#pathOf(generation);
    await disk.makeDir(quarantineDir);
    for (const name of storeNames) {
      const to = joinPath(quarantineDir, quarantineName(dir, `${folderName(generation)}-${name}`));
      await kv.driver.setAside(joinPath(path, name), to);
    }
    await disk.removeDir(path);
    logger.warn("store.slab_set_aside", { slab: path, quarantineDir });
  }

  async removeOrphans(known: readonly number[], how: "remove" | "set_aside"): Promise<void> {
    const names = new Set(known.map(folderName));
    for (const entry of await this.#parts.kv.disk.list(this.#parts.dir)) {
      if (!entry.isDirectory || !/^g\d+$/.test(entry.name) || names.has(entry.name)) continue;
      this.#parts.kv.logger.info("store.orphan_removed", { slab: entry.name });
      const number = Number(entry.name.slice(1));
      if (how === "remove") await this.remove(number);
      else await this.setAside(number);
    }
  }

  #pathOf(generation: number): string {
    return joinPath(this.#parts.dir, folderName(generation));
  }
}

/** Database, shard and thing in one name: a shard's folder is `<database>/<shard>`. */
export function quarantineName(shardDir: string, name: string): string {
  return [...shardDir.split("/").slice(-2), name].join("-");
}
