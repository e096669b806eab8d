// Settings of a store: plain data, all but the folders with a default.

import { retentionDefault } from "./catalog.ts";
import type { CheckpointPolicy } from "./checkpointer.ts";
import { type LtsSettings, ltsSettingsDefault } from "./core/lts.ts";
import { type Watermarks, watermarksDefault } from "./core/watermarks.ts";
import { type GroupSettings, groupSettingsDefault } from "./group.ts";
import { type MapCopySizes, mapCopySizesDefault } from "./map/map-copy.ts";
import type { DatabaseSpec, Retention } from "./operator-api.ts";
import { restingTriesBytesMaxDefault } from "./slab/open-slabs.ts";

export type StoreSettings = {
  /** Folder of the databases. */
  readonly dir: string;
  /** Where damaged bytes are copied to. */
  readonly quarantineDir: string;
  /** Shards of `messages`; fixed when it is made. Default 4. */
  readonly shards: number;
  /** Shards of `state`, where they differ. */
  readonly stateShards?: number;
  readonly checkpoint: CheckpointPolicy;
  /** Log bytes queued and not synced, at which appends wait. */
  readonly pendingBytesMax: number;
  /** Decoded blocks kept for readers. Default 64 MiB. */
  readonly blockCacheBytesMax: number;
  /** Blocks that readers have read before they come to them, over all readers. Default 64 MiB. */
  readonly readAheadBytesMax: number;
  /** Sealed slabs open at once for readers; the least used is closed. Default 64. */
  readonly openSlabsMax: number;
  /** Memory of what resting slabs have learned of topics; the longest at rest forgets. 64 MiB. */
  readonly restingTriesBytesMax: number;
  /** Whole streams from which on a reader goes by windows. Default 32: few streams page faster. */
  readonly wideStreamsMin: number;
  /** How topics are learned where a database says nothing else. */
  readonly lts: LtsSettings;
  /** What `messages` keeps. Default 7 days. */
  readonly retention: Retention;
  /** Topic filters that stay with `messages` whatever others say. */
  readonly topics: readonly string[];
  /** Databases that must be there besides `messages` and `state`; made, or brought in line. */
  readonly databases: readonly DatabaseSpec[];
  /** Who shares disk, buffers and work; `default` is there in any case. */
  readonly groups: readonly GroupSettings[];
  /** Logical bytes at which the generation of one shard ends; 0 = an eighth of its quota. */
  readonly generationBytesMax: number;
  readonly watermarks: Watermarks;
  /** How the second copy of a map shard's rows is cut. */
  readonly mapCopySizes: MapCopySizes;
};

export const storeSettingsDefault: Omit<StoreSettings, "dir" | "quarantineDir"> = {
  shards: 4,
  checkpoint: { bytesMax: 64 * 1024 * 1024, ageMsMax: 60_000 },
  pendingBytesMax: 32 * 1024 * 1024,
  blockCacheBytesMax: 64 * 1024 * 1024,
  readAheadBytesMax: 64 * 1024 * 1024,
  openSlabsMax: 64,
  restingTriesBytesMax: restingTriesBytesMaxDefault,
  wideStreamsMin: 32,
  lts: ltsSettingsDefault,
  retention: retentionDefault,
  topics: [],
  databases: [],
  groups: [groupSettingsDefault],
  generationBytesMax: 0,
  watermarks: watermarksDefault,
  mapCopySizes: mapCopySizesDefault,
};
