// The slabs of a shard that are in use: opened when they are needed, replaced by what they were packed
// into, closed and removed when they go.
//
// Invariants: a generation has one slab here at most; a folder goes only after its slab is closed; a
// folder that is on its way out is not opened before it has gone; one that was replaced goes only when
// no copy of the table names it.

import { joinPath, type Logger } from "../../base/index.ts";
import { isDamage } from "../damage-codes.ts";
import { storeErrors } from "../errors.ts";
import type { MendParts } from "../mending.ts";
import type { LogSlab } from "./log-slab.ts";
import type { OpenSlabs } from "./open-slabs.ts";
import { SlabFolders } from "./slab-folders.ts";
import { folderName, type SlabName } from "./slab-name.ts";
import type { SlabExpected } from "./slab-parts.ts";
import type { SlabCounters, SlabStores } from "./slab-stores.ts";

export type SlabShelfParts = {
  /** Folder of the shard: one folder per generation in it. */
  readonly dir: string;
  readonly kv: MendParts;
  readonly openSlabs: OpenSlabs;
  readonly logger: Logger;
  readonly slabCounters?: SlabCounters;
  /** Runs once the copy of the saved table is as new as the table. Default: at once. */
  readonly whenCopied?: (run: () => void) => void;
};

export type OpenHooks = {
  /** Makes a slab of stores that were just opened. @throws damage codes. */
  readonly make: (stores: SlabStores) => Promise<LogSlab>;
  readonly onOpened: (slab: LogSlab | undefined) => void;
};

export class SlabShelf {
  readonly #parts: SlabShelfParts;
  readonly #folders: SlabFolders;
  readonly #slabs = new Map<number, LogSlab>();
  readonly #opening = new Map<number, Promise<LogSlab | undefined>>();
  /** Replaced, and still walked. */
  readonly #replaced = new Set<LogSlab>();
  /** By folder. */
  readonly #leaving = new Map<string, Promise<void>>();
  #closed = false;

  constructor(parts: SlabShelfParts) {
    this.#parts = parts;
    this.#folders = new SlabFolders(parts);
  }

  get folders(): SlabFolders {
    return this.#folders;
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  get(number: number): LogSlab | undefined {
    return this.#slabs.get(number);
  }

  add(slab: LogSlab): void {
    this.#slabs.set(slab.generation, slab);
  }

  /** Whether the slab's stores are open now. */
  isOpen(number: number): boolean {
    return this.#slabs.get(number)?.isResting === false;
  }

  /**
   * The slab of a generation that has ended; undefined when it is damaged beyond mending.
   * `onOpened` is told first, once for all who ask meanwhile.
   */
  open(
    name: SlabName,
    expected: () => SlabExpected | undefined,
    { make, onOpened }: OpenHooks,
  ): Promise<LogSlab | undefined> {
    const { number } = name;
    if (this.#closed) return Promise.reject(storeErrors.closed());
    const underway = this.#opening.get(number);
    if (underway !== undefined) return underway;
    const opening = this.#open(name, expected, make)
      .then((slab) => {
        onOpened(slab);
        return slab;
      })
      .finally(() => this.#opening.delete(number));
    this.#opening.set(number, opening);
    return opening;
  }

  async #open(
    name: SlabName,
    expected: () => SlabExpected | undefined,
    make: OpenHooks["make"],
  ): Promise<LogSlab | undefined> {
    await this.#leaving.get(folderName(name));
    let stores: SlabStores | undefined;
    try {
      stores = await this.#folders.open(name, expected);
      const slab = await make(stores);
      const known = this.#slabs.get(name.number);
      if (known !== undefined) {
        await stores.close();
        return known;
      }
      this.#slabs.set(name.number, slab);
      this.#parts.openSlabs.used(slab);
      return slab;
    } catch (error) {
      await stores?.close();
      if (!isDamage(error)) throw error;
      this.logDamage(name, error);
      return undefined;
    }
  }

  /** The slab in another folder; the old one goes when nobody walks it any more. */
  replace(slab: LogSlab, old: SlabName): void {
    const before = this.#slabs.get(slab.generation);
    this.#slabs.set(slab.generation, slab);
    this.#parts.openSlabs.used(slab);
    if (before !== undefined) {
      this.#parts.openSlabs.remove(before);
      this.#replaced.add(before);
    }
    this.#goAway(old, async () => {
      await before?.idle();
      // The next start removes it as an orphan.
      if (this.#closed) return;
      await before?.close();
      if (before !== undefined) this.#replaced.delete(before);
      this.removeWhenCopied([old]);
    });
  }

  /** Removes folders that a copy of the table may name yet. */
  removeWhenCopied(slabs: readonly SlabName[]): void {
    const remove = (): void => {
      // The next start removes what is left now.
      if (this.#closed) return;
      for (const slab of slabs) this.#goAway(slab, () => this.#folders.remove(slab));
    };
    if (this.#parts.whenCopied === undefined) remove();
    else this.#parts.whenCopied(remove);
  }

  /** Nobody reads it any more: it is closed, then `how` happens to its folder. */
  discard(name: SlabName, how: "remove" | "set_aside"): void {
    const { number } = name;
    const slab = this.#slabs.get(number);
    this.#slabs.delete(number);
    this.#goAway(name, async () => {
      await this.#opening.get(number);
      const opened = slab ?? this.#slabs.get(number);
      this.#slabs.delete(number);
      if (opened !== undefined) this.#parts.openSlabs.remove(opened);
      await opened?.close();
      if (how === "remove") await this.#folders.remove(name);
      else await this.#folders.setAside(name);
    });
  }

  #goAway(name: SlabName, work: () => Promise<void>): void {
    const folder = folderName(name);
    const leaving = work()
      .catch((error: unknown) => {
        // The table no longer names it: the next start removes it as an orphan.
        const reason = error instanceof Error ? error.message : String(error);
        this.#parts.logger.warn("store.slab_close_incomplete", { slab: folder, reason });
      })
      .finally(() => {
        if (this.#leaving.get(folder) === leaving) this.#leaving.delete(folder);
      });
    this.#leaving.set(folder, leaving);
  }

  logDamage(name: SlabName, error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error);
    const slab = joinPath(this.#parts.dir, folderName(name));
    this.#parts.logger.error("store.slab_lost", { slab, reason });
  }

  /** What is being opened is opened to its end, to be closed with the rest. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.allSettled(this.#opening.values());
    for (const slab of this.#slabs.values()) {
      this.#parts.openSlabs.remove(slab);
      await slab.close();
    }
    for (const slab of this.#replaced) await slab.close();
    await Promise.allSettled(this.#leaving.values());
  }
}
