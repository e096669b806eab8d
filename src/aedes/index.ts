// The face of the Aedes room, published as `flagstone/aedes`.
export { CallbackPersistence } from "./callbacks.ts";
export { type AedesErrorCode, aedesErrors } from "./errors.ts";
export { createPersistence, type OpenOptions, openPersistence } from "./open.ts";
export {
  type PersistenceComponents,
  type PersistenceOptions,
  StorePersistence,
} from "./persistence.ts";
export type {
  AedesBroker,
  AedesClient,
  AedesMatch,
  AedesPacket,
  AedesSubscription,
} from "./types.ts";
