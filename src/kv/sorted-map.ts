// A sorted map from bytes to bytes with free snapshots: chunks of up to 256 entries in an array.
//
// With n entries: get O(log n); put and delete O(log n) plus moving at most a chunk, and, for the
// first change after a snapshot, a copy of the chunk and of the array of chunks (n / 128 pointers);
// snapshot O(1); a step of a walk O(1). 100,000 keys cost 800 chunks.
// Invariants: no chunk is empty; keys ascend strictly within and over chunks; a chunk that a
// snapshot may see is never changed (its edition is older than the map's). Buffers handed in and
// out are shared, not copied: callers who let them go to others copy.

type Chunk = { readonly edition: number; readonly keys: Buffer[]; readonly values: Buffer[] };

const chunkEntriesMax = 256;

/** Where an entry is; `chunk === chunks.length` is the end. */
export type Place = { readonly chunk: number; readonly index: number };

/** The entries of one moment. */
export class SortedView {
  readonly #chunks: readonly Chunk[];

  constructor(chunks: readonly Chunk[]) {
    this.#chunks = chunks;
  }

  /** The first entry with a key at or above `key`, or the end. */
  atOrAfter(key: Uint8Array): Place {
    return placeOf(this.#chunks, key);
  }

  get first(): Place {
    return { chunk: 0, index: 0 };
  }

  get end(): Place {
    return { chunk: this.#chunks.length, index: 0 };
  }

  /** The entry at a place, or undefined at the end. */
  at(place: Place): readonly [key: Buffer, value: Buffer] | undefined {
    const chunk = this.#chunks[place.chunk];
    if (chunk === undefined) return undefined;
    return [chunk.keys[place.index] as Buffer, chunk.values[place.index] as Buffer];
  }

  after(place: Place): Place {
    const chunk = this.#chunks[place.chunk];
    if (chunk === undefined) return place;
    if (place.index + 1 < chunk.keys.length) return { chunk: place.chunk, index: place.index + 1 };
    return { chunk: place.chunk + 1, index: 0 };
  }

  /** The place before, or undefined at the first. */
  before(place: Place): Place | undefined {
    if (place.index > 0) return { chunk: place.chunk, index: place.index - 1 };
    const chunk = this.#chunks[place.chunk - 1];
    if (chunk === undefined) return undefined;
    return { chunk: place.chunk - 1, index: chunk.keys.length - 1 };
  }
}

export class SortedMap {
  #chunks: Chunk[] = [];
  #edition = 0;
  #isShared = false;
  #count = 0;

  get count(): number {
    return this.#count;
  }

  get(key: Uint8Array): Buffer | undefined {
    const place = placeOf(this.#chunks, key);
    const chunk = this.#chunks[place.chunk];
    if (chunk === undefined || Buffer.compare(chunk.keys[place.index] as Buffer, key) !== 0) {
      return undefined;
    }
    return chunk.values[place.index];
  }

  set(key: Buffer, value: Buffer): void {
    const found = placeOf(this.#chunks, key);
    const isNew = !this.#holds(found, key);
    // A key above all others goes to the last chunk, so that ascending keys fill chunks.
    const isEnd = found.chunk === this.#chunks.length && found.chunk > 0;
    const at = isEnd ? found.chunk - 1 : found.chunk;
    const chunk = this.#writable(at);
    const index = isEnd ? chunk.keys.length : found.index;
    chunk.keys.splice(index, isNew ? 0 : 1, key);
    chunk.values.splice(index, isNew ? 0 : 1, value);
    if (!isNew) return;
    this.#count++;
    if (chunk.keys.length > chunkEntriesMax) this.#split(at, isEnd);
  }

  delete(key: Uint8Array): void {
    const place = placeOf(this.#chunks, key);
    if (!this.#holds(place, key)) return;
    const chunk = this.#writable(place.chunk);
    chunk.keys.splice(place.index, 1);
    chunk.values.splice(place.index, 1);
    this.#count--;
    if (chunk.keys.length === 0) this.#chunks.splice(place.chunk, 1);
  }

  snapshot(): SortedView {
    this.#isShared = true;
    return new SortedView(this.#chunks);
  }

  #holds(place: Place, key: Uint8Array): boolean {
    const found = this.#chunks[place.chunk]?.keys[place.index];
    return found !== undefined && Buffer.compare(found, key) === 0;
  }

  #writable(at: number): Chunk {
    if (this.#isShared) {
      this.#chunks = [...this.#chunks];
      this.#edition++;
      this.#isShared = false;
    }
    const chunk = this.#chunks[at];
    if (chunk?.edition === this.#edition) return chunk;
    const fresh: Chunk = {
      edition: this.#edition,
      keys: chunk === undefined ? [] : [...chunk.keys],
      values: chunk === undefined ? [] : [...chunk.values],
    };
    this.#chunks[at] = fresh;
    return fresh;
  }

  #split(at: number, keepsFull: boolean): void {
    const chunk = this.#chunks[at] as Chunk;
    const middle = keepsFull ? chunkEntriesMax : chunkEntriesMax >>> 1;
    const upper: Chunk = {
      edition: this.#edition,
      keys: chunk.keys.splice(middle),
      values: chunk.values.splice(middle),
    };
    this.#chunks.splice(at + 1, 0, upper);
  }
}

function placeOf(chunks: readonly Chunk[], key: Uint8Array): Place {
  let low = 0;
  let high = chunks.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const keys = (chunks[middle] as Chunk).keys;
    if (Buffer.compare(keys[keys.length - 1] as Buffer, key) < 0) low = middle + 1;
    else high = middle;
  }
  const chunk = chunks[low];
  return { chunk: low, index: chunk === undefined ? 0 : indexOf(chunk.keys, key) };
}

function indexOf(keys: readonly Buffer[], key: Uint8Array): number {
  let low = 0;
  let high = keys.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (Buffer.compare(keys[middle] as Buffer, key) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
