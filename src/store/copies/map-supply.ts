// What a map shard gives to a replica that lacks it.

import type { KvEntry } from "../../kv/index.ts";
import type { MapSlab } from "../map/map-slab.ts";
import type { ShardStore } from "../shard-store.ts";
import { type CopyPage, type CopySource, gone } from "./copy-source.ts";

export class MapSupply implements CopySource {
  readonly id = "own";
  readonly #store: ShardStore;
  readonly #slab: () => MapSlab;

  constructor(store: ShardStore, slab: () => MapSlab) {
    this.#store = store;
    this.#slab = slab;
  }

  facts(): Promise<readonly KvEntry[]> {
    return this.#store.listRows();
  }

  slab(): Promise<CopyPage> {
    return gone("a slab");
  }

  map(after: Uint8Array | undefined): Promise<CopyPage> {
    return this.#slab().page(after);
  }

  hash(generation: number): Promise<string> {
    return gone(`generation ${generation}`);
  }
}
