// Which folder of a shard holds its map: `map`, and after a copy from another replica `map-1` and so
// on. A row of the shard store says so, and what it does not name is removed.

import { ByteReader, ByteWriter, type Disk, joinPath } from "../../base/index.ts";
import type { KvDriver } from "../../kv/index.ts";
import { rowPrefix, type ShardStore } from "../shard-store.ts";

export const mapFolderKey = Buffer.from([rowPrefix.mapFolder]);
const pattern = /^map(?:-\d+)?$/;

/** How often the map was copied as a whole. */
export async function mapCopyNumber(store: ShardStore): Promise<number> {
  const row = await store.get(mapFolderKey);
  return row === undefined ? 0 : new ByteReader(row).u32();
}

export function mapFolder(copyNumber: number): string {
  return copyNumber === 0 ? "map" : `map-${copyNumber}`;
}

export function encodeMapFolder(copyNumber: number): Buffer {
  return new ByteWriter(4).u32(copyNumber).finish();
}

/** Removes every map of the shard but this one. REQUIRES: they are closed. */
export async function removeMaps(
  dir: string,
  but: string | undefined,
  { disk, driver }: { readonly disk: Disk; readonly driver: KvDriver },
): Promise<void> {
  for (const { name } of await disk.list(dir)) {
    if (name !== but && pattern.test(name)) await driver.destroy(joinPath(dir, name));
  }
}
