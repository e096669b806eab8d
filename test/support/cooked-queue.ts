// What a leader has cooked and not proposed yet. Keeps: each number stands on the one before it, under
// one fence; whatever stands on a batch that never comes to the log is dropped with it.

import type { Fence } from "../../src/cluster/core/claims.ts";

export type Cooked = { readonly number: number; readonly id: number; readonly fence: Fence };

export class CookedQueue {
  #waiting: Cooked[] = [];
  /** The last number cooked, and the fence it was cooked under. */
  #last: { readonly fence: Fence; readonly number: number } | undefined;

  get size(): number {
    return this.#waiting.length;
  }

  /** The first under a fence stands on the state applied, `count`. */
  cook(id: number, fence: Fence, count: number): void {
    const number = (this.#last?.fence === fence ? this.#last.number : count) + 1;
    this.#last = { fence, number };
    this.#waiting.push({ number, id, fence });
  }

  /** The oldest, to be proposed. */
  take(): Cooked | undefined {
    return this.#waiting.shift();
  }

  /**
   * The group took nothing of `declined`: what was cooked after it is void as well. The fence in
   * force may be another than that of `declined`; its numbers go on below the first that is dropped.
   */
  decline(declined: Cooked): readonly Cooked[] {
    const dropped = [declined, ...this.#waiting.splice(0)];
    const first = dropped.find(({ fence }) => fence === this.#last?.fence);
    if (first !== undefined) this.#last = { fence: first.fence, number: first.number - 1 };
    return dropped;
  }

  /** All that waits: its process is gone, and nothing is cooked on it any more. */
  clear(): readonly Cooked[] {
    this.#last = undefined;
    return this.#waiting.splice(0);
  }
}
