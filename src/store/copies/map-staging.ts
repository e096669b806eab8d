// Copies the rows of a map shard, all of them, into a new store beside the one that is read.
//
// Keeps: what a page was too new for is made good by the entries above the checkpoint, which hold
// absolute values; a copy that was cut off begins anew, since its first pages may be older than the
// next checkpoint.

import { joinPath } from "../../base/index.ts";
import type { KvEntry } from "../../kv/index.ts";
import { DurableKv } from "../durable-kv.ts";
import {
  encodeMapFolder,
  mapCopyNumber,
  mapFolder,
  mapFolderKey,
  removeMaps,
} from "../map/map-folder.ts";
import { type MendParts, verifyBytesMax } from "../mending.ts";
import { mapProofKey, type ShardStore } from "../shard-store.ts";
import type { CopySource } from "./copy-source.ts";

export type MapStagingParts = {
  readonly dir: string;
  readonly kv: MendParts;
  readonly store: ShardStore;
  readonly phase: (name: string) => void;
};

export type StagedMap = {
  readonly kv: DurableKv;
  readonly rows: readonly KvEntry[];
  readonly counts: { readonly bytes: number };
  readonly folder: string;
};

/** Resolves when all is synced. @throws STORE_COPY_GONE, codes of disk and stores: try it again. */
export async function stageMap(source: CopySource, parts: MapStagingParts): Promise<StagedMap> {
  const { dir, store, phase } = parts;
  const number = await mapCopyNumber(store);
  await removeMaps(dir, mapFolder(number), { ...parts.kv });
  const folder = mapFolder(number + 1);
  const kv = await DurableKv.open(joinPath(dir, folder), { verifyBytesMax }, parts.kv);
  try {
    let bytes = 0;
    for (let after: Uint8Array | undefined; ; ) {
      const { rows, isEnd } = await source.map(after);
      await kv.write((batch) => {
        for (const [key, value] of rows) batch.put(key, value);
      });
      for (const [key, value] of rows) bytes += key.length + value.length;
      after = rows.at(-1)?.[0] ?? after;
      phase("copy.page");
      if (isEnd) break;
    }
    const proof = Buffer.from(await kv.sync());
    phase("copy.synced");
    const rows: KvEntry[] = [
      [mapFolderKey, encodeMapFolder(number + 1)],
      [mapProofKey, proof],
    ];
    return { kv, rows, counts: { bytes }, folder };
  } catch (error) {
    await kv.close();
    throw error;
  }
}
