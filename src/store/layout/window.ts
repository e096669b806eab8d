// Windows of a slab (docs/formats/block.md): spans of commit time that no block lies on both sides of,
// each with the list of its blocks. A reader that wants most streams of a slab goes from window to
// window and finds all blocks in one sequential scan, where it would seek once for each stream.
//
// Each checkpoint ends a window, since it seals all open blocks. Where checkpoints are not known any
// more, windows are found from the blocks (`windowsOf`): any time will do that no block spans.

import { ByteReader, ByteWriter } from "../../base/index.ts";
import { checkRowVersion, readRow, rowCorrupt } from "../rows.ts";
import { type BlockRow, metAtUs } from "./index-row.ts";

/** Its rows have no summaries: who goes by windows wants whole streams. */
export type Window = {
  /** Last time of its last block. */
  readonly untilUs: number;
  /** Those of one stream ascend by time. */
  readonly rows: readonly BlockRow[];
};

/** Blocks listed in one row: about 12 bytes each. */
export const windowPartBlocks = 1_000;
/** Blocks above which a window that is made from blocks ends at the next chance. */
export const windowBlocksMin = 4_096;

const rowVersion = 1;
const keyBytes = 10;
const noSummary = new Uint8Array(0);

export function plainRow(row: BlockRow): BlockRow {
  return { ...row, summary: noSummary };
}

/**
 * Cuts blocks into windows of `blocksMin` blocks or more each; `rows` is sorted in place. The blocks
 * of all streams, those that are lost among them.
 */
export function* windowsOf(rows: BlockRow[], blocksMin = windowBlocksMin): Generator<Window> {
  rows.sort((a, b) => metAtUs(a) - metAtUs(b));
  let begin = 0;
  let untilUs = 0;
  for (const [at, row] of rows.entries()) {
    if (metAtUs(row) > untilUs && at - begin >= blocksMin) {
      yield { untilUs, rows: rows.slice(begin, at) };
      begin = at;
    }
    untilUs = Math.max(untilUs, row.lastTimeUs);
  }
  if (begin < rows.length) yield { untilUs, rows: rows.slice(begin) };
}

/** `until u64 | part u16`; the slab puts its own prefix in front. */
export function encodeWindowKey(untilUs: number, part: number): Buffer {
  return new ByteWriter(keyBytes).u64(untilUs).u16(part).finish();
}

/** @throws STORE_ROW_CORRUPT. */
export function decodeWindowKey(key: Uint8Array): { untilUs: number; part: number } {
  return readRow("window", () => {
    if (key.length !== keyBytes) throw rowCorrupt("window", `key of ${key.length} bytes`);
    const reader = new ByteReader(key);
    return { untilUs: reader.u64(), part: reader.u16() };
  });
}

/** The rows of a window, by part. */
export function encodeWindow({ untilUs, rows }: Window): Array<[key: Buffer, value: Buffer]> {
  const parts: Array<[Buffer, Buffer]> = [];
  for (let at = 0; at < rows.length; at += windowPartBlocks) {
    const some = rows.slice(at, at + windowPartBlocks);
    const writer = new ByteWriter(16 * some.length).u8(rowVersion).varint(some.length);
    for (const { stream, firstTimeUs, lastTimeUs, count, sizeBytes } of some) {
      writer
        .varint(stream)
        .varint(untilUs - lastTimeUs)
        .varint(lastTimeUs - firstTimeUs);
      writer.varint(count).varint(sizeBytes);
    }
    parts.push([encodeWindowKey(untilUs, parts.length), writer.finish()]);
  }
  return parts;
}

/** @throws STORE_ROW_CORRUPT, STORE_VERSION_UNKNOWN. */
export function decodeWindowPart(untilUs: number, value: Uint8Array): BlockRow[] {
  return readRow("window", () => {
    const reader = new ByteReader(value);
    checkRowVersion("window", reader.u8(), rowVersion);
    const rows: BlockRow[] = [];
    for (let left = reader.varint(); left > 0; left--) {
      const stream = reader.varint();
      const lastTimeUs = untilUs - reader.varint();
      const firstTimeUs = lastTimeUs - reader.varint();
      const amount = { count: reader.varint(), sizeBytes: reader.varint() };
      if (firstTimeUs < 0) throw rowCorrupt("window", "it begins before all times");
      rows.push({ stream, firstTimeUs, lastTimeUs, ...amount, summary: noSummary });
    }
    if (reader.remaining > 0) throw rowCorrupt("window", "bytes after its end");
    return rows;
  });
}
