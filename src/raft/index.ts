// The face of the Raft room, published as flagstone/raft.
export * from "./codec.ts";
export * from "./core/membership.ts";
export * from "./core/quorum.ts";
export { Raft } from "./core/raft.ts";
export * from "./core/types.ts";
export * from "./errors.ts";
export * from "./script/conversation.ts";
export { Checker, Violation } from "./sim/checker.ts";
export * from "./sim/coverage.ts";
export * from "./sim/flaws.ts";
export * from "./sim/linearizability.ts";
export * from "./sim/shrink.ts";
export * from "./sim/simulation.ts";
export { type FaultName, faultNames } from "./sim/swarm.ts";
