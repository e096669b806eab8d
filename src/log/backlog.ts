// Backlog file: the unreleased records of one shard, copied out of the log so that a shard that
// cannot checkpoint no longer keeps its segments.
//
// Invariants: the same flushes as in a segment, numbered from 1 and seeded with the file's own id,
// behind one header sector; an empty flush ends it, so that a shorter file is noticed; the file
// appears under its name only when it is complete and synced. Who keeps and removes it is left to
// the owner of the shard.

import { type Disk, parentDir, type Random, syncFully, writeFully } from "../base/index.ts";
import { logErrors } from "./errors.ts";
import {
  backlogMagic,
  decodeBlock,
  decodeSegmentHeader,
  encodeSegmentHeader,
  formatVersion,
  idBytes,
  seedOf,
  segmentHeaderBytes,
} from "./format.ts";
import { type FoundFlush, readBlocks, readFlushHeader, SegmentReader } from "./reader.ts";
import type { LogRange, LogRecord, VisitRecord } from "./types.ts";
import { FlushEncoder, type GroupCaps, RecordGroup } from "./writer.ts";

export type BacklogSource = (visit: VisitRecord) => Promise<void>;

/** Writes what `source` visits. @returns the range written, undefined when it was nothing. */
export async function writeBacklog(
  components: { readonly disk: Disk; readonly random: Random },
  path: string,
  caps: GroupCaps,
  source: BacklogSource,
): Promise<LogRange | undefined> {
  const { disk, random } = components;
  const temporary = `${path}.new`;
  await disk.remove(temporary);
  const file = await disk.open(temporary, "create");
  const id = random.bytes(idBytes);
  const group = new RecordGroup(caps);
  const encoder = new FlushEncoder(caps.bytesMax);
  let position = segmentHeaderBytes;
  let number = 0;
  let range: LogRange | undefined;
  const flush = async (): Promise<void> => {
    number++;
    const bytes = encoder.encode(group, number, number - 1, seedOf(id));
    await writeFully(file, bytes, position);
    position += bytes.length;
    group.clear();
  };
  try {
    await source(async (record) => {
      const kept: LogRecord = { ...record, payload: Uint8Array.from(record.payload) };
      if (!group.tryAdd(kept)) {
        await flush();
        group.tryAdd(kept);
      }
      range = { firstIndex: range?.firstIndex ?? record.index, lastIndex: record.index };
    });
    if (group.records.length > 0) await flush();
    await flush();
    const header = encodeSegmentHeader(
      { id, order: 1, firstFlush: 1, sizeBytes: position },
      backlogMagic,
    );
    await writeFully(file, header, 0);
    await syncFully(file);
  } finally {
    await file.close();
  }
  await disk.rename(temporary, path);
  await disk.syncDir(parentDir(path));
  return range;
}

/**
 * Visits the records of a backlog file in order; payloads are views valid during the visit.
 * @throws LOG_BACKLOG_DAMAGED behind the last good record; LOG_VERSION_UNKNOWN.
 */
export async function readBacklog(disk: Disk, path: string, visit: VisitRecord): Promise<void> {
  const file = await disk.open(path, "read");
  const reader = new SegmentReader(file, await file.sizeBytes());
  try {
    const { seed, end } = await readHeader(reader);
    let position = segmentHeaderBytes;
    for (let number = 1; ; number++) {
      const header = await readFlushHeader(reader, position, end, seed);
      if (header?.number !== number) throw damaged(reader, position, "a flush is missing");
      if (header.blocks.length === 0) return;
      await visitFlush(reader, { position, header }, seed, visit);
      position += header.sizeBytes;
    }
  } finally {
    await reader.close();
  }
}

async function readHeader(reader: SegmentReader): Promise<{ seed: number; end: number }> {
  const decoded = decodeSegmentHeader(await reader.view(0, segmentHeaderBytes), backlogMagic);
  if (decoded.kind === "newer") {
    const { version } = decoded;
    throw logErrors.versionUnknown({ path: reader.path, version, versionMax: formatVersion });
  }
  if (decoded.kind === "bad") throw damaged(reader, 0, "the header fails its checksum");
  return { seed: seedOf(decoded.header.id), end: decoded.header.sizeBytes };
}

async function visitFlush(
  reader: SegmentReader,
  flush: FoundFlush,
  seed: number,
  visit: VisitRecord,
): Promise<void> {
  for await (const { bytes, offset } of readBlocks(reader, flush, seed)) {
    const records = bytes === undefined ? undefined : decodeBlock(bytes);
    if (records === undefined) throw damaged(reader, offset, "a block fails its checksum");
    for (const record of records) await visit(record);
  }
}

function damaged(reader: SegmentReader, offset: number, reason: string): Error {
  return logErrors.backlogDamaged({ path: reader.path, offset, reason });
}
