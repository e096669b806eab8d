// Reads the records of one shard back, flush by flush.
//
// Invariants: visits what the index of the shards says is durable and not replaced, in order, each
// record once; memory is one window of the file; damage that was reported at open is passed over,
// bytes that went bad since are an error, never a wrong record.

import type { Disk } from "../base/index.ts";
import { logErrors } from "./errors.ts";
import { decodeBlock } from "./format.ts";
import { type FoundFlush, readBlocks, readFlushHeader, SegmentReader } from "./reader.ts";
import { dataEnd, type Segment } from "./segments.ts";
import type { Extent, ShardState } from "./shard-index.ts";
import type { VisitRecord } from "./types.ts";

/** What is asked of one segment. */
type Part = {
  readonly shard: number;
  readonly segment: Segment;
  readonly firstIndex: number;
  readonly lastIndex: number;
  readonly fromOffset: number;
  readonly toOffset: number;
};

export async function readRecords(
  disk: Disk,
  state: ShardState,
  fromIndex: number,
  visit: VisitRecord,
): Promise<void> {
  const parts = partsOf(state, fromIndex);
  // Keeps the files of the whole read, also those that are released meanwhile.
  for (const { segment } of parts) segment.readers++;
  try {
    for (const part of parts) await readPart(disk, part, visit);
  } finally {
    for (const { segment } of parts) segment.readers--;
  }
}

function partsOf(state: ShardState, fromIndex: number): Part[] {
  const parts: Part[] = [];
  const lowest = Math.max(fromIndex, state.releasedIndex + 1);
  for (const extent of state.extents) {
    if (extent.lastIndex < lowest) continue;
    const { segment, lastIndex, toOffset } = extent;
    const firstIndex = Math.max(extent.firstIndex, lowest);
    const fromOffset = startOffset(extent, firstIndex);
    parts.push({ shard: state.shard, segment, firstIndex, lastIndex, fromOffset, toOffset });
  }
  return parts;
}

function startOffset(extent: Extent, index: number): number {
  let offset = 0;
  for (const mark of extent.marks) {
    if (offset !== 0 && mark.firstIndex > index) break;
    offset = mark.offset;
  }
  return offset;
}

async function readPart(disk: Disk, part: Part, visit: VisitRecord): Promise<void> {
  const { segment } = part;
  const file = await disk.open(segment.path, "read");
  const reader = new SegmentReader(file, segment.sizeBytes);
  try {
    let position = part.fromOffset;
    while (position <= part.toOffset) {
      const hole = segment.holes.find(({ from, to }) => from <= position && position < to);
      if (hole !== undefined) {
        position = hole.to;
        continue;
      }
      const header = await readFlushHeader(reader, position, dataEnd(segment), segment.seed);
      if (header === undefined) {
        throw unreadable(segment, position, "a flush header fails its checksum");
      }
      const span = header.spans.find(({ shard }) => shard === part.shard);
      const isWanted =
        span !== undefined &&
        span.lastIndex >= part.firstIndex &&
        span.firstIndex <= part.lastIndex;
      if (isWanted) await readFlush(reader, { position, header }, part, visit);
      position += header.sizeBytes;
    }
  } finally {
    await reader.close();
  }
}

async function readFlush(
  reader: SegmentReader,
  flush: FoundFlush,
  part: Part,
  visit: VisitRecord,
): Promise<void> {
  const { segment } = part;
  for await (const { bytes, offset } of readBlocks(reader, flush, segment.seed)) {
    if (segment.badBlocks.has(offset)) continue;
    const records = bytes === undefined ? undefined : decodeBlock(bytes, part.shard);
    if (records === undefined) throw unreadable(segment, offset, "a block fails its checksum");
    for (const record of records) {
      if (record.index < part.firstIndex || record.index > part.lastIndex) continue;
      const visited = visit(record);
      if (visited !== undefined) await visited;
    }
  }
}

function unreadable(segment: Segment, offset: number, reason: string): Error {
  return logErrors.unreadable({ path: segment.path, offset, reason });
}
