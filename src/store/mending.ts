// Opens a key-value store that may be damaged. What is damaged goes to the quarantine as it is, every
// intact entry is brought over to a new store in its place, and the log says so.
//
// What the owner then misses is found out, told and replaced by the owner: it knows what its entries
// mean.

import { type Disk, isCodedError, joinPath } from "../base/index.ts";
import type { KvOptions } from "../kv/index.ts";
import { DurableKv, type DurableKvParts } from "./durable-kv.ts";
import { parseFolderName } from "./slab/slab-name.ts";

export type MendParts = DurableKvParts & {
  readonly disk: Disk;
  readonly quarantineDir: string;
};

export type MendedKv = {
  readonly kv: DurableKv;
  /** What was wrong; undefined when nothing was. */
  readonly damage: KvDamage | undefined;
};

export type KvDamage = {
  readonly reason: string;
  /** Nothing seems to be lost but what pointed to the rest. */
  readonly isWhole: boolean;
};

/** Bytes of tables that are verified at an opening. Rows that say nothing of themselves need it. */
export const verifyBytesMax = 256 * 1024 * 1024;
/** Level of the data directory above which names do not matter: `<database>/<shard>/…`. */
const nameLevels = 2;

/** @throws what the driver's `open` and `salvage` throw, but KV_CORRUPT only when mending failed. */
export async function openMended(
  path: string,
  options: KvOptions,
  parts: MendParts,
): Promise<MendedKv> {
  try {
    return { kv: await DurableKv.open(path, options, parts), damage: undefined };
  } catch (error) {
    if (!isCodedError(error, "KV_CORRUPT")) throw error;
    const quarantinePath = await freePath(path, parts);
    const { faults, isWhole } = await parts.driver.salvage(path, quarantinePath);
    const fields = { path, reason: error.message, faults: faults.join("; "), quarantinePath };
    parts.logger.error("store.kv_mended", fields);
    const kv = await DurableKv.open(path, { ...options, proof: undefined }, parts);
    return { kv, damage: { reason: error.message, isWhole } };
  }
}

async function freePath(path: string, { disk, quarantineDir }: MendParts): Promise<string> {
  await disk.makeDir(quarantineDir);
  const levels = path.split("/");
  const isSlab = parseFolderName(levels.at(-2) ?? "") !== undefined;
  const name = levels.slice(-nameLevels - (isSlab ? 2 : 1)).join("-");
  for (let copy = 1; ; copy++) {
    const found = joinPath(quarantineDir, copy === 1 ? name : `${name}-${copy}`);
    if (!(await disk.exists(found))) return found;
  }
}
