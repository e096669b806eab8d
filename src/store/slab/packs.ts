// Generations that are being packed anew: each gets a second slab, written in a folder of its own, to
// which the next checkpoint switches. Nothing is overwritten, and a crash leaves the one or the other;
// the folder that the saved table does not name is an orphan of the next start.
//
//   begin --> written --done--> waiting --capture--> captured --finish--> switched
//
// One pack of a generation at a time. A drop discards a pack that waits. What a checkpoint has in hand
// is the checkpoint's: the drop then finds in the table whichever folder it left there.

import { assertPresent } from "../../base/index.ts";
import type { Generation, GenerationTable } from "../core/generations.ts";
import type { Lts } from "../core/lts.ts";
import { layoutName } from "./layouts.ts";
import type { LogSlab, LogSlabSpan } from "./log-slab.ts";
import type { SlabName } from "./slab-name.ts";
import type { SlabProofs } from "./slab-parts.ts";
import type { SlabShelf } from "./slab-shelf.ts";
import type { SlabStores } from "./slab-stores.ts";

/** A slab that is being written. */
export type OpenPack = SlabName & { readonly stores: SlabStores };

export type PackedSlab = OpenPack & { readonly lts: Lts; readonly proofs: SlabProofs };

export type PacksParts = {
  readonly table: GenerationTable;
  readonly shelf: SlabShelf;
  readonly create: (name: SlabName) => Promise<SlabStores>;
  readonly makeSlab: (stores: SlabStores, lts: Lts, span: LogSlabSpan) => LogSlab;
  /** The table names another folder now. */
  readonly onSwitched: (number: number) => void;
};

type Entry = {
  readonly name: SlabName;
  readonly stores: Promise<SlabStores>;
  waiting: PackedSlab | undefined;
  isCaptured: boolean;
};

/** What a checkpoint writes of packs, and what becomes of them with it. */
export type CapturedPacks = {
  /** Rows of their generations as they will be. */
  readonly rows: readonly Generation[];
  readonly proofs: ReadonlyMap<number, SlabProofs>;
  finish(committed: boolean): void;
};

export class Packs {
  readonly #parts: PacksParts;
  /** By generation. */
  readonly #entries = new Map<number, Entry>();
  readonly #givenUp = new Set<Promise<void>>();

  constructor(parts: PacksParts) {
    this.#parts = parts;
  }

  nameOf(number: number): SlabName | undefined {
    return this.#entries.get(number)?.name;
  }

  /** Written, and no checkpoint has switched to it yet. */
  isWaiting(number: number): boolean {
    return this.#entries.get(number)?.waiting !== undefined;
  }

  /**
   * An empty slab that takes what a sealed generation is packed into; undefined while the generation
   * is not sealed, gone, or packed already and not checkpointed. End it by `done` or `giveUp`.
   */
  async begin(number: number): Promise<OpenPack | undefined> {
    if (!this.#isSealed(number) || this.#entries.has(number)) return undefined;
    if (this.#parts.shelf.isClosed) return undefined;
    const name = { number, pack: this.#parts.table.get(number).pack + 1 };
    const stores = this.#parts.create(name);
    this.#entries.set(number, { name, stores, waiting: undefined, isCaptured: false });
    try {
      return { ...name, stores: await stores };
    } catch (error) {
      this.#entries.delete(number);
      throw error;
    }
  }

  /** It is written and synced. False when its generation has gone: give it up then. */
  done(packed: PackedSlab): boolean {
    const entry = this.#entries.get(packed.number);
    if (entry === undefined || !this.#isSealed(packed.number)) return false;
    if (this.#parts.shelf.isClosed) return false;
    entry.waiting = packed;
    return true;
  }

  /** What was written of it goes. */
  giveUp(pack: OpenPack): Promise<void> {
    const leaving = this.#remove(pack).finally(() => this.#givenUp.delete(leaving));
    this.#givenUp.add(leaving);
    return leaving;
  }

  async #remove({ number, pack, stores }: OpenPack): Promise<void> {
    const entry = this.#entries.get(number);
    if (entry !== undefined) entry.waiting = undefined;
    try {
      await stores.close();
      const { shelf } = this.#parts;
      if (!shelf.isClosed) await shelf.folders.remove({ number, pack });
    } finally {
      this.#entries.delete(number);
    }
  }

  /** A generation is about to leave the table. */
  dropped(number: number): void {
    const entry = this.#entries.get(number);
    if (entry?.waiting !== undefined && !entry.isCaptured) this.#discard(entry.waiting);
  }

  capture(): CapturedPacks {
    const captured: PackedSlab[] = [];
    for (const entry of this.#entries.values()) {
      if (entry.waiting === undefined) continue;
      entry.isCaptured = true;
      captured.push(entry.waiting);
    }
    return {
      rows: captured.map(({ number, pack }) => {
        return { ...this.#parts.table.get(number), pack, layout: layoutName };
      }),
      proofs: new Map(captured.map(({ number, proofs }) => [number, proofs])),
      finish: (committed) => {
        for (const packed of captured) {
          if (committed) this.#switchTo(packed);
          else this.#giveBack(packed);
        }
      },
    };
  }

  /** They wait for nothing any more; what still writes to one finds it closed. */
  async close(): Promise<void> {
    const closing = [...this.#entries.values()].map(async ({ stores }) => (await stores).close());
    await Promise.allSettled([...closing, ...this.#givenUp]);
  }

  #switchTo({ number, pack, stores, lts }: PackedSlab): void {
    const { table, shelf, makeSlab, onSwitched } = this.#parts;
    this.#entries.delete(number);
    const { fromUs, pack: oldPack, ...old } = table.get(number);
    const toUs = assertPresent(old.toUs, "a packed generation has an end");
    table.repacked(number, pack, layoutName);
    const span = { generation: number, fromUs, toUs, writtenUs: toUs, layout: layoutName };
    shelf.replace(makeSlab(stores, lts, span), { number, pack: oldPack });
    onSwitched(number);
  }

  #giveBack(packed: PackedSlab): void {
    const entry = this.#entries.get(packed.number);
    if (entry !== undefined) entry.isCaptured = false;
    if (!this.#isSealed(packed.number)) this.#discard(packed);
  }

  #discard(packed: PackedSlab): void {
    void this.giveUp(packed).catch(() => undefined); // an orphan of the next start
  }

  #isSealed(number: number): boolean {
    return this.#parts.table.generations.some(
      (each) => each.number === number && each.state === "sealed",
    );
  }
}
