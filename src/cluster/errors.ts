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
    message: "a snapshot of shard {shard} says only that its maker holds the state",
    help: "It is of use to the node that took it alone: the log has to reach far enough back.",
  },
});
