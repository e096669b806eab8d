// How far a replica in repair has to come: a read index asked for after the loss. Once that is in
// the machine and on the disk here, all that was acknowledged before the loss is back.
//
// Keeps: only an answer to a question of this life counts; a repair that nobody helps is told to
// the operator once, since a majority in repair stays down.

import type { Raft } from "../core/raft.ts";
import { noNode } from "../core/types.ts";

/** A repair that no leader helps for so long is told. */
const aloneElections = 10;

export class Repair {
  readonly #context: string;
  readonly #aloneTicksMax: number;
  readonly #onAlone: () => void;
  #toIndex: number | undefined;
  #ticksAlone = 0;

  constructor(context: string, electionTicks: number, onAlone: () => void) {
    this.#context = context;
    this.#aloneTicksMax = aloneElections * electionTicks;
    this.#onAlone = onAlone;
  }

  /** Asks until an answer came. */
  tick(raft: Raft): void {
    if (this.#toIndex !== undefined) return;
    if (raft.leader !== noNode) raft.readIndex(this.#context);
    else if (++this.#ticksAlone === this.#aloneTicksMax) this.#onAlone();
  }

  /** Whether the answer was to us. */
  takes(context: string, index: number): boolean {
    if (context !== this.#context) return false;
    this.#toIndex ??= index;
    return true;
  }

  /** Undefined until it is known. */
  get toIndex(): number | undefined {
    return this.#toIndex;
  }

  isDone(appliedIndex: number, persistedIndex: number): boolean {
    const to = this.#toIndex;
    return to !== undefined && appliedIndex >= to && persistedIndex >= to;
  }
}
