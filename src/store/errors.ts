// What can go wrong in the store, with what to do about it.

import { defineErrors } from "../base/index.ts";

export const storeErrors = defineErrors({
  blockCorrupt: {
    code: "STORE_BLOCK_CORRUPT",
    kind: "corrupt",
    message: "a block of messages is damaged: {reason}",
    help: "The block is copied to quarantine and counted; replicas send an intact copy.",
  },
  rowCorrupt: {
    code: "STORE_ROW_CORRUPT",
    kind: "corrupt",
    message: "a {row} row of a slab's index is damaged: {reason}",
    help: "The slab is set aside and rebuilt from its blocks and the log.",
  },
  topicsCorrupt: {
    code: "STORE_TOPICS_CORRUPT",
    kind: "corrupt",
    message: "the learned topics of a slab contradict themselves: {reason}",
    help: "The slab is set aside and rebuilt from the log or a replica.",
  },
  versionUnknown: {
    code: "STORE_VERSION_UNKNOWN",
    kind: "invalid",
    message: "a {row} row has format version {version}; this build reads up to {versionMax}",
    help: "The data was written by a newer release: start that release, or a newer one.",
  },
  generationCurrent: {
    code: "STORE_GENERATION_CURRENT",
    kind: "invalid",
    message: "generation {generation} is being written and cannot be dropped",
    help: "Rotate first, then drop the generation that was current.",
  },
  generationUnknown: {
    code: "STORE_GENERATION_UNKNOWN",
    kind: "invalid",
    message: "there is no generation {generation} in this shard",
    help: "List the generations of the shard for those that exist.",
  },
});
