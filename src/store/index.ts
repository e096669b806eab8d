// The face of the store room, published as `flagstone/store`.
export * from "./api.ts";
export { ltsSettingsDefault } from "./core/lts.ts";
export { storeErrors } from "./errors.ts";
export { type GroupSettings, groupSettingsDefault } from "./group.ts";
export { escapeLevel, unescapeLevel } from "./map/keys.ts";
export * from "./operator-api.ts";
export { type StoreSettings, storeSettingsDefault } from "./settings.ts";
export {
  type LocalStore,
  openStore,
  type StoreComponents,
} from "./store.ts";
