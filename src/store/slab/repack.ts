// Packs a sealed slab anew into an empty one: small blocks of a stream become full ones, what has
// expired goes, and the windows grow with the blocks. The slab that is read does not change; which of
// the two counts is decided by a checkpoint (packs.ts).
//
// Invariants: streams, topics, times and frames stay as they are, so positions and references do;
// what is gone is counted by a row in its place, so each stream counts as many TTVs as before; no
// block lies on both sides of a window. Memory: the rows of one window, and one block of one stream.

import { assert } from "../../base/index.ts";
import { storeErrors } from "../errors.ts";
import {
  type BlockRow,
  type BlockWrite,
  gapOf,
  gapSizes,
  writeBlock,
} from "../layout/index-row.ts";
import { LostBatch } from "../layout/lost-batch.ts";
import { OpenBlock, openBlockSettingsDefault } from "../layout/open-block.ts";
import { ttvAt } from "../layout/ttv-view.ts";
import { plainRow, type Window } from "../layout/window.ts";
import type { Ttv } from "../types.ts";
import type { LogSlab } from "./log-slab.ts";
import type { SlabProofs } from "./slab-parts.ts";
import type { SlabStores } from "./slab-stores.ts";

export type RepackParts = {
  /** Wall time: what has expired by now goes. */
  readonly nowUs: number;
  /** Called with the bytes read since the last call: waits as it likes, or throws to end the work. */
  readonly pace: (sizeBytes: number) => Promise<void>;
  readonly phase: (name: string) => void;
};

export type RepackCounts = {
  blocksBefore: number;
  blocksAfter: number;
  ttvs: number;
  ttvsExpired: number;
};

/** Windows of the old slab become one until it has so many TTVs, … */
const windowTtvsMin = 65_536;
/** … and so many for each stream in it, … */
const streamTtvsMin = 128;
/** … or so many blocks: their rows are in memory. */
const windowRowsMax = 200_000;
/** So many expired TTVs in a row give way to one row; fewer would cut blocks for nothing. */
const expiredRunMin = 16;
/** Blocks of one batch. */
const batchBlocksMax = 32;

/**
 * Resolves when everything is in the target and synced. A second run needs another, empty target.
 * REQUIRES: the source has ended and is wholly on disk. @throws what `pace` and the stores throw.
 */
export async function repackSlab(
  source: LogSlab,
  target: SlabStores,
  parts: RepackParts,
): Promise<{ readonly counts: RepackCounts; readonly proofs: SlabProofs }> {
  const counts = { blocksBefore: 0, blocksAfter: 0, ttvs: 0, ttvsExpired: 0 };
  await target.write([], await source.topics());
  parts.phase("repack.begun");
  for await (const window of mergedWindows(source.windows())) {
    const rows: BlockRow[] = [];
    for (const [stream, before] of byStream(window.rows)) {
      const packer = new StreamPacker(stream, target, parts.nowUs);
      await packStream(source, before, packer, parts);
      for (const row of packer.rows) rows.push(row);
      const ttvs = sumOf(packer.rows);
      assert(ttvs === sumOf(before), `stream ${stream} counts as before`);
      counts.ttvs += ttvs - packer.expired;
      counts.ttvsExpired += packer.expired;
    }
    counts.blocksBefore += window.rows.length;
    counts.blocksAfter += rows.length;
    await target.writeWindow({ untilUs: window.untilUs, rows: rows.map(plainRow) });
    parts.phase("repack.window");
  }
  await target.compactIndex();
  const proofs = await target.sync();
  parts.phase("repack.synced");
  return { counts, proofs };
}

