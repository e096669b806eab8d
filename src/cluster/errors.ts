// The codes of the cluster room.

import { defineErrors } from "../base/index.ts";

export const clusterErrors = defineErrors({
  commandCorrupt: {
    code: "CLUSTER_COMMAND_CORRUPT",
    kind: "corrupt",
    message: "entry {index} of shard {shard} holds no command of a shard",
    help: "The group stops on this node. Look at the versions of all nodes, then at its disk.",
  },
  stateLost: {
    code: "CLUSTER_STATE_LOST",
    kind: "corrupt",
    message: "shard {shard} holds its state up to {held}, and its log begins behind {base}",
    help: "The shard's folder was lost or replaced: remove this member and let it join anew.",
  },
  snapshotForeign: {
    code: "CLUSTER_SNAPSHOT_FOREIGN",
    kind: "invalid",
    message: "a snapshot of shard {shard} is not what this release makes of a shard",
    help: "Look at the versions of all nodes.",
  },
  foundingInvalid: {
    code: "CLUSTER_FOUNDING_INVALID",
    kind: "invalid",
    message: "the cluster {cluster} cannot be formed: {reason}",
    help: "Give all first members the same list of names, this node's own among them.",
  },
  rosterCorrupt: {
    code: "CLUSTER_ROSTER_CORRUPT",
    kind: "corrupt",
    message: "the roster's entry or snapshot at {index} holds nothing that this release reads",
    help: "Start the release that the other nodes run, or a later one; then look at this disk.",
  },
  rosterUnreached: {
    code: "CLUSTER_ROSTER_UNREACHED",
    kind: "retry",
    message: "no leader of the roster answered within {waitedMs} ms",
    help: "A majority of its members must be up and reach each other; then ask again.",
  },
  refused: {
    code: "CLUSTER_CHANGE_REFUSED",
    kind: "invalid",
    message: "{reason}",
    help: "Look at the sites of the cluster and their states first.",
  },
  clockOff: {
    code: "CLUSTER_CLOCK_OFF",
    kind: "invalid",
    message: "the clock of this node is {offMs} ms {which} node {node}'s; {maxMs} ms are taken",
    help: "Set the clock, by NTP for example, and start again: a leader's clock gives commit times.",
  },
  dirInUse: {
    code: "CLUSTER_DIR_IN_USE",
    kind: "invalid",
    message: "{dir} holds the data of a node ({found}) and cannot join a cluster",
    help: "Choose an empty directory: nothing is dropped to join.",
  },
  notMember: {
    code: "CLUSTER_NOT_MEMBER",
    kind: "invalid",
    message: "{dir} is of no member of a cluster, and no first members are given to form one with",
    help: "Ask a member of the cluster to take it in, or give the list of the first members.",
  },
  left: {
    code: "CLUSTER_NODE_LEFT",
    kind: "invalid",
    message: "node {node} left the cluster and never comes back",
    help: "Join with an empty directory, under a new number.",
  },
  initRefused: {
    code: "CLUSTER_INIT_REFUSED",
    kind: "invalid",
    message: "{dir} cannot become the first replica of a cluster: {reason}",
    help: "It is as it was. Start the node by itself once, look at what it says, stop it, and try again.",
  },
  recoveryRefused: {
    code: "CLUSTER_RECOVERY_REFUSED",
    kind: "invalid",
    message: "{dir} does not go on alone: {reason}",
    help: "Nothing is changed. Look with `flagstone cluster recover` at what each node that is left holds.",
  },
  peerUnreached: {
    code: "CLUSTER_PEER_UNREACHED",
    kind: "retry",
    message: "node {node} is not reached",
    help: "Look whether it runs, and at the network between the nodes.",
  },
  peerBusy: {
    code: "CLUSTER_PEER_BUSY",
    kind: "retry",
    message: "too much is on the way to node {node} to ask it anything more",
    help: "It or the network to it is slower than what is published; it is asked again later.",
  },
  peerSilent: {
    code: "CLUSTER_PEER_SILENT",
    kind: "retry",
    message: "node {node} did not answer within {waitedMs} ms",
    help: "Look at its load and at the network between the nodes.",
  },
  peerFailed: {
    code: "CLUSTER_PEER_FAILED",
    kind: "retry",
    message: "node {node} cannot do what it was asked for: {reason}",
    help: "Look at the log of that node.",
  },
  stopped: {
    code: "CLUSTER_START_STOPPED",
    kind: "closed",
    message: "the node was told to stop before a majority of its cluster was there",
    help: "Start it again when the other nodes are up.",
  },
});
