// The face of the Aedes room, published as `flagstone/aedes`.
export { CallbackPersistence } from "./callbacks.ts";
export {
  type BusListener,
  type BusMessage,
  type EmitterOptions,
  FlagstoneEmitter,
  type MqttBusClient,
} from "./emitter.ts";
export { type AedesErrorCode, aedesErrors } from "./errors.ts";
export {
  type MigrationCounts,
  type MigrationItem,
  type MigrationOptions,
  type MigrationSource,
  migrate,
} from "./migrate.ts";
export { createPersistence, type OpenOptions, openPersistence } from "./open.ts";
export {
  type PersistenceComponents,
  type PersistenceOptions,
  StorePersistence,
} from "./persistence.ts";
export {
  type LevelDatabase,
  level,
  type MongoDatabase,
  mongodb,
  type RedisDatabase,
  redis,
} from "./sources.ts";
export type {
  AedesBroker,
  AedesClient,
  AedesMatch,
  AedesPacket,
  AedesSubscription,
} from "./types.ts";
