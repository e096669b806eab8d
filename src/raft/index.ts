// The face of the Raft room, published as flagstone/raft.
export * from "./codec.ts";
export * from "./core/membership.ts";
export * from "./core/quorum.ts";
export { Raft } from "./core/raft.ts";
export * from "./core/types.ts";
export * from "./errors.ts";
export * from "./script/conversation.ts";
export * from "./sim/index.ts";
