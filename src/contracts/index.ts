// The face of the contract suites, published as `flagstone/contracts`: rules that every
// implementation of a seam of the store must keep, for whatever runs tests.

export { type BackendRig, backendContract } from "./backend.ts";
export { type KvRig, kvContract } from "./kv.ts";
export { type LayoutEnd, type LayoutRig, type LayoutShard, layoutContract } from "./layout.ts";
export type { ContractRule, Rig } from "./rule.ts";
export { type ShardLogEnd, type ShardLogRig, shardLogContract } from "./shard-log.ts";
