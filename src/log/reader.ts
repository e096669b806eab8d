// Reads one segment file: a sliding window over it, the flush at a place, the next flush behind a
// damaged place, and the records of a flush block by block.
//
// Invariants: memory is bounded by the window and the largest flush; nothing is handed out whose
// seeded CRC was not right; a sector that the disk cannot read counts as zeros, so damage of the
// device is handled as damage of the bytes. What damage means is left to recovery.ts.

import { crc32, type DiskFile } from "../base/index.ts";
import {
  decodeFlushHeader,
  type FlushHeader,
  flushFixedBytes,
  flushMagic,
  peekFlush,
} from "./format.ts";

const windowBytes = 256 * 1024;
/** Step in which an unreadable area is narrowed down. */
const pageBytes = 4096;
const emptyBytes = Buffer.alloc(0);

export class SegmentReader {
  readonly path: string;
  readonly sizeBytes: number;
  readonly #file: DiskFile;
  #window: Buffer = emptyBytes;
  #start = 0;
  #end = 0;
  #unreadablePages = 0;

  constructor(file: DiskFile, sizeBytes: number) {
    this.#file = file;
    this.path = file.path;
    this.sizeBytes = sizeBytes;
  }

  /** Pages that the disk refused to read so far. */
  get unreadablePages(): number {
    return this.#unreadablePages;
  }

  /** Bytes at `position`, fewer only at the end of the file. Valid until the next call. */
  async view(position: number, length: number): Promise<Buffer> {
    const end = Math.min(position + length, this.sizeBytes);
    if (end <= position) return emptyBytes;
    if (position < this.#start || end > this.#end) await this.#load(position, end - position);
    const from = position - this.#start;
    return this.#window.subarray(from, Math.min(from + (end - position), this.#end - this.#start));
  }

  /** The same bytes, cheaper when they are in the window already: no promise. */
  cached(position: number, length: number): Buffer | undefined {
    const end = Math.min(position + length, this.sizeBytes);
    if (position < this.#start || end > this.#end || end < position) return undefined;
    return this.#window.subarray(position - this.#start, end - this.#start);
  }

  /** A copy of a few bytes, read alone: does not fill or move the window. */
  async peek(position: number, length: number): Promise<Buffer> {
    const size = Math.max(0, Math.min(length, this.sizeBytes - position));
    const bytes = Buffer.alloc(size);
    if (size === 0) return bytes;
    const count = await this.#fill(bytes, position);
    return bytes.subarray(0, count);
  }

  /** Gives the memory of the window back. */
  rest(): void {
    this.#window = emptyBytes;
    this.#start = 0;
    this.#end = 0;
  }

  close(): Promise<void> {
    this.rest();
    return this.#file.close();
  }

  async #load(position: number, need: number): Promise<void> {
    const size = Math.min(Math.max(need, windowBytes), this.sizeBytes - position);
    if (this.#window.length < size) this.#window = Buffer.allocUnsafe(size);
    // A window made for one large flush is given back with the next ordinary one.
    if (this.#window.length > windowBytes * 4 && size <= windowBytes) {
      this.#window = Buffer.allocUnsafe(size);
    }
    this.#start = position;
    this.#end = position;
    const target = this.#window.subarray(0, size);
    this.#end = position + (await this.#fill(target, position));
  }

  async #fill(target: Buffer, position: number): Promise<number> {
    try {
      return await this.#file.read(target, position);
    } catch {
      // The area holds a sector that the device cannot read: salvage what is around it. What stays
      // unreadable is counted.
      return this.#fillByPage(target, position);
    }
  }

  async #fillByPage(target: Buffer, position: number): Promise<number> {
    let next = 0;
    for (let at = 0; at < target.length; at = next) {
      // To the next page of the file: the device fails whole pages.
      next = Math.min(at + pageBytes - ((position + at) % pageBytes), target.length);
      const page = target.subarray(at, next);
      try {
        const count = await this.#file.read(page, position + at);
        if (count < page.length) return at + count;
      } catch {
        page.fill(0);
        this.#unreadablePages++;
      }
    }
    return target.length;
  }
}

