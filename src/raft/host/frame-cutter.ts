// Cuts a byte stream into frames by their length prefix.
//
// Keeps: memory is bounded by one frame and what came with its end; a length that cannot be is
// answered at once, before the bytes it promises are waited for.

import { frameOverheadBytes } from "./frames.ts";

const prefixBytes = 4;

export class FrameCutter {
  /** Whole frames above this, prefix included, are refused. Raised after a hello. */
  frameBytesMax: number;
  #held: Buffer[] = [];
  #heldBytes = 0;

  constructor(frameBytesMax: number) {
    this.frameBytesMax = frameBytesMax;
  }

  /**
   * Takes bytes, whose memory stays the caller's, and visits each frame that is complete now, in
   * memory of its own, prefix included.
   * @returns false when a length is out of bounds or `visit` answered so: the stream is over.
   */
  add(bytes: Buffer, visit: (frame: Buffer) => boolean): boolean {
    this.#held.push(Buffer.from(bytes));
    this.#heldBytes += bytes.length;
    while (this.#heldBytes >= prefixBytes) {
      const size = prefixBytes + this.#length();
      if (size > this.frameBytesMax || size < frameOverheadBytes) return false;
      if (this.#heldBytes < size) return true;
      if (!visit(this.#take(size))) return false;
    }
    return true;
  }

  #length(): number {
    const first = this.#held[0] as Buffer;
    if (first.length >= prefixBytes) return first.readUInt32BE(0);
    return this.#joined().readUInt32BE(0);
  }

  #take(size: number): Buffer {
    const all = this.#joined();
    const rest = all.subarray(size);
    this.#held = rest.length > 0 ? [rest] : [];
    this.#heldBytes = rest.length;
    return all.subarray(0, size);
  }

  #joined(): Buffer {
    const all = this.#held.length === 1 ? (this.#held[0] as Buffer) : Buffer.concat(this.#held);
    this.#held = [all];
    return all;
  }
}
