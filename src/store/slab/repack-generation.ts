// Packing one generation anew, from its begin to the checkpoint that switches to it, and whether that
// is worth while.

import { isCodedError } from "../../base/index.ts";
import type { Generations } from "./generations.ts";
import { layoutName } from "./layouts.ts";
import type { LogSlab } from "./log-slab.ts";
import type { OpenPack } from "./packs.ts";
import { type RepackCounts, type RepackParts, repackGain, repackSlab } from "./repack.ts";

export type RepackGenerationParts = RepackParts & {
  /** Takes a checkpoint of the shard. */
  readonly checkpoint: () => Promise<void>;
};

/** A slab is packed when it has so many times the blocks that it needs, … */
const blocksFactor = 2;
/** … and so many more, … */
const blocksExtraMin = 16;
/** … or when so much of it has expired. */
const expiredShareMin = 0.25;

/** False for one that is not sealed, or cannot be read. */
export async function gainsByRepack(
  generations: Generations,
  number: number,
  nowUs: number,
): Promise<boolean> {
  const generation = generations.list.find((each) => each.number === number);
  if (generation?.state !== "sealed") return false;
  if (generation.layout !== layoutName) return true;
  const slab = await generations.slabOf(number);
  if (slab === undefined) return false;
  const endWalk = slab.beginWalk();
  try {
    const gain = await repackGain(slab, generation.streams.values(), nowUs);
    const extraMin = Math.max(blocksExtraMin, (blocksFactor - 1) * gain.blocksIdeal);
    return gain.blocks - gain.blocksIdeal >= extraMin || gain.expiredShare >= expiredShareMin;
  } finally {
    endWalk();
  }
}

/**
 * Resolves when a checkpoint names the new slab; undefined when the generation is gone, not sealed,
 * being packed already, or has a block that cannot be read. @throws what `parts.pace`, the stores and
 * the checkpoint throw; after a failed checkpoint the new slab waits for the next one.
 */
export async function repackGeneration(
  generations: Generations,
  number: number,
  parts: RepackGenerationParts,
): Promise<RepackCounts | undefined> {
  const { packs } = generations;
  const slab = await generations.slabOf(number);
  if (slab === undefined) return undefined;
  // What it has learned stays in memory from here on: the new slab takes it over.
  const endWalk = slab.beginWalk();
  const isGone = (): boolean => generations.readable.every((each) => each.number !== number);
  let counts: RepackCounts | undefined;
  try {
    const open = await packs.begin(number);
    if (open !== undefined) counts = await packInto(generations, slab, open, parts);
  } catch (error) {
    if (isGone() && isCodedError(error, "KV_CLOSED")) return undefined;
    if (isCodedError(error, "STORE_BLOCK_CORRUPT")) return undefined;
    throw error;
  } finally {
    endWalk();
  }
  if (counts === undefined) return undefined;
  // One that was under way may have begun before.
  while (packs.isWaiting(number)) await parts.checkpoint();
  return isGone() ? undefined : counts;
}

/** Undefined when the generation has gone meanwhile. What is not done leaves nothing behind. */
async function packInto(
  generations: Generations,
  slab: LogSlab,
  open: OpenPack,
  parts: RepackParts,
): Promise<RepackCounts | undefined> {
  try {
    const { counts, proofs } = await repackSlab(slab, open.stores, parts);
    if (generations.packs.done({ ...open, lts: slab.lts, proofs })) return counts;
  } catch (error) {
    await giveUp(generations, open);
    throw error;
  }
  await giveUp(generations, open);
  return undefined;
}

/** A folder that stays is an orphan of the next start; why the work ended counts for more. */
async function giveUp({ packs }: Generations, open: OpenPack): Promise<void> {
  await packs.giveUp(open).catch(() => undefined);
}
