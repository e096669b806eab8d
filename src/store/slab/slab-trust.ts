// What the slabs of a shard have proved to hold, as of the last checkpoint, and which have to prove it
// anew: those that were mended since, or never did.

import type { GenerationTable } from "../core/generations.ts";
import type { SlabProofs } from "./slab-parts.ts";

export class SlabTrust {
  readonly #proofs: Map<number, SlabProofs>;
  /** The next checkpoint takes new proofs of them. */
  readonly #unproved = new Set<number>();

  constructor(saved: Map<number, SlabProofs>, table: GenerationTable) {
    this.#proofs = saved;
    for (const { number, state } of table.generations) {
      if (state === "sealed" && !saved.has(number)) this.#unproved.add(number);
    }
  }

  proofOf(number: number): SlabProofs | undefined {
    return this.#proofs.get(number);
  }

  isUnproved(number: number): boolean {
    return this.#unproved.has(number);
  }

  /** A slab was mended. The current one is proved by each checkpoint anyway. */
  lost(number: number, isCurrent: boolean): void {
    this.#proofs.delete(number);
    if (!isCurrent) this.#unproved.add(number);
  }

  /** Those of them that `find` has; they are the checkpoint's now. */
  takeUnproved<T>(find: (number: number) => T | undefined): T[] {
    const found: T[] = [];
    for (const number of this.#unproved) {
      const slab = find(number);
      if (slab === undefined) continue;
      this.#unproved.delete(number);
      found.push(slab);
    }
    return found;
  }

  committed(proofs: ReadonlyMap<number, SlabProofs>): void {
    for (const [number, proof] of proofs) this.#proofs.set(number, proof);
  }

  /** Another slab stands for the generation, with the proof that was just committed. */
  switched(number: number): void {
    this.#unproved.delete(number);
  }

  forget(number: number): void {
    this.#proofs.delete(number);
  }
}
