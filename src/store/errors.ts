// The store's error table.

import { defineErrors } from "../base/index.ts";

export const storeErrors = defineErrors({
  closed: {
    code: "STORE_CLOSED",
    kind: "closed",
    message: "the store is closed",
    help: "The node is stopping; connect again later.",
  },
  failed: {
    code: "STORE_FAILED",
    kind: "internal",
    message: "the store has failed and takes no writes: {reason}",
    help: "The node ends with exit code 5. Look at the volume, then start again.",
  },
  full: {
    code: "STORE_DISK_FULL",
    kind: "limit",
    message: "no space is left for new messages",
    help: "Free space on the volume or drop old generations; writing resumes by itself.",
  },
  bufferFull: {
    code: "STORE_WRITE_BUFFER_FULL",
    kind: "retry",
    message: "the write buffer is at its limit of {limitBytes} bytes",
    help: "The volume is slower than the publishers; raise writeBuffer or slow them down.",
  },
  syncFailed: {
    code: "STORE_SYNC_FAILED",
    kind: "internal",
    message: "what was written to {slab} could not be made durable: {reason}",
    help: "The node ends with exit code 5. Look at the volume; the next start replays the log.",
  },
  entryTooLarge: {
    code: "STORE_ENTRY_TOO_LARGE",
    kind: "invalid",
    message: "an entry of {sizeBytes} bytes is above the limit of {limitBytes}",
    help: "Send smaller messages, or raise the log's record limit together with maxPacketSize.",
  },
  txConflict: {
    code: "STORE_TX_CONFLICT",
    kind: "conflict",
    message: "the transaction conflicted with others {attempts} times",
    help: "Try again; lower the contention on the keys it reads.",
  },
  preconditionFailed: {
    code: "STORE_PRECONDITION_FAILED",
    kind: "conflict",
    message: "{key} was expected to be {expected}",
    help: "Read the key again and decide anew.",
  },
  guardFailed: {
    code: "STORE_GUARD_FAILED",
    kind: "conflict",
    message: "{key} has been written by somebody else",
    help: "The writer has lost its claim; it must stop.",
  },
  ownerFenced: {
    code: "STORE_OWNER_FENCED",
    kind: "conflict",
    message: "an owner of {publisher} that has been replaced tried to write",
    help: "The session was taken over; the older connection must end.",
  },
  writerFenced: {
    code: "STORE_WRITER_FENCED",
    kind: "conflict",
    message: "writer {writer} was opened again with a newer epoch",
    help: "Only the newest opener of a writer may append.",
  },
  writerGap: {
    code: "STORE_WRITER_GAP",
    kind: "invalid",
    message: "writer {writer} skipped from sequence {last} to {got}",
    help: "Append in sequence, beginning at 1 after opening.",
  },
  keyInvalid: {
    code: "STORE_KEY_INVALID",
    kind: "invalid",
    message: "a key of a map database cannot be written: {reason}",
    help: "Keys are at most 64 KiB of text without U+0000; escape foreign text.",
  },
  limitReached: {
    code: "STORE_LIMIT_REACHED",
    kind: "limit",
    message: "{limit} is limited to {max}",
    help: "Use less of it, or raise the limit of that name.",
  },
  slabCorrupt: {
    code: "STORE_SLAB_CORRUPT",
    kind: "corrupt",
    message: "slab {slab} holds damaged bytes: {reason}",
    help: "The slab is set aside and rebuilt from the log as far as the log reaches.",
  },
  shardCorrupt: {
    code: "STORE_SHARD_CORRUPT",
    kind: "corrupt",
    message: "shard {shard} holds an entry that cannot be read: {reason}",
    help: "Start with onDamage: quarantine to set the damage aside.",
  },
  formatNewer: {
    code: "STORE_FORMAT_NEWER",
    kind: "invalid",
    message: "{what} was written by a newer version (format {version})",
    help: "Use the version of Flagstone that wrote it, or a newer one.",
  },
  databaseMissing: {
    code: "STORE_DATABASE_NOT_FOUND",
    kind: "invalid",
    message: "there is no database {database}",
    help: "List the databases and use one of their names.",
  },
  shardMissing: {
    code: "STORE_SHARD_NOT_FOUND",
    kind: "invalid",
    message: "there is no log shard {shard}",
    help: "List the shards and use one of their numbers.",
  },
  holdMissing: {
    code: "STORE_HOLD_NOT_FOUND",
    kind: "invalid",
    message: "there is no hold {hold} in database {database}",
    help: "List the holds and use one of their names.",
  },
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
