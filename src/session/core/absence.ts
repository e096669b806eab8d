// Since when owners of connections have been away, as one node sees it. An owner is a start of a node:
// it is away for ever once another start of that node is seen. Pure.

import type { Owner } from "./records.ts";

export class Absence {
  /** By the clock of `look`. */
  readonly #beganMs: number;
  #here = new Set<string>();
  readonly #awaySinceMs = new Map<string, number>();

  /** Whoever was never seen has been away since then. */
  constructor(nowMs: number) {
    this.#beganMs = nowMs;
  }

  /** Takes in who is here now. Those that have just gone. */
  look(owners: readonly Owner[], nowMs: number): number {
    const here = new Set(owners.map(nameOf));
    let gone = 0;
    for (const name of this.#here) {
      if (here.has(name)) continue;
      this.#awaySinceMs.set(name, nowMs);
      gone++;
    }
    for (const name of here) this.#awaySinceMs.delete(name);
    this.#here = here;
    return gone;
  }

  /** Moments from which on somebody has been away. */
  *sinces(): Iterable<number> {
    yield this.#beganMs;
    yield* this.#awaySinceMs.values();
  }

  /** Undefined: it is here. A record without an owner is of a time when its node was by itself. */
  sinceMs(owner: Owner | undefined): number | undefined {
    if (owner === undefined) return this.#beganMs;
    const name = nameOf(owner);
    if (this.#here.has(name)) return undefined;
    return this.#awaySinceMs.get(name) ?? this.#beganMs;
  }
}

function nameOf({ node, start }: Owner): string {
  return `${node}/${start}`;
}
