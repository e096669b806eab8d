// Groups of records and their bytes: collects records up to the caps of one flush and encodes them
// into one contiguous buffer, for one write.
//
// Invariants: the records of one shard in one group have consecutive indexes, so a flush header
// tells exactly what is in it; a block holds whole records; a group admits one record whatever its
// size. When a group is written, and where, is left to group-commit.ts.

import { crc32 } from "../base/index.ts";
import {
  type Block,
  flushBlockBytes,
  flushFixedBytes,
  flushHeaderBytes,
  flushShardBytes,
  recordBytes,
  type ShardSpan,
  writeFlushHeader,
  writeRecord,
} from "./format.ts";
import type { LogRecord } from "./types.ts";

/** A block closes at this size: rot of one sector costs about this much, CRC calls stay few. */
const blockBytesTarget = 4096;

export type GroupCaps = { readonly bytesMax: number; readonly recordsMax: number };

/** Records of one flush to be. Reused: `clear` starts the next one. */
export class RecordGroup {
  readonly records: LogRecord[] = [];
  readonly blockSizes: number[] = [];
  readonly spans = new Map<number, ShardSpan>();
  readonly #caps: GroupCaps;
  #bodyBytes = 0;
  #openBlockBytes = 0;
  #lastSpan: ShardSpan | undefined;

  constructor(caps: GroupCaps) {
    this.#caps = caps;
  }

  /** Bytes of the flush, header included. */
  get sizeBytes(): number {
    return this.#bodyBytes + flushHeaderBytes(this.spans.size, this.#blockCount);
  }

  /** False when the record must wait for the next group. */
  tryAdd(record: LogRecord): boolean {
    const size = recordBytes(record);
    const span = this.#spanOf(record.shard);
    if (span !== undefined && record.index !== span.lastIndex + 1) return false;
    if (this.records.length > 0) {
      if (this.records.length >= this.#caps.recordsMax) return false;
      // The header grows by one block and one shard at most.
      const growth = size + flushBlockBytes + flushShardBytes;
      if (this.sizeBytes + growth > this.#caps.bytesMax) return false;
    }
    this.#note(record, span);
    this.records.push(record);
    this.#bodyBytes += size;
    this.#openBlockBytes += size;
    if (this.#openBlockBytes >= blockBytesTarget) this.#closeBlock();
    return true;
  }

  /** Closes the last block; call before encoding. Adding may go on afterwards. */
  seal(): void {
    if (this.#openBlockBytes > 0) this.#closeBlock();
  }

  clear(): void {
    this.records.length = 0;
    this.blockSizes.length = 0;
    this.spans.clear();
    this.#bodyBytes = 0;
    this.#openBlockBytes = 0;
    this.#lastSpan = undefined;
  }

  get #blockCount(): number {
    return this.blockSizes.length + (this.#openBlockBytes > 0 ? 1 : 0);
  }

  #closeBlock(): void {
    this.blockSizes.push(this.#openBlockBytes);
    this.#openBlockBytes = 0;
  }

  // Runs of one shard are the common case: one comparison instead of a look-up.
  #spanOf(shard: number): ShardSpan | undefined {
    if (this.#lastSpan?.shard === shard) return this.#lastSpan;
    return this.spans.get(shard);
  }

  #note(record: LogRecord, span: ShardSpan | undefined): void {
    if (span !== undefined) {
      span.lastIndex = record.index;
      span.lastTerm = record.term;
      this.#lastSpan = span;
      return;
    }
    const { shard, index, term } = record;
    const created = { shard, firstIndex: index, lastIndex: index, lastTerm: term };
    this.spans.set(shard, created);
    this.#lastSpan = created;
  }
}

/** Encodes one flush at a time into memory of its own; the result is valid until the next one. */
export class FlushEncoder {
  readonly #arenaBytesMax: number;
  #arena: Buffer;

  /** A flush larger than `arenaBytesMax` (one large record) gets memory that is not kept. */
  constructor(arenaBytesMax: number) {
    this.#arenaBytesMax = arenaBytesMax;
    this.#arena = Buffer.allocUnsafe(Math.min(arenaBytesMax, 64 * 1024));
  }

  encode(group: RecordGroup, number: number, syncedThrough: number, seed: number): Buffer {
    group.seal();
    const sizeBytes = group.sizeBytes;
    const into = this.#memory(sizeBytes);
    const headerBytes = flushHeaderBytes(group.spans.size, group.blockSizes.length);
    let at = headerBytes;
    for (const record of group.records) at = writeRecord(into, at, record);
    const blocks: Block[] = [];
    at = headerBytes;
    for (const size of group.blockSizes) {
      blocks.push({ sizeBytes: size, crc: crc32(into.subarray(at, at + size), seed) });
      at += size;
    }
    const spans = [...group.spans.values()];
    const header = { number, syncedThrough, sizeBytes, headerBytes, spans, blocks };
    writeFlushHeader(into, header, seed);
    return into;
  }

  #memory(sizeBytes: number): Buffer {
    if (sizeBytes > this.#arenaBytesMax) return Buffer.allocUnsafe(sizeBytes);
    if (sizeBytes > this.#arena.length) {
      const grown = Math.min(this.#arenaBytesMax, Math.max(sizeBytes, this.#arena.length * 2));
      this.#arena = Buffer.allocUnsafe(grown);
    }
    return this.#arena.subarray(0, sizeBytes);
  }
}

/** Size of a flush without records. */
export const emptyFlushBytes = flushFixedBytes;
