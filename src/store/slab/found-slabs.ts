// What slabs say of themselves when no table speaks of them: their windows, streams and times, and the
// table that follows from that.

import { joinPath } from "../../base/index.ts";
import { type Generation, GenerationTable, type StreamCount } from "../core/generations.ts";
import { ltsSettingsDefault } from "../core/lts.ts";
import { loadLts } from "../core/lts-start.ts";
import type { MendParts } from "../mending.ts";
import { layoutName } from "./layouts.ts";
import { parseWindowKey, windowRange } from "./rows.ts";
import { folderName, type SlabName } from "./slab-name.ts";
import { openSlabPair } from "./slab-pair.ts";
import { readTopics, type SlabPair } from "./slab-parts.ts";
import { scanBlockRows } from "./slab-stores.ts";

export type FoundSlab = SlabName & {
  /** End of its last window: all up to there is in it. 0 without windows. */
  readonly windowedUs: number;
  /** Of the blocks in windows, or of all where there are none. */
  readonly streams: ReadonlyMap<number, StreamCount>;
  readonly ttvs: number;
  readonly firstUs: number;
  readonly lastUs: number;
};

/** Reads its whole index. @throws damage codes. */
export async function lookIntoSlab(
  name: SlabName,
  dir: string,
  parts: MendParts,
): Promise<FoundSlab> {
  const pair = await openSlabPair(joinPath(dir, folderName(name)), parts);
  try {
    return { ...name, ...(await readIndex(pair)) };
  } finally {
    await pair.blocks.close();
    await pair.index.close();
  }
}

async function readIndex({ index }: SlabPair): Promise<Omit<FoundSlab, keyof SlabName>> {
  let windowedUs = 0;
  await index.scan(windowRange(0), (key) => {
    windowedUs = Math.max(windowedUs, parseWindowKey(key).untilUs);
  });
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
