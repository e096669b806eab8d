// Mends a log slab of which one store or both have lost entries: what one says is brought back from
// the other, from the generation's row, and from what the log still has. What stays lost is counted
// and gets a row of its own, so that each reader that passes is told.
//
// Invariants: everything that is written here is found again by a second run, so that a crash on the
// way does no harm; a stream's blocks never overlap; up to `untilUs` the rows of a stream count as
// many TTVs as its generation says. Nothing above `untilUs` is touched: the log brings it back.
// It reads the whole slab, which is what a damaged one costs.

import { isCodedError } from "../../base/index.ts";
import type { Generation } from "../core/generations.ts";
import { type Lts, ltsSettingsDefault } from "../core/lts.ts";
import { loadLts, rebuildRecords } from "../core/lts-start.ts";
import type { LtsRecord } from "../core/lts-trie.ts";
import type { DurableKv } from "../durable-kv.ts";
import { decodeBlock } from "../layout/block.ts";
import {
  type BlockRow,
  type BlockWrite,
  decodeBlockKey,
  encodeBlockKey,
  encodeBlockRow,
  gapOf,
  metAtUs,
  writeBlock,
} from "../layout/index-row.ts";
import { OpenBlock } from "../layout/open-block.ts";
import { summarize } from "../layout/summary.ts";
import { plainRow, windowsOf } from "../layout/window.ts";
import type { Ttv } from "../types.ts";
import { hasWindows } from "./layouts.ts";
import { blockRowKey, topicRow } from "./rows.ts";
import { type LostStream, readTopics, type SlabPair, type VisitLogged } from "./slab-parts.ts";
import { replaceWindows, scanBlockRows, writeBlockRows } from "./slab-stores.ts";

export type MendTask = {
  readonly generation: Generation;
  readonly untilUs: number;
  readonly logged?: ((visit: VisitLogged) => Promise<void>) | undefined;
  /** Its topics may have holes. */
  readonly isIndexDamaged: boolean;
};

export type MendCounts = {
  /** Rows made anew from blocks. */
  rowsRebuilt: number;
  /** TTVs that the log still had. */
  ttvsFromLog: number;
  /** TTVs that are lost: readers are told. */
  ttvsLost: number;
  /** Topics were made anew from the generation's row. */
  topicsRebuilt: boolean;
};

type StreamRows = {
  /** By last time, ascending after `sorted`. */
  readonly rows: BlockRow[];
  /** Last times of the rows whose block is there. */
  readonly whole: Set<number>;
};

export async function mendSlab(
  pair: SlabPair,
  task: MendTask,
): Promise<{ readonly counts: MendCounts; readonly lost: readonly LostStream[] }> {
  const counts = { rowsRebuilt: 0, ttvsFromLog: 0, ttvsLost: 0, topicsRebuilt: false };
  const streams = new Map<number, StreamRows>();
  await readRows(pair.index, task.untilUs, streams);
  const rebuilt = await rowsFromBlocks(pair.blocks, task.untilUs, streams);
  await writeBlockRows(pair.index, rebuilt);
  counts.rowsRebuilt = rebuilt.length;
  const lts = await mendTopics(pair.index, task, counts);
  await restoreFromLog(pair, task, { streams, lts, counts });
  const gaps = lostRows(task, streams, counts);
  await writeBlockRows(pair.index, gaps);
  if (hasWindows(task.generation.layout)) await mendWindows(pair.index, task.untilUs);
  await pair.blocks.sync();
  await pair.index.sync();
  return { counts, lost: lostStreams(task, streams, gaps) };
}

/** What the windows said is not to be trusted, and new rows are in none. */
async function mendWindows(index: DurableKv, untilUs: number): Promise<void> {
  const rows: BlockRow[] = [];
  await scanBlockRows(index, (row) => {
    if (row.lastTimeUs <= untilUs) rows.push(plainRow(row));
  });
  await replaceWindows(index, windowsOf(rows));
}

function rowsOf(streams: Map<number, StreamRows>, stream: number): StreamRows {
  const known = streams.get(stream);
  if (known !== undefined) return known;
  const made: StreamRows = { rows: [], whole: new Set() };
  streams.set(stream, made);
  return made;
}

async function readRows(
  index: DurableKv,
  untilUs: number,
  streams: Map<number, StreamRows>,
): Promise<void> {
  await scanBlockRows(index, (row) => {
    if (row.lastTimeUs <= untilUs) rowsOf(streams, row.stream).rows.push(row);
  });
}

/**
 * Marks the blocks that are whole, and what has expired; resolves with the rows that those without one
 * should have.
 */
