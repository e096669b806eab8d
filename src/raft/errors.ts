// The codes of the Raft room. Whoever cannot use its directory reads the message and nothing else:
// those of directories say what to do in it.

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
    message:
      "{dir} holds no Raft identity: form a cluster or join one with it, as a new node. If a member " +
      "lived here, its disk was wiped: remove that member and join under a new number",
    help: "An empty disk is never an old member, whatever its name and address.",
  },
  dirWiped: {
    code: "RAFT_DIR_WIPED",
    kind: "corrupt",
    message:
      "{dir} has lost the identity of the member that it belongs to, and still holds {found}: bring " +
      "the whole disk back, or remove that member and join with an empty directory and a new number",
    help: "What is left may have voted. It is neither opened nor formatted over.",
  },
  dirInUse: {
    code: "RAFT_DIR_NOT_EMPTY",
    kind: "invalid",
    message:
      "{dir} holds Raft data already ({found}): open it instead, or choose an empty directory",
    help: "Nothing is ever formatted over data.",
  },
  dirLocked: {
    code: "RAFT_DIR_LOCKED",
    kind: "invalid",
    message:
      "{dir} is in use by another process: stop that one, or give this one a directory of its own",
    help: "Two processes on one log would cut what the other writes.",
  },
  dirDamaged: {
    code: "RAFT_DIR_DAMAGED",
    kind: "corrupt",
    message:
      "{path} is damaged in both copies: remove this member from its groups, and join with an empty " +
      "directory and a new number",
    help: "The other members still hold what it held. Keep the directory until it has joined.",
  },
  dirNewer: {
    code: "RAFT_DIR_NEWER",
    kind: "invalid",
    message:
      "{path} has format {version}, and this release reads up to {known}: start the release that " +
      "wrote this directory, or a later one",
    help: "A directory is never changed back to an older format.",
  },
  identityForeign: {
    code: "RAFT_IDENTITY_FOREIGN",
    kind: "invalid",
    message:
      "{dir} belongs to {what} {found}, and this node is of {what} {wanted}: give the node its own " +
      "directory, or correct the ids that it is started with",
    help: "A directory that was copied from another node is of no use to this one: give it an empty one.",
  },
  identityRefused: {
    code: "RAFT_IDENTITY_REFUSED",
    kind: "invalid",
    message:
      "the cluster knows site {site} with disk {known}, and this disk is {own}: it was replaced or " +
      "wiped. Remove that member, and join with this directory under a new number",
    help: "A new disk is a new member: it has forgotten what the old one promised.",
  },
  memberConflict: {
    code: "RAFT_MEMBER_CONFLICT",
    kind: "invalid",
    message:
      "node {node} is bound to disk {known} and cannot be given to disk {given}: choose a new number",
    help: "Numbers of nodes are never used again.",
  },
  metaLost: {
    code: "RAFT_META_LOST",
    kind: "corrupt",
    message:
      "term and vote of group {group} cannot be read in {path}, and this replica may have voted: " +
      "remove it from the group, and add it again under a new number",
    help: "It fetches what it held from the other members.",
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
    message:
      "the connection of {address} was refused, and told: {reason}. Compare cluster, site, " +
      "certificate and release of both nodes",
    help:
      "A copied or restored directory is no member: remove the member, and join with an empty " +
      "directory and a new number.",
  },
});
