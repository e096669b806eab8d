// Where the records of a log lie, read from its files by the format alone: what a fuzz test needs
// to know which records a damaged byte may cost.

import { decodeBlock, decodeSegmentHeader, seedOf } from "../../src/log/format.ts";
import { readFlushHeader, SegmentReader } from "../../src/log/reader.ts";
import type { MemoryDisk } from "./memory-disk.ts";

export type PlacedRecord = { readonly shard: number; readonly index: number };
export type PlacedBlock = {
  readonly from: number;
  readonly to: number;
  readonly records: readonly PlacedRecord[];
};
export type PlacedFlush = {
  readonly path: string;
  readonly from: number;
  readonly headerTo: number;
  readonly to: number;
  readonly blocks: readonly PlacedBlock[];
};

/** The flushes of all segments, in the order of their headers. */
export async function layoutOf(disk: MemoryDisk): Promise<PlacedFlush[]> {
  const found: Array<{ order: number; flushes: PlacedFlush[] }> = [];
  for (const [path, bytes] of disk.files) {
    const decoded = path.endsWith(".wal") ? decodeSegmentHeader(bytes.subarray(0, 512)) : undefined;
    if (decoded?.kind !== "valid") continue;
    const flushes = await flushesOf(disk, path, seedOf(decoded.header.id));
    found.push({ order: decoded.header.order, flushes });
  }
  found.sort((a, b) => a.order - b.order);
  return found.flatMap(({ flushes }) => flushes);
}

async function flushesOf(disk: MemoryDisk, path: string, seed: number): Promise<PlacedFlush[]> {
  const bytes = disk.files.get(path)!;
  const reader = new SegmentReader(await disk.open(path, "read"), bytes.length);
  const flushes: PlacedFlush[] = [];
  let from = 512;
  for (;;) {
    const header = await readFlushHeader(reader, from, bytes.length - 512, seed);
    if (header === undefined) return flushes;
    const blocks: PlacedBlock[] = [];
    let at = from + header.headerBytes;
    for (const block of header.blocks) {
      const records = decodeBlock(bytes.subarray(at, at + block.sizeBytes))!;
      blocks.push({ from: at, to: at + block.sizeBytes, records });
      at += block.sizeBytes;
    }
    flushes.push({ path, from, headerTo: from + header.headerBytes, to: at, blocks });
    from = at;
  }
}
