// Keys and rows around a block: its key in `blocks`, and the row of `index` that tells what is in it
// without reading it (docs/formats/block.md).
//
// `blocks` is keyed by time first, so that it is only ever appended to; `index` by stream first, so
// that one seek finds a stream's next block after a position.

import { ByteReader, ByteWriter } from "../../base/index.ts";
import type { MissingReason } from "../core/missing.ts";
import { checkRowVersion, readRow, rowCorrupt } from "../rows.ts";
import { encodeBlock } from "./block.ts";
import { summarize } from "./summary.ts";
import type { TtvBatch } from "./ttv-view.ts";

export type BlockRow = {
  readonly stream: number;
  readonly firstTimeUs: number;
  readonly lastTimeUs: number;
  readonly count: number;
  /** Size of the block's value, or one of `gapSizes`. */
  readonly sizeBytes: number;
  readonly summary: Uint8Array;
};

/** Sizes of rows that have no block: why the TTVs that they count are gone. */
export const gapSizes: Readonly<Record<MissingReason, number>> = { damaged: 0, expired: 1 };

/** Size of what stands, in memory only, in place of rows that cannot be read now. */
export const unreadableSize = -1;

/** Undefined for a row with a block. */
export function gapOf({ sizeBytes }: BlockRow): MissingReason | undefined {
  if (sizeBytes === gapSizes.damaged || sizeBytes === unreadableSize) return "damaged";
  return sizeBytes === gapSizes.expired ? "expired" : undefined;
}

/**
 * From where on a reader meets it. What is gone is passed at its end, wherever it lay: who stops on
 * the way there is told once all the same. What cannot be read now may be mended by then, for those
 * who have not passed it: the others are told at its begin.
 */
export function metAtUs(row: BlockRow): number {
  const isPassedAtEnd = gapOf(row) !== undefined && row.sizeBytes !== unreadableSize;
  return isPassedAtEnd ? row.lastTimeUs : row.firstTimeUs;
}

/** A sealed block ready to be written: its value, and the row that points to it. */
export type BlockWrite = { readonly row: BlockRow; readonly value: Buffer };

const rowVersion = 1;
const blockKeyBytes = 12;

export function writeBlock(stream: number, batch: TtvBatch): BlockWrite {
  const value = encodeBlock(batch);
  const row: BlockRow = {
    stream,
    firstTimeUs: batch.timeUs(0),
    lastTimeUs: batch.timeUs(batch.count - 1),
    count: batch.count,
    sizeBytes: value.length,
    summary: summarize(batch),
  };
  return { row, value };
}

/** `lastTime u64 | stream u32`. */
export function encodeBlockKey(lastTimeUs: number, stream: number): Buffer {
  return new ByteWriter(blockKeyBytes).u64(lastTimeUs).u32(stream).finish();
}

/** @throws STORE_ROW_CORRUPT. */
export function decodeBlockKey(key: Uint8Array): { lastTimeUs: number; stream: number } {
  return readRow("block", () => {
    if (key.length !== blockKeyBytes) throw corrupt(`key of ${key.length} bytes`);
    const reader = new ByteReader(key);
    return { lastTimeUs: reader.u64(), stream: reader.u32() };
  });
}

/** `stream u32 | lastTime u64`; the slab puts its own prefix in front. */
export function encodeBlockRowKey(stream: number, lastTimeUs: number): Buffer {
  return new ByteWriter(blockKeyBytes).u32(stream).u64(lastTimeUs).finish();
}

export function encodeBlockRow(row: BlockRow): Buffer {
  const writer = new ByteWriter(32 + row.summary.length).u8(rowVersion).u64(row.firstTimeUs);
  return writer.varint(row.count).varint(row.sizeBytes).raw(row.summary).finish();
}

/** @throws STORE_ROW_CORRUPT, STORE_VERSION_UNKNOWN. */
export function decodeBlockRow(key: Uint8Array, value: Uint8Array): BlockRow {
  return readRow("block", () => {
    if (key.length !== blockKeyBytes) throw corrupt(`key of ${key.length} bytes`);
    const keyReader = new ByteReader(key);
    const stream = keyReader.u32();
    const lastTimeUs = keyReader.u64();
    const reader = new ByteReader(value);
    checkRowVersion("block", reader.u8(), rowVersion);
    const firstTimeUs = reader.u64();
    if (firstTimeUs > lastTimeUs) throw corrupt("it ends before it begins");
    const count = reader.varint();
    const sizeBytes = reader.varint();
    if (count === 0) throw corrupt("no TTVs");
    return {
      stream,
      firstTimeUs,
      lastTimeUs,
      count,
      sizeBytes,
      summary: reader.raw(reader.remaining),
    };
  });
}

function corrupt(reason: string): Error {
  return rowCorrupt("block", reason);
}
