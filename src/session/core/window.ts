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