async function rowsFromBlocks(
  blocks: DurableKv,
  untilUs: number,
  streams: Map<number, StreamRows>,
): Promise<BlockRow[]> {
  const known = new Set<string>();
  for (const [stream, { rows }] of streams) {
    for (const row of rows) {
      known.add(`${stream}:${row.lastTimeUs}`);
      // Nothing of it is missing: that is how it was packed.
      if (gapOf(row) === "expired") rowsOf(streams, stream).whole.add(row.lastTimeUs);
    }
  }
  const rebuilt: BlockRow[] = [];
  await blocks.scan({ lte: encodeBlockKey(untilUs, 0xffff_ffff) }, (key, value) => {
    const row = rowOfBlock(key, value);
    if (row === undefined) return;
    const { rows, whole } = rowsOf(streams, row.stream);
    whole.add(row.lastTimeUs);
    if (known.has(`${row.stream}:${row.lastTimeUs}`)) return;
    rows.push(row);
    rebuilt.push(row);
  });
  for (const { rows } of streams.values()) sort(rows);
  return rebuilt;
}

function sort(rows: BlockRow[]): void {
  rows.sort((a, b) => a.lastTimeUs - b.lastTimeUs);
}

/** Undefined for a block that is damaged: its reader finds out, or nobody knows of it. */
function rowOfBlock(key: Buffer, value: Buffer): BlockRow | undefined {
  try {
    const { lastTimeUs, stream } = decodeBlockKey(key);
    const block = decodeBlock(value);
    if (block.timeUs(block.count - 1) !== lastTimeUs) return undefined;
    return {
      stream,
      firstTimeUs: block.timeUs(0),
      lastTimeUs,
      count: block.count,
      sizeBytes: value.length,
      summary: summarize(block),
    };
  } catch (error) {
    const isBad = isCodedError(error, "STORE_BLOCK_CORRUPT") || isCodedError(error, rowCorrupt);
    if (!isBad) throw error;
    return undefined;
  }
}

const rowCorrupt = "STORE_ROW_CORRUPT";

// -------------------------------------------------------------- topics

/** The trie of the slab; made anew from the streams of the generation where topics are missing. */
async function mendTopics(index: DurableKv, task: MendTask, counts: MendCounts): Promise<Lts> {
  const topics = await readTopics(index);
  const records = topics.map(({ record }) => record);
  const lts = loadWhole(records, task.generation);
  if (lts !== undefined) return lts;
  counts.topicsRebuilt = true;
  const rebuilt = rebuildRecords(task.generation.streams);
  await index.write((batch) => {
    for (const { record, timeUs } of topics) batch.delete(topicRow(record, timeUs).key);
    for (const record of rebuilt) {
      const { key, value } = topicRow(record, task.generation.fromUs);
      batch.put(key, value);
    }
  });
  return loadLts(ltsSettingsDefault, rebuilt);
}

function loadWhole(records: readonly LtsRecord[], generation: Generation): Lts | undefined {
  let lts: Lts;
  try {
    lts = loadLts(ltsSettingsDefault, records);
  } catch (error) {
    if (!isCodedError(error, "STORE_TOPICS_CORRUPT")) throw error;
    return undefined;
  }
  const known = new Set(lts.streams);
  for (const [stream, { structure }] of generation.streams) {
    if (!known.has(stream)) return undefined;
    if (lts.structureOf(stream).join("/") !== structure.join("/")) return undefined;
  }
  return lts;
}

// -------------------------------------------------------------- from the log

type Restoring = {
  readonly streams: Map<number, StreamRows>;
  readonly lts: Lts;
  readonly counts: MendCounts;
};

async function restoreFromLog(
  pair: SlabPair,
  task: MendTask,
  { streams, lts, counts }: Restoring,
): Promise<void> {
  if (task.logged === undefined || countLost(task, streams) === 0) return;
  const missing = new Map<number, Ttv[]>();
  await task.logged((stream, ttv) => {
    const isOurs = ttv.timeUs >= task.generation.fromUs && ttv.timeUs <= task.untilUs;
    if (!isOurs || isThere(streams.get(stream), ttv.timeUs)) return;
    // A stream that its topic does not lead to was learned anew: it cannot be placed there.
    if (lts.lookup(ttv.topic)?.stream !== stream) return;
    const list = missing.get(stream) ?? [];
    list.push({ ...ttv, frame: Buffer.from(ttv.frame) });
    missing.set(stream, list);
  });
  for (const [stream, ttvs] of missing) {
    const known = rowsOf(streams, stream);
    const writes = runsBetween(ttvs, known).flatMap((run) => blocksOf(stream, run, lts));
    await writeRestored(pair, stream, { writes, known });
    counts.ttvsFromLog += ttvs.length;
  }
}

/** The first row that ends at or after a time. */
function rowAt(rows: readonly BlockRow[], timeUs: number): BlockRow | undefined {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((rows[middle] as BlockRow).lastTimeUs >= timeUs) high = middle;
    else low = middle + 1;
  }
  return rows[low];
}

function isThere(known: StreamRows | undefined, timeUs: number): boolean {
  const row = rowAt(known?.rows ?? [], timeUs);
  return (
    row !== undefined && row.firstTimeUs <= timeUs && known?.whole.has(row.lastTimeUs) === true
  );
}