async function packStream(
  source: LogSlab,
  rows: readonly BlockRow[],
  packer: StreamPacker,
  { pace }: RepackParts,
): Promise<void> {
  for (const row of rows) {
    await pace(row.sizeBytes);
    const batch = await source.readUncached(row.stream, row);
    if (batch instanceof LostBatch) {
      // A block that cannot be read now may be mended yet: the slab stays as it is.
      if (gapOf(row) === undefined) {
        throw storeErrors.blockCorrupt({ reason: `stream ${row.stream}, up to ${row.lastTimeUs}` });
      }
      packer.gap({ ...plainRow(row), sizeBytes: gapSizes[batch.reason] });
      continue;
    }
    const structure = source.structureOf(row.stream);
    for (let at = 0; at < batch.count; at++) {
      packer.add(ttvAt(batch, structure, at), batch.varying(batch.topicId(at)));
    }
    if (packer.waitingBlocks >= batchBlocksMax) await packer.flush();
  }
  await packer.finish();
}

/** Takes the TTVs of one stream in one window, in order, and makes blocks and gaps of them. */
class StreamPacker {
  readonly rows: BlockRow[] = [];
  expired = 0;
  readonly #stream: number;
  readonly #target: SlabStores;
  readonly #nowUs: number;
  #block = new OpenBlock();
  #writes: BlockWrite[] = [];
  /** Expired, and nothing that stays since. */
  #run: Array<readonly [ttv: Ttv, varying: readonly string[]]> = [];

  constructor(stream: number, target: SlabStores, nowUs: number) {
    this.#stream = stream;
    this.#target = target;
    this.#nowUs = nowUs;
  }

  /** Blocks that are not written yet. */
  get waitingBlocks(): number {
    return this.#writes.length;
  }

  add(ttv: Ttv, varying: readonly string[]): void {
    if (ttv.expiryUs > 0 && ttv.expiryUs <= this.#nowUs) {
      this.#run.push([ttv, varying]);
      if (this.#run.length >= expiredRunMin || this.#runningGap !== undefined) this.#dropRun();
      return;
    }
    this.#keepRun();
    this.#keep(ttv, varying);
  }

  /** What the old slab says of what is gone. */
  gap(row: BlockRow): void {
    this.#keepRun();
    this.#cut();
    this.#addGap(row);
  }

  async finish(): Promise<void> {
    const isAll = this.rows.length === 0 && this.#block.count === 0;
    if (isAll) this.#dropRun();
    else this.#keepRun();
    this.#cut();
    await this.flush();
    const gaps = this.rows.filter((row) => gapOf(row) !== undefined);
    if (gaps.length > 0) await this.#target.writeRows(gaps);
  }

  async flush(): Promise<void> {
    const writes = this.#writes;
    this.#writes = [];
    if (writes.length > 0) await this.#target.write(writes, []);
  }

  /** The last that was made, if it is a gap of what has expired: it may grow. */
  get #runningGap(): BlockRow | undefined {
    const last = this.#block.count === 0 ? this.rows.at(-1) : undefined;
    return last !== undefined && gapOf(last) === "expired" ? last : undefined;
  }

