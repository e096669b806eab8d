// Keys: caches and checkpoints of the store. See `../keys.ts` for the rules.

import { count, duration, group, size } from "../schema.ts";
import { gib, kib, mib, minute, second } from "./units.ts";

export const store = group("Caches and checkpoints of the message store.", {
  blockCache: size({
    doc: "Memory of decoded blocks, shared by all readers.",
    reload: "restart",
    fallback: "64MiB",
    min: mib,
    max: 256 * gib,
  }),
  readAhead: size({
    doc: "Memory of blocks that readers have read before they come to them, over all readers.",
    reload: "restart",
    fallback: "64MiB",
    min: 64 * kib,
    max: 256 * gib,
  }),
  openSlabs: count({
    doc: "Slabs of ended generations kept open; the one that was not read longest is closed.",
    reload: "restart",
    fallback: "64",
    min: 1,
    max: 10_000,
  }),
  topicCacheMax: count({
    doc: "Topics of one shard whose place is remembered.",
    reload: "restart",
    fallback: "100000",
    min: 100,
    max: 10_000_000,
  }),
  checkpointBytes: size({
    doc: "Log of one shard after which it checkpoints; bounds the replay at start.",
    reload: "restart",
    fallback: "64MiB",
    min: 64 * kib,
    max: 16 * gib,
  }),
  checkpointAge: duration({
    doc: "Age of unsaved changes of one shard after which it checkpoints.",
    reload: "restart",
    fallback: "1m",
    min: second,
    max: 60 * minute,
  }),
});
