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
export { defaultKeepSettings, type KeepSettings } from "./core/kept-log.ts";
export * from "./core/roster.ts";
export { type ClusterCounters, clusterCounterHelp } from "./counters.ts";
export { clusterErrors } from "./errors.ts";
export {
  becomeFirstReplica,
  type FirstReplica,
  type FirstReplicaComponents,
  type FirstReplicaSettings,
} from "./first-replica.ts";
export { Forwarder, type ForwarderParts, type ForwardPeers } from "./forwarder.ts";
export { type Founding, type FoundingMember, isName } from "./founding.ts";
export { becomeMember, isMemberDir, membersOf, prepareSite } from "./joining.ts";
export {
  type ChannelSettings,
  defaultChannelSettings,
  MemberChannel,
  type NodeChannel,
  type PeerListener,
  type WordHandler,
} from "./node-channel.ts";
export { RaftLogs, type RaftLogsParts, type RaftLogsSettings } from "./raft-logs.ts";
export { type MemberSurvey, recoverMember, surveyMember } from "./recovery.ts";
export { type CopySettings, defaultCopySettings } from "./remote-copy.ts";
export { RosterClient } from "./roster-client.ts";
export { rosterGroup } from "./roster-machine.ts";
