// Bytes of the log (docs/formats/log.md): segment header, flush header, record.
//
// Invariants: every checksum is CRC-32 seeded with the random id of the segment's use, so bytes of
// an earlier use or a payload that looks like a flush cannot pass; a decoder never throws on bad
// bytes, it answers undefined (a known header of a later format version is refused with a code).
// Where flushes lie in a segment, and what a bad one means, is left to reader.ts and recovery.ts.

import { crc32 } from "../base/index.ts";
import type { LogRecord } from "./types.ts";

const UINT32 = 0x1_0000_0000;

export const formatVersion = 1;
/** One sector: the header is written twice, in the first and the last sector of the file. */
export const segmentHeaderBytes = 512;
export const idBytes = 8;
export const segmentMagic = Buffer.from("FLAGWAL\n", "latin1");
export const backlogMagic = Buffer.from("FLAGBKL\n", "latin1");
/** Not text and not zero, so that it is rare in payloads and absent from zero-filled space. */
export const flushMagic = Buffer.from([0xf5, 0x1a, 0x67, 0xe1]);

export const flushFixedBytes = 36;
export const flushShardBytes = 28;
export const flushBlockBytes = 8;
export const recordHeaderBytes = 32;

export type SegmentHeader = {
  /** Random, new at each use of the file. */
  readonly id: Buffer;
  /** Place of this use among all uses; grows by one. */
  readonly order: number;
  /** Number of the first flush in it. All flushes below were synced when this was written. */
  readonly firstFlush: number;
  /** Size of the file. */
  readonly sizeBytes: number;
};

/** The consecutive records `firstIndex..lastIndex` of one shard in one flush. */
export type ShardSpan = {
  readonly shard: number;
  readonly firstIndex: number;
  lastIndex: number;
  /** Term of the last record; terms of one shard never fall. */
  lastTerm: number;
};

/** Whole records, checked by one CRC: the unit that one damaged spot costs. */
export type Block = { readonly sizeBytes: number; readonly crc: number };

export type FlushHeader = {
  readonly number: number;
  readonly syncedThrough: number;
  /** Header and body. */
  readonly sizeBytes: number;
  readonly headerBytes: number;
  readonly spans: readonly ShardSpan[];
  readonly blocks: readonly Block[];
};

export type DecodedSegmentHeader =
  | { readonly kind: "valid"; readonly header: SegmentHeader }
  | { readonly kind: "newer"; readonly version: number }
  | { readonly kind: "bad" };

/** Start value of every CRC in a segment use. */
export function seedOf(id: Uint8Array): number {
  return crc32(id);
}

export function encodeSegmentHeader(header: SegmentHeader, magic: Buffer = segmentMagic): Buffer {
  const bytes = Buffer.alloc(segmentHeaderBytes);
  magic.copy(bytes, 0);
  bytes.writeUInt16BE(formatVersion, 8);
  header.id.copy(bytes, 10);
  writeU64(bytes, header.order, 18);
  writeU64(bytes, header.firstFlush, 26);
  writeU64(bytes, header.sizeBytes, 34);
  const crcAt = segmentHeaderBytes - 4;
  bytes.writeUInt32BE(crc32(bytes.subarray(0, crcAt), seedOf(header.id)), crcAt);
  return bytes;
}

export function decodeSegmentHeader(
  bytes: Buffer,
  magic: Buffer = segmentMagic,
): DecodedSegmentHeader {
  if (bytes.length < segmentHeaderBytes || !bytes.subarray(0, 8).equals(magic)) {
    return { kind: "bad" };
  }
  const id = Buffer.from(bytes.subarray(10, 10 + idBytes));
  const crcAt = segmentHeaderBytes - 4;
  const crc = crc32(bytes.subarray(0, crcAt), seedOf(id));
  if (crc !== bytes.readUInt32BE(crcAt)) return { kind: "bad" };
  const version = bytes.readUInt16BE(8);
  if (version > formatVersion) return { kind: "newer", version };
  const header = {
    id,
    order: readSafeU64(bytes, 18),
    firstFlush: readSafeU64(bytes, 26),
    sizeBytes: readSafeU64(bytes, 34),
  };
  return { kind: "valid", header };
}

export function flushHeaderBytes(shardCount: number, blockCount: number): number {
  return flushFixedBytes + shardCount * flushShardBytes + blockCount * flushBlockBytes;
}

/** What the first bytes at a place say about a flush there, before any checksum is looked at. */
export type FlushClaim = {
  readonly number: number;
  readonly sizeBytes: number;
  readonly headerBytes: number;
  readonly shardCount: number;
  readonly blockCount: number;
};

/** @returns undefined when no flush header can start here. */
export function peekFlush(bytes: Buffer): FlushClaim | undefined {
  if (bytes.length < flushFixedBytes) return undefined;
  if (bytes.readUInt32BE(0) !== flushMagicU32) return undefined;
  const number = readSafeU64(bytes, 8);
  const sizeBytes = bytes.readUInt32BE(24);
  const shardCount = bytes.readUInt32BE(28);
  const blockCount = bytes.readUInt32BE(32);
  const headerBytes = flushHeaderBytes(shardCount, blockCount);
  if (!(number >= 1) || headerBytes > sizeBytes) return undefined;
  return { number, sizeBytes, headerBytes, shardCount, blockCount };
}

