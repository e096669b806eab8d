// What a client sends behind its CONNECT before it has the answer: kept as bytes, read after it was
// accepted, dropped after it was refused (3.1.4-6).

export class HeldBytes {
  readonly bytesMax: number;
  #parts: Buffer[] = [];
  #length = 0;

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  /** Copies `bytes`; false when they are too many. */
  add(bytes: Buffer): boolean {
    if (this.#length + bytes.length > this.bytesMax) return false;
    if (bytes.length === 0) return true;
    this.#parts.push(Buffer.from(bytes));
    this.#length += bytes.length;
    return true;
  }

  take(): Buffer | undefined {
    if (this.#length === 0) return undefined;
    const all = Buffer.concat(this.#parts, this.#length);
    this.#parts = [];
    this.#length = 0;
    return all;
  }
}
