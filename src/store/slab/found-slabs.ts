// What slabs say of themselves when no table speaks of them: their windows, streams and times, and the
// table that follows from that.
//
// A window is written before it is synced, and so are blocks behind the last one: only a checkpoint
// makes them count. Of what the log still has, a window that lacks a block and what lies behind the
// last one are cut off; the rest had been checkpointed.

import { joinPath } from "../../base/index.ts";
import { type Generation, GenerationTable, type StreamCount } from "../core/generations.ts";
import { ltsSettingsDefault } from "../core/lts.ts";
import { loadLts } from "../core/lts-start.ts";
import { type BlockRow, encodeBlockKey, gapOf } from "../layout/index-row.ts";
import type { MendParts } from "../mending.ts";
import { layoutName } from "./layouts.ts";
import { blockRowKey } from "./rows.ts";
import { folderName, type SlabName } from "./slab-name.ts";
import { openSlabPair } from "./slab-pair.ts";
import { readTopics, type SlabPair } from "./slab-parts.ts";
import { cutPairBack, firstWindowAfter, scanBlockRows } from "./slab-stores.ts";

export type FoundSlab = SlabName & {
  /** End of its last window: all up to there is in it. 0 without windows. */
  readonly windowedUs: number;
  /** Of the blocks in windows, or of all where there are none. */
  readonly streams: ReadonlyMap<number, StreamCount>;
  readonly ttvs: number;
  readonly firstUs: number;
  readonly lastUs: number;
};

/** Of where slabs lie, and of the log that goes with them. */
export type FoundIn = MendParts & {
  readonly dir: string;
  /** From here on the log has everything. */
  readonly loggedFromUs: number;
};

/** Reads its whole index. @throws damage codes. */
export async function lookIntoSlab(name: SlabName, parts: FoundIn): Promise<FoundSlab> {
  const pair = await openSlabPair(joinPath(parts.dir, folderName(name)), parts);
  try {
    const windowedUs = await settleWindows(pair, parts.loggedFromUs);
    return { ...name, ...(await readIndex(pair, windowedUs)) };
  } finally {
    await pair.blocks.close();
    await pair.index.close();
  }
}

/**
 * Resolves with the end of the last window that counts; nothing lies behind it then, where the log
 * has it.
 */
async function settleWindows(pair: SlabPair, loggedFromUs: number): Promise<number> {
  let windowedUs = 0;
  let isCut = false;
  for (;;) {
    const window = await firstWindowAfter(pair.index, windowedUs);
    if (window === undefined) break;
    // Only the last ones can be new to the log; the others are not looked into.
    const isLogged = window.rows.every(({ firstTimeUs }) => firstTimeUs >= loggedFromUs);
    if (isLogged && !(await isWhole(pair, window.rows))) {
      isCut = true;
      break;
    }
    windowedUs = window.untilUs;
  }
  if (windowedUs === 0 && !isCut) return 0;
  let firstUs = Number.MAX_SAFE_INTEGER;
  await scanBlockRows(pair.index, (row) => {
    if (row.lastTimeUs > windowedUs) firstUs = Math.min(firstUs, row.firstTimeUs);
  });
  if (firstUs >= loggedFromUs) await cutPairBack(pair, windowedUs);
  return windowedUs;
}

/** A power cut may have kept the window without its blocks, or without the rows that lead to them. */
async function isWhole({ blocks, index }: SlabPair, rows: readonly BlockRow[]): Promise<boolean> {
  for (const row of rows) {
    const { stream, lastTimeUs } = row;
    if ((await index.get(blockRowKey(stream, lastTimeUs))) === undefined) return false;
    if (gapOf(row) !== undefined) continue;
    if ((await blocks.get(encodeBlockKey(lastTimeUs, stream))) === undefined) return false;
  }
  return true;
}

async function readIndex(
  { index }: SlabPair,
  windowedUs: number,
): Promise<Omit<FoundSlab, keyof SlabName>> {
  const topics = await readTopics(index);
  const lts = loadLts(
    ltsSettingsDefault,
    topics.map(({ record }) => record),
  );
  const known = new Set(lts.streams);
  const streams = new Map<number, StreamCount>();
  let [ttvs, firstUs, lastUs] = [0, Number.MAX_SAFE_INTEGER, 0];
  await scanBlockRows(index, ({ stream, firstTimeUs, lastTimeUs, count, sizeBytes }) => {
    if ((windowedUs > 0 && lastTimeUs > windowedUs) || !known.has(stream)) return;
    const before = streams.get(stream);
    streams.set(stream, {
      ...lts.originOf(stream),
      ttvs: (before?.ttvs ?? 0) + count,
      sizeBytes: (before?.sizeBytes ?? 0) + sizeBytes,
    });
    ttvs += count;
    firstUs = Math.min(firstUs, firstTimeUs);
    lastUs = Math.max(lastUs, lastTimeUs);
  });
  return { windowedUs, streams, ttvs, firstUs, lastUs };
}

/** All sealed: what comes from the log goes to a generation of its own. `slabs` ascend. */
export function tableOfSlabs(
  slabs: readonly FoundSlab[],
  untilUs: number,
  numberMax: number,
): GenerationTable {
  const rows = slabs.map(({ number, pack, firstUs, streams }, at): Generation => {
    const toUs = slabs[at + 1]?.firstUs ?? untilUs + 1;
    const span = { fromUs: firstUs, toUs, firstUs };
    return { number, pack, layout: layoutName, ...span, state: "sealed", streams };
  });
  return GenerationTable.from(rows, numberMax + 1);
}