/** TTVs between which no row, whole or lost, begins or ends. */
function runsBetween(ttvs: readonly Ttv[], { rows }: StreamRows): Ttv[][] {
  const runs: Ttv[][] = [];
  let before: number | string | undefined;
  for (const ttv of ttvs) {
    const row = rowAt(rows, ttv.timeUs);
    const isWithin = row !== undefined && row.firstTimeUs <= ttv.timeUs;
    const place = isWithin ? row.firstTimeUs : `before ${row?.firstTimeUs}`;
    if (place === before) runs.at(-1)?.push(ttv);
    else runs.push([ttv]);
    before = place;
  }
  return runs;
}

function blocksOf(stream: number, ttvs: readonly Ttv[], lts: Lts): BlockWrite[] {
  const writes: BlockWrite[] = [];
  let block = new OpenBlock();
  for (const ttv of ttvs) {
    if (!block.fits(ttv.frame.length)) {
      writes.push(writeBlock(stream, block));
      block = new OpenBlock();
    }
    block.append(ttv, lts.lookup(ttv.topic)?.varying ?? []);
  }
  writes.push(writeBlock(stream, block));
  return writes;
}

/** The rows of lost blocks give way to those of what was restored; the rest is lost as before. */
async function writeRestored(
  pair: SlabPair,
  stream: number,
  { writes, known }: { readonly writes: readonly BlockWrite[]; readonly known: StreamRows },
): Promise<void> {
  const replaced = known.rows.filter(
    (row) => !known.whole.has(row.lastTimeUs) && writes.some((write) => overlaps(write.row, row)),
  );
  await pair.blocks.write((batch) => {
    for (const { row, value } of writes) batch.put(encodeBlockKey(row.lastTimeUs, stream), value);
  });
  await pair.index.write((batch) => {
    for (const row of replaced) batch.delete(blockRowKey(stream, row.lastTimeUs));
    for (const { row } of writes) {
      batch.put(blockRowKey(stream, row.lastTimeUs), encodeBlockRow(row));
    }
  });
  const kept = known.rows.filter((row) => !replaced.includes(row));
  known.rows.splice(0, known.rows.length, ...kept, ...writes.map(({ row }) => row));
  sort(known.rows);
  for (const { row } of writes) known.whole.add(row.lastTimeUs);
}

function overlaps(one: BlockRow, other: BlockRow): boolean {
  return one.firstTimeUs <= other.lastTimeUs && other.firstTimeUs <= one.lastTimeUs;
}

// -------------------------------------------------------------- what is lost

function countLost({ generation }: MendTask, streams: Map<number, StreamRows>): number {
  let lost = 0;
  for (const [stream, { ttvs }] of generation.streams) {
    const known = streams.get(stream);
    const there = known?.rows.filter(({ lastTimeUs }) => known.whole.has(lastTimeUs)) ?? [];
    lost += Math.max(0, ttvs - sum(there));
  }
  return lost;
}

/** One for each stream whose rows count less than its generation says. Counts all that is lost. */
function lostRows(
  task: MendTask,
  streams: Map<number, StreamRows>,
  counts: MendCounts,
): BlockRow[] {
  counts.ttvsLost = countLost(task, streams);
  const found: BlockRow[] = [];
  for (const [stream, { ttvs }] of task.generation.streams) {
    const rows = streams.get(stream)?.rows ?? [];
    const count = ttvs - sum(rows);
    if (count <= 0) continue;
    const place = freePlace(rows, task);
    found.push({ stream, ...place, count, sizeBytes: 0, summary: new Uint8Array(0) });
  }
  return found;
}

/** Gaps that an earlier run has left are among them: who was to hear of them may not have heard. */
function lostStreams(
  { generation }: MendTask,
  streams: Map<number, StreamRows>,
  gaps: readonly BlockRow[],
): LostStream[] {
  const found: LostStream[] = [];
  for (const [stream, { structure, dollar }] of generation.streams) {
    const rows = [...(streams.get(stream)?.rows ?? []), ...gaps];
    let untilUs = 0;
    for (const row of rows) {
      if (row.stream !== stream || gapOf(row) !== "damaged") continue;
      untilUs = Math.max(untilUs, row.lastTimeUs);
    }
    if (untilUs > 0) found.push({ structure, dollar, untilUs });
  }
  return found;
}

/**
 * From the begin of the generation, since which of its TTVs are lost is not known; to as late as
 * possible, so that every reader that has not passed all of the stream is told.
 */
function freePlace(
  rows: readonly BlockRow[],
  { untilUs, generation }: MendTask,
): { firstTimeUs: number; lastTimeUs: number } {
  let lastTimeUs = untilUs;
  for (let at = rows.length - 1; at >= 0; at--) {
    const row = rows[at] as BlockRow;
    if (row.lastTimeUs < lastTimeUs) break;
    lastTimeUs = metAtUs(row) - 1;
  }
  return { firstTimeUs: Math.min(generation.fromUs, lastTimeUs), lastTimeUs };
}

function sum(rows: readonly BlockRow[]): number {
  return rows.reduce((total, { count }) => total + count, 0);
}
