// Reads LevelDB's numbers: little-endian varints and strings behind their length. What does not fit
// is undefined, never an error: the bytes may be rotten.

const bytesMax = 10;

export class Varints {
  readonly #bytes: Buffer;
  offset: number;

  constructor(bytes: Buffer, offset = 0) {
    this.#bytes = bytes;
    this.offset = offset;
  }

  get isAtEnd(): boolean {
    return this.offset >= this.#bytes.length;
  }

  byte(): number | undefined {
    return this.#bytes[this.offset++];
  }

  /** A number above 2^53 loses its low bits: none of LevelDB's gets there. */
  next(): number | undefined {
    let value = 0;
    for (let index = 0; index < bytesMax; index++) {
      const byte = this.byte();
      if (byte === undefined) return undefined;
      value += (byte & 0x7f) * 2 ** (7 * index);
      if (byte < 0x80) return value;
    }
    return undefined;
  }

  /** A view of the next `size` bytes. */
  take(size: number): Buffer | undefined {
    const start = this.offset;
    if (start + size > this.#bytes.length) return undefined;
    this.offset = start + size;
    return this.#bytes.subarray(start, this.offset);
  }

  string(): Buffer | undefined {
    const size = this.next();
    return size === undefined ? undefined : this.take(size);
  }
}
