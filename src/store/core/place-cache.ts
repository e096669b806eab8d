// A bounded map from topic to place, in two halves: when the young half is full it becomes the old
// one, and what was not asked for since is forgotten with the next change. An entry in use costs one
// look-up and moves once a turn-over, so the common case never writes.

import { assert } from "../../base/index.ts";

export class PlaceCache<P> {
  readonly #halfMax: number;
  #young = new Map<string, P>();
  #old = new Map<string, P>();

  /** REQUIRES: `topicsMax` is 2 at least. */
  constructor(topicsMax: number) {
    assert(topicsMax >= 2, "a place cache holds two topics at least");
    this.#halfMax = Math.floor(topicsMax / 2);
  }

  get size(): number {
    return this.#young.size + this.#old.size;
  }

  get(topic: string): P | undefined {
    const young = this.#young.get(topic);
    if (young !== undefined) return young;
    const old = this.#old.get(topic);
    if (old === undefined) return undefined;
    this.#old.delete(topic);
    this.set(topic, old);
    return old;
  }

  set(topic: string, place: P): void {
    this.#young.set(topic, place);
    if (this.#young.size < this.#halfMax) return;
    this.#old = this.#young;
    this.#young = new Map();
  }

  clear(): void {
    this.#young = new Map();
    this.#old = new Map();
  }
}
