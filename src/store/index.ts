// The face of the store room, published as `flagstone/store`.
export * from "./api.ts";
export { type StoreEvent, storeChannelName } from "./channel.ts";
export type { CopyPage, CopySource, SlabStoreName } from "./copies/copy-source.ts";
export { ltsSettingsDefault } from "./core/lts.ts";
export { storeErrors } from "./errors.ts";
export { type GroupSettings, groupSettingsDefault } from "./group.ts";
export { type LocalStoreOptions, type OpenedStore, openLocalStore } from "./local.ts";
export { escapeLevel, unescapeLevel } from "./map/keys.ts";
export { MemoryMachine, memorySegmentBytes } from "./memory-machine.ts";
export * from "./operator-api.ts";
export { type StoreSettings, storeSettingsDefault } from "./settings.ts";
export type { ShardEntry, ShardLog, ShardLogHandlers, ShardLogs } from "./shard-log.ts";
export {
  type LocalStore,
  openStore,
  type StoreComponents,
} from "./store.ts";
