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
  idInvalid: {
    code: "RAFT_ID_INVALID",
    kind: "invalid",
    message: "{what} {text} is not an id of 32 hexadecimal digits",
    help: "Copy the id as `status` shows it; dashes are allowed.",
  },
  dirMissing: {
    code: "RAFT_DIR_MISSING",
    kind: "invalid",
    message: "{dir} holds no Raft identity",
    help: "Form a cluster or join one with this directory; an empty disk is never an old member.",
  },
  dirInUse: {
    code: "RAFT_DIR_NOT_EMPTY",
    kind: "invalid",
    message: "{dir} holds Raft data already ({found})",
    help: "Open it instead, or choose an empty directory. Nothing is ever formatted over data.",
  },
  dirLocked: {
    code: "RAFT_DIR_LOCKED",
    kind: "invalid",
    message: "{dir} is in use by another process",
    help: "Stop the other process, or give this one a directory of its own.",
  },
  dirDamaged: {
    code: "RAFT_DIR_DAMAGED",
    kind: "corrupt",
    message: "{path} is damaged in both copies",
    help: "Restore the file, or remove this member from its groups and join with an empty directory.",
  },
  dirNewer: {
    code: "RAFT_DIR_NEWER",
    kind: "invalid",
    message: "{path} has format {version}, this release reads up to {known}",
    help: "Start the release that wrote this data directory, or a later one.",
  },
  identityForeign: {
    code: "RAFT_IDENTITY_FOREIGN",
    kind: "invalid",
    message: "{dir} belongs to {what} {found}, this node is of {wanted}",
    help: "Give each node its own directory, or correct the ids of the configuration.",
  },
  identityRefused: {
    code: "RAFT_IDENTITY_REFUSED",
    kind: "invalid",
    message: "the cluster knows site {site} with disk {known}, this disk is {own}",
    help: "The disk of that member was replaced or wiped: remove the member and add this one anew.",
  },
  memberConflict: {
    code: "RAFT_MEMBER_CONFLICT",
    kind: "invalid",
    message: "node {node} is bound to disk {known} and cannot be given to disk {given}",
    help: "Numbers of nodes are never used again: choose a new one.",
  },
  metaLost: {
    code: "RAFT_META_LOST",
    kind: "corrupt",
    message: "term and vote of group {group} cannot be read in {path}",
    help: "This replica may have voted: remove it from the group and add it again under a new number.",
  },
  groupUnknown: {
    code: "RAFT_GROUP_UNKNOWN",
    kind: "invalid",
    message: "there is no group {group} here",
    help: "Create the group or join it first.",
  },
  groupExists: {
    code: "RAFT_GROUP_EXISTS",
    kind: "invalid",
    message: "group {group} exists here already",
    help: "Open it, or choose another number.",
  },
  groupFailed: {
    code: "RAFT_GROUP_FAILED",
    kind: "internal",
    message: "group {group} has stopped: {reason}",
    help: "Its state machine or its rules were broken; the log names the cause. Restart the node.",
  },
  limit: {
    code: "RAFT_LIMIT_REACHED",
    kind: "limit",
    message: "{what} is at its limit of {limit}",
    help: "Wait until earlier work is done, or raise the limit.",
  },
  diskFull: {
    code: "RAFT_DISK_FULL",
    kind: "retry",
    message: "group {group} takes no proposals: its log has no space",
    help: "Free space on the volume of the log; writing resumes by itself.",
  },
  notLeader: {
    code: "RAFT_NOT_LEADER",
    kind: "retry",
    message: "group {group} is led by {leader}, not by this node ({reason})",
    help: "Ask the leader named; 0 means that none is known: wait for the election.",
  },
  declined: {
    code: "RAFT_REQUEST_DECLINED",
    kind: "invalid",
    message: "group {group} declined: {reason}",
    help: "Wait for the change under way, or correct the request.",
  },
  dropped: {
    code: "RAFT_PROPOSAL_DROPPED",
    kind: "retry",
    message: "the proposal at {index} of group {group} was replaced and did not happen",
    help: "Propose it again at the new leader.",
  },
  unknown: {
    code: "RAFT_PROPOSAL_UNKNOWN",
    kind: "retry",
    message: "the fate of the proposal at {index} of group {group} is not known",
    help: "It may still happen. Ask again under the same id, so that it counts once.",
  },
  readTimeout: {
    code: "RAFT_READ_TIMEOUT",
    kind: "retry",
    message: "a read of group {group} was not confirmed in time",
    help: "No majority answered. Ask again.",
  },
  recoveryRefused: {
    code: "RAFT_RECOVERY_REFUSED",
    kind: "invalid",
    message: "group {group} is not recovered by force: {reason}",
    help: "Survey all replicas that are left, choose the whole one that holds the most, and confirm.",
  },
  snapshotDamaged: {
    code: "RAFT_SNAPSHOT_DAMAGED",
    kind: "corrupt",
    message: "the snapshot of group {group} in {path} is damaged: {reason}",
    help: "The replica fetches a new one from its leader by itself.",
  },
  hostFailed: {
    code: "RAFT_HOST_FAILED",
    kind: "internal",
    message: "the Raft host stopped after an IO error: {reason}",
    help: "The volume reported an error that is never retried. Check the device; then start again.",
  },
  hostClosed: {
    code: "RAFT_HOST_CLOSED",
    kind: "closed",
    message: "the Raft host is closed",
    help: "The node is stopping; ask again after it has started.",
  },
  peerRefused: {
    code: "RAFT_PEER_REFUSED",
    kind: "invalid",
    message: "the connection of {address} was refused, and told: {reason}",
    help:
      "Compare cluster, site and release of both nodes. A copied or restored directory is no member: " +
      "remove the member and join with an empty one.",
  },
});
