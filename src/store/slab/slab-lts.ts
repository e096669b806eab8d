// What a slab has learned of topics, read from its stores.

import type { Lts, LtsSettings } from "../core/lts.ts";
import { createLts, loadLts } from "../core/lts-start.ts";
import type { SlabStores } from "./slab-stores.ts";

export async function loadLtsOf(stores: SlabStores, settings: LtsSettings): Promise<Lts> {
  const topics = await stores.topics();
  if (topics.length === 0) return createLts(settings);
  return loadLts(
    settings,
    topics.map(({ record }) => record),
  );
}