  #keepRun(): void {
    const run = this.#run;
    this.#run = [];
    for (const [ttv, varying] of run) this.#keep(ttv, varying);
  }

  #dropRun(): void {
    const run = this.#run;
    const [first] = run;
    const last = run.at(-1);
    if (first === undefined || last === undefined) return;
    this.#run = [];
    this.#cut();
    this.expired += run.length;
    const span = { firstTimeUs: first[0].timeUs, lastTimeUs: last[0].timeUs };
    const amount = { count: run.length, sizeBytes: gapSizes.expired };
    this.#addGap({ stream: this.#stream, ...span, ...amount, summary: new Uint8Array(0) });
  }

  #addGap(row: BlockRow): void {
    const running = gapOf(row) === "expired" ? this.#runningGap : undefined;
    if (running === undefined) {
      this.rows.push(row);
      return;
    }
    this.rows.pop();
    const count = running.count + row.count;
    this.rows.push({ ...running, lastTimeUs: row.lastTimeUs, count });
  }

  #keep(ttv: Ttv, varying: readonly string[]): void {
    if (!this.#block.fits(ttv.frame.length)) this.#cut();
    this.#block.append(ttv, varying);
    if (this.#block.isFull) this.#cut();
  }

  #cut(): void {
    if (this.#block.count === 0) return;
    this.#block.seal();
    const write = writeBlock(this.#stream, this.#block);
    this.#block = new OpenBlock();
    this.#writes.push(write);
    this.rows.push(write.row);
  }
}

async function* mergedWindows(windows: AsyncIterable<Window>): AsyncGenerator<Window> {
  let rows: BlockRow[] = [];
  let ttvs = 0;
  const streams = new Set<number>();
  let untilUs = 0;
  for await (const window of windows) {
    for (const row of window.rows) {
      rows.push(row);
      ttvs += row.count;
      streams.add(row.stream);
    }
    untilUs = window.untilUs;
    const isFull = ttvs >= Math.max(windowTtvsMin, streamTtvsMin * streams.size);
    if (!isFull && rows.length < windowRowsMax) continue;
    yield { untilUs, rows };
    rows = [];
    ttvs = 0;
    streams.clear();
  }
  if (rows.length > 0) yield { untilUs, rows };
}

/** Streams ascend; the rows of each ascend by time. */
function byStream(rows: readonly BlockRow[]): Array<[stream: number, rows: BlockRow[]]> {
  const streams = new Map<number, BlockRow[]>();
  for (const row of rows) {
    const known = streams.get(row.stream);
    if (known === undefined) streams.set(row.stream, [row]);
    else known.push(row);
  }
  for (const each of streams.values()) each.sort((a, b) => a.lastTimeUs - b.lastTimeUs);
  return [...streams].sort(([a], [b]) => a - b);
}

function sumOf(rows: readonly BlockRow[]): number {
  return rows.reduce((sum, { count }) => sum + count, 0);
}

/** What packing anew would make of a slab. */
export type RepackGain = {
  readonly blocks: number;
  /** Blocks that it would have if all were full. */
  readonly blocksIdeal: number;
  /** Part of the TTVs in some of its blocks that have expired. */
  readonly expiredShare: number;
};

/** Blocks that are looked into for what has expired. */
const sampleBlocksMax = 32;

/** Goes through the index and some blocks. REQUIRES: as `repackSlab`. */
export async function repackGain(
  source: LogSlab,
  streams: Iterable<{ readonly ttvs: number; readonly sizeBytes: number }>,
  nowUs: number,
): Promise<RepackGain> {
  const { ttvsMax, bytesMax } = openBlockSettingsDefault;
  let blocksIdeal = 0;
  for (const { ttvs, sizeBytes } of streams) {
    blocksIdeal += Math.ceil(Math.max(ttvs / ttvsMax, sizeBytes / bytesMax));
  }
  let blocks = 0;
  // Each block has the same chance to be among the samples, however many there are.
  const samples: BlockRow[] = [];
  let stride = 1;
  for await (const { rows } of source.windows()) {
    for (const row of rows) {
      if (gapOf(row) !== undefined) continue;
      if (blocks++ % stride !== 0) continue;
      samples.push(row);
      if (samples.length < 2 * sampleBlocksMax) continue;
      stride *= 2;
      samples.splice(0, samples.length, ...samples.filter((_, at) => at % 2 === 0));
    }
  }
  let ttvs = 0;
  let expired = 0;
  for (const row of samples.slice(0, sampleBlocksMax)) {
    const batch = await source.readUncached(row.stream, row);
    ttvs += batch.count;
    for (let at = 0; at < batch.count; at++) {
      const expiryUs = batch.expiryUs(at);
      if (expiryUs > 0 && expiryUs <= nowUs) expired++;
    }
  }
  return { blocks, blocksIdeal, expiredShare: ttvs === 0 ? 0 : expired / ttvs };
}
