// How many sealed slabs are open at once, over all shards: above the limit the one that was not
// used for longest is closed. Whoever reads it then meets a closed store, and comes again.
//
// The slabs that are written to are always open and not counted.

import { type Counters, createCounters } from "../../base/index.ts";
import type { LogSlab } from "./log-slab.ts";

export const openSlabsCounterHelp = {
  slabsClosed: "sealed slabs closed to keep to the limit",
};

export class OpenSlabs {
  readonly counters: Counters<typeof openSlabsCounterHelp> = createCounters(openSlabsCounterHelp);
  readonly #slabsMax: number;
  /** Least used first, with what closes each. */
  readonly #slabs = new Map<LogSlab, () => void>();

  constructor(slabsMax: number) {
    this.#slabsMax = slabsMax;
  }

  get count(): number {
    return this.#slabs.size;
  }

  add(slab: LogSlab, close: () => void): void {
    this.#slabs.set(slab, close);
    for (const [oldest, closeOldest] of this.#slabs) {
      if (this.#slabs.size <= this.#slabsMax) return;
      this.#slabs.delete(oldest);
      this.counters.slabsClosed++;
      closeOldest();
    }
  }

  used(slab: LogSlab): void {
    const close = this.#slabs.get(slab);
    if (close === undefined) return;
    this.#slabs.delete(slab);
    this.#slabs.set(slab, close);
  }

  remove(slab: LogSlab): void {
    this.#slabs.delete(slab);
  }
}
