// How many bytes of a shard's log its checkpoint does not cover, about: totals at some indexes.

/** Entries below this size together share one total. */
const stepBytes = 4 * 1024;
const entryOverheadBytes = 32;

type Total = { index: number; bytes: number };

export class LogBytes {
  #bytes = 0;
  #releasedBytes = 0;
  #totals: Total[] = [];

  get sinceRelease(): number {
    return this.#bytes - this.#releasedBytes;
  }

  add(index: number, sizeBytes: number): void {
    this.#bytes += sizeBytes + entryOverheadBytes;
    const last = this.#totals.at(-1);
    const before = this.#totals.at(-2)?.bytes ?? this.#releasedBytes;
    if (last !== undefined && this.#bytes - before < stepBytes) {
      last.index = index;
      last.bytes = this.#bytes;
    } else {
      this.#totals.push({ index, bytes: this.#bytes });
    }
  }

  release(index: number): void {
    for (let first = this.#totals[0]; first !== undefined; first = this.#totals[0]) {
      if (first.index > index) return;
      this.#releasedBytes = first.bytes;
      this.#totals.shift();
    }
  }
}
