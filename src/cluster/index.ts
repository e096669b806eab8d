// The face of the cluster room.

export {
  type ClusterNode,
  type ClusterNodeComponents,
  type ClusterNodeSettings,
  openClusterNode,
} from "./cluster-node.ts";
export { Controller, type ControllerSettings, defaultControllerSettings } from "./controller.ts";
export {
  defaultForwardSettings,
  type ForwardSettings,
} from "./core/forward-queue.ts";
export * from "./core/roster.ts";
export { type ClusterCounters, clusterCounterHelp } from "./counters.ts";
export { clusterErrors } from "./errors.ts";
export { Forwarder, type ForwarderParts, type ForwardPeers } from "./forwarder.ts";
export type { Founding, FoundingMember } from "./founding.ts";
export { becomeMember, isMemberDir, membersOf, prepareSite } from "./joining.ts";
export { RaftLogs, type RaftLogsSettings } from "./raft-logs.ts";
export { RosterClient } from "./roster-client.ts";
export { rosterGroup } from "./roster-machine.ts";