const flushMagicU32 = flushMagic.readUInt32BE(0);

/** `into` starts at the header; the CRCs of the blocks are those of the body behind it. */
export function writeFlushHeader(into: Buffer, header: FlushHeader, seed: number): void {
  into.writeUInt32BE(flushMagicU32, 0);
  writeU64(into, header.number, 8);
  writeU64(into, header.syncedThrough, 16);
  into.writeUInt32BE(header.sizeBytes, 24);
  into.writeUInt32BE(header.spans.length, 28);
  into.writeUInt32BE(header.blocks.length, 32);
  let at = flushFixedBytes;
  for (const span of header.spans) {
    into.writeUInt32BE(span.shard, at);
    writeU64(into, span.firstIndex, at + 4);
    writeU64(into, span.lastIndex, at + 12);
    writeU64(into, span.lastTerm, at + 20);
    at += flushShardBytes;
  }
  for (const block of header.blocks) {
    into.writeUInt32BE(block.sizeBytes, at);
    into.writeUInt32BE(block.crc, at + 4);
    at += flushBlockBytes;
  }
  into.writeUInt32BE(crc32(into.subarray(8, at), seed), 4);
}

/** `bytes` holds at least the whole header. */
export function decodeFlushHeader(
  bytes: Buffer,
  claim: FlushClaim,
  seed: number,
): FlushHeader | undefined {
  if (bytes.length < claim.headerBytes) return undefined;
  const crc = crc32(bytes.subarray(8, claim.headerBytes), seed);
  if (crc !== bytes.readUInt32BE(4)) return undefined;
  const spans: ShardSpan[] = [];
  const blocks: Block[] = [];
  let at = flushFixedBytes;
  for (let count = 0; count < claim.shardCount; count++) {
    spans.push({
      shard: bytes.readUInt32BE(at),
      firstIndex: readSafeU64(bytes, at + 4),
      lastIndex: readSafeU64(bytes, at + 12),
      lastTerm: readSafeU64(bytes, at + 20),
    });
    at += flushShardBytes;
  }
  let bodyBytes = 0;
  for (let count = 0; count < claim.blockCount; count++) {
    const sizeBytes = bytes.readUInt32BE(at);
    blocks.push({ sizeBytes, crc: bytes.readUInt32BE(at + 4) });
    bodyBytes += sizeBytes;
    at += flushBlockBytes;
  }
  if (at + bodyBytes !== claim.sizeBytes) return undefined;
  return {
    number: claim.number,
    syncedThrough: readSafeU64(bytes, 16),
    sizeBytes: claim.sizeBytes,
    headerBytes: claim.headerBytes,
    spans,
    blocks,
  };
}

export function recordBytes(record: LogRecord): number {
  return recordHeaderBytes + record.payload.length;
}

/** @returns the place behind the record. */
export function writeRecord(into: Buffer, at: number, record: LogRecord): number {
  const payload = record.payload;
  into.writeUInt32BE(payload.length, at);
  into.writeUInt32BE(record.shard, at + 4);
  into.writeUInt32BE(record.epoch, at + 8);
  writeU64(into, record.index, at + 12);
  writeU64(into, record.term, at + 20);
  into[at + 28] = record.kind;
  into[at + 29] = 0;
  into.writeUInt16BE(record.version, at + 30);
  into.set(payload, at + recordHeaderBytes);
  return at + recordHeaderBytes + payload.length;
}

/**
 * Records of a block whose CRC was right, all or those of one shard; payloads are views.
 * @returns undefined when it is malformed.
 */
export function decodeBlock(bytes: Buffer, shard?: number): LogRecord[] | undefined {
  const records: LogRecord[] = [];
  let at = 0;
  while (at < bytes.length) {
    if (bytes.length - at < recordHeaderBytes) return undefined;
    const end = at + recordHeaderBytes + bytes.readUInt32BE(at);
    if (end > bytes.length) return undefined;
    if (shard === undefined || bytes.readUInt32BE(at + 4) === shard) {
      records.push(decodeRecord(bytes, at, end));
    }
    at = end;
  }
  return records;
}

function decodeRecord(bytes: Buffer, at: number, end: number): LogRecord {
  return {
    shard: bytes.readUInt32BE(at + 4),
    epoch: bytes.readUInt32BE(at + 8),
    index: readSafeU64(bytes, at + 12),
    term: readSafeU64(bytes, at + 20),
    kind: bytes[at + 28] as number,
    version: bytes.readUInt16BE(at + 30),
    payload: bytes.subarray(at + recordHeaderBytes, end),
  };
}

function writeU64(into: Buffer, value: number, at: number): void {
  into.writeUInt32BE(Math.floor(value / UINT32), at);
  into.writeUInt32BE(value % UINT32, at + 4);
}

/** NaN when it does not fit 53 bits: compares false with everything. */
function readSafeU64(bytes: Buffer, at: number): number {
  const value = bytes.readUInt32BE(at) * UINT32 + bytes.readUInt32BE(at + 4);
  return Number.isSafeInteger(value) ? value : Number.NaN;
}
