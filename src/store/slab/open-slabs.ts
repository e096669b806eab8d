// How many sealed slabs are open at once, over all shards: above the limit the stores of the one
// that was not used for longest are closed, until somebody reads it again.
//
// The slabs that are written to are always open and not counted.

import { type Counters, createCounters } from "../../base/index.ts";

export const openSlabsCounterHelp = {
  slabsRested: "sealed slabs whose stores were closed to keep to the limit",
};

/** Closes its stores for now; its next use opens them. */
export type Restable = { rest(): void };

export class OpenSlabs {
  readonly counters: Counters<typeof openSlabsCounterHelp> = createCounters(openSlabsCounterHelp);
  readonly #slabsMax: number;
  /** Least used first. */
  readonly #slabs = new Set<Restable>();

  constructor(slabsMax: number) {
    this.#slabsMax = slabsMax;
  }

  get count(): number {
    return this.#slabs.size;
  }

  /** A sealed slab is used. */
  used(slab: Restable): void {
    this.#slabs.delete(slab);
    this.#slabs.add(slab);
    for (const oldest of this.#slabs) {
      if (this.#slabs.size <= this.#slabsMax) return;
      this.#slabs.delete(oldest);
      this.counters.slabsRested++;
      oldest.rest();
    }
  }

  remove(slab: Restable): void {
    this.#slabs.delete(slab);
  }
}
