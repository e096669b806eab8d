// The face of the store room, published as `flagstone/store`.
export * from "./api.ts";
export { type StoreEvent, storeChannelName } from "./channel.ts";
export type { CopyPage, CopySource, SlabStoreName } from "./copies/copy-source.ts";
export { ltsSettingsDefault } from "./core/lts.ts";
export { storeErrors } from "./errors.ts";
export type { EvidenceItem } from "./evidence.ts";
export type {
  LogFront,
  LogReplica,
  MapReplica,
  ShardCall,
  ShardFronts,
  ShardReplica,
} from "./fronts.ts";
export { type GroupSettings, groupSettingsDefault } from "./group.ts";
export { type LocalStoreOptions, type OpenedStore, openLocalStore } from "./local.ts";
export { escapeLevel, unescapeLevel } from "./map/keys.ts";
export { followRows, type RowFollower } from "./map/row-follow.ts";
export { type Commit, TransactionRunner } from "./map/transaction.ts";
export { MemoryMachine, memorySegmentBytes } from "./memory-machine.ts";
export * from "./operator-api.ts";
export { type StoreSettings, storeSettingsDefault } from "./settings.ts";
export type { ShardEntry, ShardLog, ShardLogHandlers, ShardLogs } from "./shard-log.ts";
export {
  type LocalStore,
  openStore,
  type StoreComponents,
} from "./store.ts";
export { type Decided, errorOf, refusals, type ShardRequest } from "./verdict.ts";
