// Where the packets of one connection are collected until its owner writes them: one write for a
// connection and turn, whatever was said in it.
//
// - Chunks come from a pool at the first byte and leave with `drain`; an idle output holds nothing.
// - A chunk grows by classes, so that a burst to many connections costs what it carries.
// - `onDirty` runs once when the first byte comes after a drain: the owner schedules its write.
// Bounds of what may wait are the owner's: it sees `pendingBytes`.

/** Sizes of pooled chunks; larger packets get a chunk of their own, which is not pooled. */
const chunkClasses = [1024, 8 * 1024, 64 * 1024] as const;
const chunkBytesMax = 64 * 1024;

/** Chunks for reuse, shared by the connections of a process. */
export class ChunkPool {
  readonly #free: Buffer[][] = chunkClasses.map(() => []);
  readonly #keepBytesMax: number;

  /** Keeps up to `keepBytesMax` bytes of each class. Default 4 MiB. */
  constructor(keepBytesMax = 4 * 1024 * 1024) {
    this.#keepBytesMax = keepBytesMax;
  }

  acquire(bytesMin: number): Buffer {
    const index = chunkClasses.findIndex((size) => size >= bytesMin);
    const size = chunkClasses[index];
    if (size === undefined) return Buffer.allocUnsafeSlow(bytesMin);
    return this.#free[index]?.pop() ?? Buffer.allocUnsafeSlow(size);
  }

  /** REQUIRES: nobody reads the chunk any more. */
  release(chunk: Buffer): void {
    const index = chunkClasses.indexOf(chunk.length);
    const free = this.#free[index];
    if (free !== undefined && (free.length + 1) * chunk.length <= this.#keepBytesMax) {
      free.push(chunk);
    }
  }
}

const nothing = Buffer.alloc(0);

export class OutputBuffer {
  readonly #pool: ChunkPool;
  readonly #onDirty: () => void;
  #full: Array<{ readonly chunk: Buffer; readonly length: number }> = [];
  #fullBytes = 0;
  #chunk: Buffer = nothing;
  #length = 0;

  constructor(pool: ChunkPool, onDirty: () => void) {
    this.#pool = pool;
    this.#onDirty = onDirty;
  }

  /** Bytes waiting for `drain`. */
  get pendingBytes(): number {
    return this.#fullBytes + this.#length;
  }

  /** Memory that the last `reserve` gave room in. */
  get chunk(): Buffer {
    return this.#chunk;
  }

  /** Room for `sizeBytes` in `chunk`, at the returned offset. To be filled before the next call. */
  reserve(sizeBytes: number): number {
    const offset = this.#length;
    const end = offset + sizeBytes;
    if (end <= this.#chunk.length) {
      this.#length = end;
      return offset;
    }
    this.#grow(sizeBytes);
    const start = this.#length;
    this.#length += sizeBytes;
    return start;
  }

  write(bytes: Uint8Array): void {
    const offset = this.reserve(bytes.length);
    this.#chunk.set(bytes, offset);
  }

  /**
   * Hands out what waits, in order, and forgets it. `chunk` is the memory behind `bytes`: it may go
   * back to the pool once the bytes are out.
   */
  drain(send: (bytes: Buffer, chunk: Buffer) => void): void {
    const full = this.#full;
    const chunk = this.#chunk;
    const length = this.#length;
    this.#full = [];
    this.#fullBytes = 0;
    this.#chunk = nothing;
    this.#length = 0;
    for (const item of full) send(item.chunk.subarray(0, item.length), item.chunk);
    if (length > 0) send(chunk.subarray(0, length), chunk);
  }

  #grow(sizeBytes: number): void {
    const old = this.#chunk;
    const length = this.#length;
    if (length === 0) {
      if (old === nothing && this.#full.length === 0) this.#onDirty();
      this.#chunk = this.#pool.acquire(sizeBytes);
      return;
    }
    if (length + sizeBytes <= chunkBytesMax) {
      // One chunk is one write: what has begun small moves into a larger one.
      this.#chunk = this.#pool.acquire(length + sizeBytes);
      old.copy(this.#chunk, 0, 0, length);
      this.#pool.release(old);
      return;
    }
    this.#full.push({ chunk: old, length });
    this.#fullBytes += length;
    this.#chunk = this.#pool.acquire(Math.max(sizeBytes, chunkBytesMax));
    this.#length = 0;
  }
}
