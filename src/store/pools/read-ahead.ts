// What all cursors of a store may have read, or be reading, before they come to it: one budget for any
// number of readers, so that a thousand that come back at once do not take a thousand times as much.
//
// Nobody waits for it: a cursor that is refused reads its block when it comes to it, and asks again
// with the next one. More than one block is for those who have less than their share.

import { assert } from "../../base/index.ts";

/** Of one cursor, however few there are: its disk is busy by then. */
const cursorBytesMax = 4 * 1024 * 1024;

export class ReadAhead {
  readonly #bytesMax: number;
  readonly #counters: { readAheadsRefused: number };
  #usedBytes = 0;
  #cursors = 0;

  constructor(bytesMax: number, counters: { readAheadsRefused: number }) {
    this.#bytesMax = bytesMax;
    this.#counters = counters;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Those who share it. */
  get cursors(): number {
    return this.#cursors;
  }

  /** One more shares it, until `leave`. */
  join(): void {
    this.#cursors++;
  }

  /** REQUIRES: all that it took is given back. */
  leave(): void {
    this.#cursors--;
    assert(this.#cursors >= 0, "a cursor left twice");
  }

  /** Takes so much for a cursor that holds `heldBytes`. False: not now. */
  take(sizeBytes: number, heldBytes: number): boolean {
    const share = Math.min(cursorBytesMax, this.#bytesMax / this.#cursors);
    const isFair = heldBytes === 0 || heldBytes + sizeBytes <= share;
    if (!isFair || this.#usedBytes + sizeBytes > this.#bytesMax) {
      this.#counters.readAheadsRefused++;
      return false;
    }
    this.#usedBytes += sizeBytes;
    return true;
  }

  give(sizeBytes: number): void {
    this.#usedBytes -= sizeBytes;
    assert(this.#usedBytes >= 0, "more was given back than taken");
  }
}
