// How much may be under way to one client: messages and bytes. One message is admitted whatever
// its size, so that a message larger than the byte window is not stuck for ever.

export class Window {
  readonly #countMax: number;
  readonly #bytesMax: number;
  #count = 0;
  #bytes = 0;

  constructor(countMax: number, bytesMax: number) {
    this.#countMax = countMax;
    this.#bytesMax = bytesMax;
  }

  get free(): number {
    return Math.max(0, this.#countMax - this.#count);
  }

  get count(): number {
    return this.#count;
  }

  admits(sizeBytes: number): boolean {
    if (this.#count === 0) return true;
    return this.#count < this.#countMax && this.#bytes + sizeBytes <= this.#bytesMax;
  }

  /** How many messages of a run are admitted, from its first on. */
  admitsOf(run: { readonly count: number; frameBytes(index: number): number }): number {
    const countMax = Math.min(run.count, this.free);
    let bytes = this.#bytes;
    for (let index = 0; index < countMax; index++) {
      bytes += run.frameBytes(index);
      // One is admitted whatever its size.
      if (bytes > this.#bytesMax && this.#count + index > 0) return index;
    }
    return countMax;
  }

  /** May exceed the limits: releases owed from an earlier connection hold slots too. */
  take(sizeBytes: number): void {
    this.#count++;
    this.#bytes += sizeBytes;
  }

  release(sizeBytes: number): void {
    this.#count--;
    this.#bytes -= sizeBytes;
  }
}