/** The flush that starts exactly at `position` and ends at or before `end`. */
export async function readFlushHeader(
  reader: SegmentReader,
  position: number,
  end: number,
  seed: number,
): Promise<FlushHeader | undefined> {
  const fixed =
    reader.cached(position, flushFixedBytes) ?? (await reader.view(position, flushFixedBytes));
  const claim = peekFlush(fixed);
  if (claim === undefined || position + claim.sizeBytes > end) return undefined;
  const bytes =
    reader.cached(position, claim.headerBytes) ?? (await reader.view(position, claim.headerBytes));
  return decodeFlushHeader(bytes, claim, seed);
}

export type FoundFlush = { readonly position: number; readonly header: FlushHeader };

/** What a search accepts: numbers from `numberMin` up to but without `numberLimit`. */
export type FlushSearch = {
  readonly from: number;
  readonly end: number;
  readonly seed: number;
  readonly numberMin: number;
  readonly numberLimit: number;
};

/** The first flush at or behind `from` with a right CRC and a number in range. */
export async function findFlush(
  reader: SegmentReader,
  search: FlushSearch,
): Promise<FoundFlush | undefined> {
  let position = search.from;
  while (position + flushFixedBytes <= search.end) {
    const window = await reader.view(position, Math.min(windowBytes, search.end - position));
    if (window.length < flushFixedBytes) return undefined;
    const at = nextCandidate(window, search);
    if (at === undefined) {
      // What is too near to the window's end to be judged is seen again in the next one.
      position += window.length - (flushFixedBytes - 1);
      continue;
    }
    const place = position + at;
    const header = await readFlushHeader(reader, place, search.end, search.seed);
    if (header !== undefined) return { position: place, header };
    position = place + 1;
  }
  return undefined;
}

// Judges by the number before any checksum: leftovers of an earlier use all have lower numbers, so
// a recycled segment is searched without reading a header per leftover.
function nextCandidate(window: Buffer, search: FlushSearch): number | undefined {
  let at = window.indexOf(flushMagic);
  while (at >= 0 && at + flushFixedBytes <= window.length) {
    const claim = peekFlush(window.subarray(at, at + flushFixedBytes));
    if (claim !== undefined && isWanted(claim.number, search)) return at;
    at = window.indexOf(flushMagic, at + 1);
  }
  return undefined;
}

function isWanted(number: number, search: FlushSearch): boolean {
  return number >= search.numberMin && number < search.numberLimit;
}

export type BlockVisit = {
  /** Offset in the file. */
  readonly offset: number;
  readonly sizeBytes: number;
  /** Undefined when the block is damaged; else a view that lives until the next block. */
  readonly bytes: Buffer | undefined;
};

/** The blocks of a flush in order, each with its CRC checked. */
export async function* readBlocks(
  reader: SegmentReader,
  flush: FoundFlush,
  seed: number,
): AsyncGenerator<BlockVisit, void, void> {
  let offset = flush.position + flush.header.headerBytes;
  for (const { sizeBytes, crc } of flush.header.blocks) {
    const bytes = reader.cached(offset, sizeBytes) ?? (await reader.view(offset, sizeBytes));
    const isGood = bytes.length === sizeBytes && crc32(bytes, seed) === crc;
    yield { offset, sizeBytes, bytes: isGood ? bytes : undefined };
    offset += sizeBytes;
  }
}

/** Offset behind the last byte in [from, end) that is not zero; `from` when all are. */
export async function endOfContent(
  reader: SegmentReader,
  from: number,
  end: number,
): Promise<number> {
  let position = Math.min(end, reader.sizeBytes);
  while (position > from) {
    const start = Math.max(from, position - windowBytes);
    const bytes = await reader.view(start, position - start);
    for (let at = bytes.length - 1; at >= 0; at--) {
      if (bytes[at] !== 0) return start + at + 1;
    }
    position = start;
  }
  return from;
}
