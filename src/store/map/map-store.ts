// Opens the store of a map shard; a damaged one is mended from its files and from the copy of its rows.

import { joinPath } from "../../base/index.ts";
import { type MendedKv, type MendParts, openMended, verifyBytesMax } from "../mending.ts";
import { mapProofKey, type ShardStore } from "../shard-store.ts";
import { readMapCopy, readMapCopyHead, restoreMapCopy } from "./map-copy.ts";
import { mapCopyNumber, mapFolder, removeMaps } from "./map-folder.ts";

export type OpenedMapStore = MendedKv & {
  /** How far the copy goes; its rows are brought over already where the store was damaged. */
  readonly copy: { readonly index: number } | "missing" | "damaged";
  /** Its name in the folder of the shard. */
  readonly folder: string;
};

/** What the log still has is replayed by the caller. */
export async function openMapStore(
  dir: string,
  store: ShardStore,
  parts: MendParts,
): Promise<OpenedMapStore> {
  const place = { dir, ...parts };
  const head = await readMapCopyHead(place);
  const options = { proof: await store.get(mapProofKey), verifyBytesMax };
  const folder = mapFolder(await mapCopyNumber(store));
  await removeMaps(dir, folder, parts);
  const { kv, damage } = await openMended(joinPath(dir, folder), options, parts);
  if (damage === undefined || typeof head === "string") return { kv, damage, copy: head, folder };
  try {
    const copy = await readMapCopy(place);
    if (typeof copy === "string") return { kv, damage, copy, folder };
    const isExact = copy.index >= store.checkpoint.index;
    const { rowsRestored } = await restoreMapCopy(kv, copy, isExact);
    parts.logger.info("store.map_rows_restored", { path: kv.path, rowsRestored });
    return { kv, damage, copy, folder };
  } catch (error) {
    await kv.close();
    throw error;
  }
}
