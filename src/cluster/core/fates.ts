// What became of the transactions a leader took: each hears exactly one of three words.
//
// `committed`: it is applied here. `retry`: it certainly did not happen, and may be tried again.
// `unknown`: it may yet happen; whoever asks again does so under the same id, so that it counts
// once. Keeps: no transaction hears two words; none is forgotten; bounded, refused at the brim.

import type { Verdict } from "./claims.ts";

export type Fate = "committed" | "retry" | "unknown";

type Open = { readonly id: number; readonly term: number };

export class Fates {
  readonly #openMax: number;
  readonly #tell: (id: number, fate: Fate, index: number) => void;
  /** By the index at which each was proposed, in the order of the indexes. */
  readonly #open = new Map<number, Open>();
  /** At which the last one was proposed. */
  #lastIndex = 0;

  constructor(openMax: number, tell: (id: number, fate: Fate, index: number) => void) {
    this.#openMax = openMax;
    this.#tell = tell;
  }

  get openCount(): number {
    return this.#open.size;
  }

  /** Whether one more can be taken. */
  get hasRoom(): boolean {
    return this.#open.size < this.#openMax;
  }

  /** It is in the log of this leader. One that stood there before was cut off here, not elsewhere. */
  proposed(id: number, index: number, term: number): void {
    if (index <= this.#lastIndex) this.#cutFrom(index);
    this.#lastIndex = index;
    this.#open.set(index, { id, term });
  }

  /** Whether the entry of that term at `index` is one of these. */
  has(index: number, term: number): boolean {
    return this.#open.get(index)?.term === term;
  }

  /** The committed entry at `index` was judged. */
  applied(index: number, term: number, verdict: Verdict): void {
    const open = this.#open.get(index);
    if (open === undefined) return;
    const isIts = open.term === term;
    this.#end(index, open.id, isIts && verdict === "apply" ? "committed" : "retry");
  }

  /** A snapshot took the place of all entries up to `index`. */
  passedOver(index: number): void {
    for (const [at, { id }] of this.#open) {
      if (at > index) break;
      this.#end(at, id, "unknown");
    }
  }

  /** Time is up for it, or nobody waits any more. False when it has been told. */
  giveUp(id: number): boolean {
    for (const [at, open] of this.#open) {
      if (open.id !== id) continue;
      this.#end(at, id, "unknown");
      return true;
    }
    return false;
  }

  /** The node stops. */
  end(): void {
    for (const [at, { id }] of this.#open) this.#end(at, id, "unknown");
  }

  #cutFrom(index: number): void {
    for (const [at, { id }] of this.#open) {
      if (at >= index) this.#end(at, id, "unknown");
    }
  }

  #end(index: number, id: number, fate: Fate): void {
    this.#open.delete(index);
    this.#tell(id, fate, index);
  }
}
