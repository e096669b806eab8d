// The face of the Raft room, published as flagstone/raft.
export { defaultLogSettings, type LogSettings } from "../log/index.ts";
export * from "./codec.ts";
export * from "./core/membership.ts";
export * from "./core/quorum.ts";
export { Raft } from "./core/raft.ts";
export * from "./core/types.ts";
export * from "./errors.ts";
export { type Beginning, beginReplicas } from "./host/beginnings.ts";
export type { HostCounters } from "./host/counters.ts";
export { lockRaftDir } from "./host/dir-lock.ts";
export { createDiskSnapshots } from "./host/disk-snapshots.ts";
export { type Expected, type FormComponents, formCluster } from "./host/forming.ts";
export type { Group, GroupStatus } from "./host/group.ts";
export { type HostComponents, type NewGroup, openRaftHost, type RaftHost } from "./host/host.ts";
export {
  drawUuid,
  formatRaftDir,
  type Identity,
  parseUuid,
  readIdentity,
  type Uuid,
} from "./host/identity.ts";
export { beginLife, type Life } from "./host/life.ts";
export type { SnapshotChunk, SnapshotHead, SnapshotManifest } from "./host/manifest.ts";
export { type Member, MemberTable } from "./host/members.ts";
export { createMemorySnapshots } from "./host/memory-snapshots.ts";
export { type MemoryFaults, MemoryNetwork, noFaults } from "./host/memory-transport.ts";
export * from "./host/ports.ts";
export {
  forceRecovery,
  formatReplicas,
  type RankedReplica,
  type RecoveryPlace,
  type ReplicaReport,
  rankReplicas,
  recoveryConfirmation,
  surveyReplicas,
  type TimeOf,
} from "./host/recovery.ts";
export { type RaftNode, type RaftNodeOptions, startRaftNode } from "./host/standalone.ts";
export {
  defaultStreamSettings,
  type NamedConnection,
  type StreamComponents,
  type StreamSettings,
  StreamTransport,
} from "./host/stream-transport.ts";
export { createTlsNetwork, type PeerCertificates } from "./host/tls-network.ts";
export * from "./script/conversation.ts";
export { Checker, Violation } from "./sim/checker.ts";
export * from "./sim/coverage.ts";
export * from "./sim/flaws.ts";
export {
  addHostCoverage,
  createHostCoverage,
  type HostCoverage,
  hostCoverageHelp,
  uncoveredHosts,
} from "./sim/host-coverage.ts";
export { type HostFaultName, hostFaultNames } from "./sim/host-faults.ts";
export {
  type HostSimOptions,
  type HostSimResult,
  simulateHosts,
} from "./sim/host-simulation.ts";
export * from "./sim/linearizability.ts";
export * from "./sim/shrink.ts";
export * from "./sim/simulation.ts";
export { type FaultName, faultNames } from "./sim/swarm.ts";
