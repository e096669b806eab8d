// How many sealed slabs are open at once, over all shards: above the limit the stores of the one
// that was not used for longest are closed, until somebody reads it again. What those that rest have
// learned of topics stays in memory up to a limit as well: above it the one that has rested for longest
// forgets it, and reads it again with its next reader.
//
// The slabs that are written to are always open and not counted.

import { type Counters, createCounters } from "../../base/index.ts";

export const openSlabsCounterHelp = {
  slabsRested: "sealed slabs whose stores were closed to keep to the limit",
  triesForgotten: "learned topics of resting slabs that were let go of to keep to the limit",
};

export type Restable = {
  /** Closes its stores for now; its next use opens them. */
  rest(): void;
  /** Memory of what it knows of topics. */
  readonly trieBytes: number;
  /** Lets go of it, unless it is in use; its next use reads it again. */
  forgetTrie(): void;
};

/** Memory of tries of all slabs that rest. */
export const restingTriesBytesMaxDefault = 64 * 1024 * 1024;

export class OpenSlabs {
  readonly counters: Counters<typeof openSlabsCounterHelp> = createCounters(openSlabsCounterHelp);
  readonly #slabsMax: number;
  /** Least used first. */
  readonly #slabs = new Set<Restable>();

  /** Their stores are closed, and their tries known; longest at rest first. */
  readonly #resting = new Set<Restable>();
  readonly #triesBytesMax: number;

  constructor(slabsMax: number, triesBytesMax = restingTriesBytesMaxDefault) {
    this.#slabsMax = slabsMax;
    this.#triesBytesMax = triesBytesMax;
  }

  get count(): number {
    return this.#slabs.size;
  }

  /** A sealed slab is used. */
  used(slab: Restable): void {
    this.#slabs.delete(slab);
    this.#resting.delete(slab);
    this.#slabs.add(slab);
    for (const oldest of this.#slabs) {
      if (this.#slabs.size <= this.#slabsMax) return;
      this.#slabs.delete(oldest);
      this.counters.slabsRested++;
      oldest.rest();
      this.#resting.add(oldest);
      this.#forgetTries();
    }
  }

  remove(slab: Restable): void {
    this.#slabs.delete(slab);
    this.#resting.delete(slab);
  }

  #forgetTries(): void {
    let sizeBytes = 0;
    for (const { trieBytes } of this.#resting) sizeBytes += trieBytes;
    for (const slab of this.#resting) {
      if (sizeBytes <= this.#triesBytesMax) return;
      sizeBytes -= slab.trieBytes;
      this.#resting.delete(slab);
      this.counters.triesForgotten++;
      slab.forgetTrie();
    }
  }
}
