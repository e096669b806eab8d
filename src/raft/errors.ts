// The codes of the Raft room.

import { defineErrors } from "../base/index.ts";

export const raftErrors = defineErrors({
  messageCorrupt: {
    code: "RAFT_MESSAGE_CORRUPT",
    kind: "corrupt",
    message: "a Raft message cannot be read: {reason}",
    help: "The frame is dropped and sent again by itself. If it happens often, check the network.",
  },
  entryCorrupt: {
    code: "RAFT_ENTRY_CORRUPT",
    kind: "corrupt",
    message: "a Raft entry cannot be read: {reason}",
    help: "The stored record is damaged; the layer that read it names the file.",
  },
  versionUnknown: {
    code: "RAFT_VERSION_UNKNOWN",
    kind: "invalid",
    message: "a Raft {what} has version {version}, this release reads {known}",
    help: "It was written by a newer release: upgrade this node.",
  },
});
