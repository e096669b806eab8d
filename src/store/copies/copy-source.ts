// What one replica of a shard gives to another that lacks it: the rows of its stores, page by page
// (docs/decisions/091-copies.md).
//
// Keeps: what is asked for twice is answered alike, so a copy goes on where it ended: rows of a slab up
// to a checkpoint never change, and of a map the entries behind the checkpoint make good whatever a
// page was too new for. Only the shard store is read in one piece.

import type { KvEntry } from "../../kv/index.ts";
import type { DurableKv } from "../durable-kv.ts";
import { storeErrors } from "../errors.ts";
import type { SlabName } from "../slab/slab-name.ts";

/** Of the two stores of a slab. */
export type SlabStoreName = "blocks" | "index";

export type CopyPage = { readonly rows: readonly KvEntry[]; readonly isEnd: boolean };

/** Pages ascend by key; `after` is the last key that is known. All reject with STORE_COPY_GONE. */
export interface CopySource {
  /** Whose it is: pages of one slab from two replicas do not go together. */
  readonly id: string;
  /** All rows of the shard store, as of one checkpoint. */
  facts(): Promise<readonly KvEntry[]>;
  slab(slab: SlabName, store: SlabStoreName, after: Uint8Array | undefined): Promise<CopyPage>;
  map(after: Uint8Array | undefined): Promise<CopyPage>;
  /** Of what a sealed slab holds: equal on all replicas, however their blocks are cut. */
  hash(generation: number): Promise<string>;
}

/** About as much as a page holds, and one row if it is larger. */
const pageBytesMax = 256 * 1024;
const pageRows = 64;

export async function readPage(kv: DurableKv, after: Uint8Array | undefined): Promise<CopyPage> {
  const cursor = await kv.cursor(after === undefined ? {} : { gt: after });
  const rows: KvEntry[] = [];
  try {
    for (let sizeBytes = 0; sizeBytes < pageBytesMax; ) {
      const found = await cursor.next(pageRows);
      if (found.length === 0) return { rows, isEnd: true };
      for (const row of found) {
        rows.push(row);
        sizeBytes += row[0].length + row[1].length;
      }
    }
    return { rows, isEnd: false };
  } finally {
    await cursor.close();
  }
}

/** Of a shard that has nothing of this kind. */
export function gone(what: string): Promise<never> {
  return Promise.reject(storeErrors.copyGone({ what }));
}
