// The folders of a shard's slabs: created empty, opened, removed, set aside.
//
// A folder's name tells its generation. Its two stores go before it, so that while it is there a
// start finds it and ends the work.

import { type Disk, joinPath, type Logger } from "../../base/index.ts";
import type { DurableKvParts } from "../durable-kv.ts";
import { SlabStores, storeNames } from "./slab-stores.ts";

export type SlabFoldersParts = {
  readonly dir: string;
  readonly quarantineDir: string;
  readonly disk: Disk;
  readonly kv: DurableKvParts;
  readonly logger: Logger;
};

export function folderName(generation: number): string {
  return `g${String(generation).padStart(8, "0")}`;
}

export class SlabFolders {
  readonly #parts: SlabFoldersParts;

  constructor(parts: SlabFoldersParts) {
    this.#parts = parts;
  }

  /** An empty slab, whatever a start or rotation that came to nothing has left there. */
  async create(generation: number): Promise<SlabStores> {
    const { disk, dir } = this.#parts;
    await this.remove(generation);
    await disk.makeDir(this.#pathOf(generation));
    await disk.syncDir(dir);
    return this.open(generation);
  }

  open(generation: number): Promise<SlabStores> {
    return SlabStores.open(this.#pathOf(generation), this.#parts.kv);
  }

  async remove(generation: number): Promise<void> {
    const path = this.#pathOf(generation);
    for (const name of storeNames) await this.#parts.kv.driver.destroy(joinPath(path, name));
    await this.#parts.disk.removeDir(path);
  }

  /** Moves the stores to the quarantine. REQUIRES: they are closed. */
  async setAside(generation: number): Promise<void> {
    const { dir, quarantineDir, disk, kv, logger } = this.#parts;
    const path = this.#pathOf(generation);
    await disk.makeDir(quarantineDir);
    for (const name of storeNames) {
      const to = joinPath(quarantineDir, quarantineName(dir, `${folderName(generation)}-${name}`));
      await kv.driver.setAside(joinPath(path, name), to);
    }
    await disk.removeDir(path);
    logger.warn("store.slab_set_aside", { slab: path, quarantineDir });
  }

  async removeOrphans(known: readonly number[]): Promise<void> {
    const names = new Set(known.map(folderName));
    for (const entry of await this.#parts.disk.list(this.#parts.dir)) {
      if (!entry.isDirectory || !/^g\d+$/.test(entry.name) || names.has(entry.name)) continue;
      this.#parts.logger.info("store.orphan_removed", { slab: entry.name });
      await this.remove(Number(entry.name.slice(1)));
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
