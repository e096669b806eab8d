// Opens the store of a map shard; a damaged one is mended from its files and from the copy of its rows.

import { joinPath } from "../../base/index.ts";
import { type MendedKv, type MendParts, openMended, verifyBytesMax } from "../mending.ts";
import { mapProofKey, type ShardStore } from "../shard-store.ts";
import { readMapCopy, restoreMapCopy } from "./map-copy.ts";

export type OpenedMapStore = MendedKv & {
  readonly copy: Awaited<ReturnType<typeof readMapCopy>>;
};

/** What the log still has is replayed by the caller. */
export async function openMapStore(
  dir: string,
  store: ShardStore,
  parts: MendParts,
): Promise<OpenedMapStore> {
  const copy = await readMapCopy({ dir, ...parts });
  const options = { proof: await store.get(mapProofKey), verifyBytesMax };
  const { kv, damage } = await openMended(joinPath(dir, "map"), options, parts);
  if (damage === undefined || typeof copy === "string") return { kv, damage, copy };
  try {
    const isExact = copy.index >= store.checkpoint.index;
    const { rowsRestored } = await restoreMapCopy(kv, copy, isExact);
    parts.logger.info("store.map_rows_restored", { path: kv.path, rowsRestored });
    return { kv, damage, copy };
  } catch (error) {
    await kv.close();
    throw error;
  }
}
