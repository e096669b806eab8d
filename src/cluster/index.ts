// The face of the cluster room.

export {
  defaultForwardSettings,
  type ForwardSettings,
} from "./core/forward-queue.ts";
export { type ClusterCounters, clusterCounterHelp } from "./counters.ts";
export { clusterErrors } from "./errors.ts";
export { Forwarder, type ForwarderParts, type ForwardPeers } from "./forwarder.ts";
export { RaftLogs, type RaftLogsSettings } from "./raft-logs.ts";
