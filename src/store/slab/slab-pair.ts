// Opens the two stores of a log slab, and mends the slab when one of them is damaged.

import { joinPath } from "../../base/index.ts";
import { type MendedKv, type MendParts, openMended, verifyBytesMax } from "../mending.ts";
import { mendSlab } from "./slab-mending.ts";
import type { SlabExpected, SlabPair } from "./slab-parts.ts";

/** Folders of the two stores in a slab's folder. */
export const storeNames = ["blocks", "index"] as const;
/**
 * Decoded blocks are cached above; LevelDB's own caches are per store, and many may be open. Blocks
 * have checksums of their own, rows have none.
 */
const blocksOptions = { writeBufferBytes: 16 * 1024 * 1024, cacheBytes: 512 * 1024 };
const indexOptions = {
  writeBufferBytes: 2 * 1024 * 1024,
  cacheBytes: 1024 * 1024,
  verifyBytesMax,
};

/**
 * @throws KV_* when one cannot be opened for another reason than damage; STORE_* when what is left of
 * a damaged slab contradicts itself.
 */
export async function openSlabPair(
  path: string,
  parts: MendParts,
  expected?: SlabExpected,
): Promise<SlabPair> {
  const proofs = expected?.proofs;
  const [first, second] = storeNames;
  const opened = await Promise.allSettled([
    openMended(joinPath(path, first), { ...blocksOptions, proof: proofs?.blocks }, parts),
    openMended(joinPath(path, second), { ...indexOptions, proof: proofs?.index }, parts),
  ]);
  const [blocks, index] = opened.map((one) => (one.status === "fulfilled" ? one.value : undefined));
  try {
    if (blocks === undefined || index === undefined) {
      throw opened.find((one) => one.status === "rejected")?.reason;
    }
    return await mendTogether(path, { blocks, index }, parts, expected);
  } catch (error) {
    await blocks?.kv.close();
    await index?.kv.close();
    throw error;
  }
}

async function mendTogether(
  path: string,
  { blocks, index }: { readonly blocks: MendedKv; readonly index: MendedKv },
  parts: MendParts,
  expected: SlabExpected | undefined,
): Promise<SlabPair> {
  const pair = { blocks: blocks.kv, index: index.kv };
  const isDamaged = blocks.damage !== undefined || index.damage !== undefined;
  if (!isDamaged || expected === undefined) return pair;
  const isIndexDamaged = index.damage !== undefined;
  const { counts, lost } = await mendSlab(pair, { ...expected, isIndexDamaged });
  const settled = expected.onMended(lost);
  parts.logger.error("store.slab_mended", { slab: path, ...counts });
  // Not awaited here: the checkpoint that comes may need the pair.
  return { ...pair, settled };
}
