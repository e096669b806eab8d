// The face of the composition root: what the launcher and embedding programs use.

export type {
  HookClient,
  HookLogin,
  HookPublish,
  HookSubscription,
  Hooks,
  PublishChange,
} from "../broker/index.ts";
export type { ConfigurationView } from "./admin/configuration-view.ts";
export { examineDirectory } from "./admin/doctor.ts";
export type { AdminAddress } from "./admin/operator.ts";
export type { BoundListener, Components, SecurityFace } from "./assemble.ts";
export { address, type BannerFacts, bannerLines, weakGroupsOf } from "./banner.ts";
export type { ConfigChange } from "./config/changes.ts";
export {
  type Config,
  type ConfigSources,
  createSettings,
  readConfig,
  secretFilesOf,
} from "./config/config.ts";
export type { Environment } from "./config/environment.ts";
export { openConfigFile, readSecretFile } from "./config/files.ts";
export { configurationSchema, formatSchema } from "./config/json-schema.ts";
export { keyTable, type Settings } from "./config/keys.ts";
export type { Place } from "./config/place.ts";
export type { Assignment } from "./config/raw.ts";
export { configurationReference } from "./config/reference.ts";
export { RunningConfiguration } from "./config/reload.ts";
export { noLimit } from "./config/schema.ts";
export { isLoopback } from "./config/security-rules.ts";
export { showConfig } from "./config/show.ts";
export { dataFormat } from "./data-dir.ts";
export {
  type BrokerClock,
  type BrokerOptions,
  createBroker,
  type EmbeddedBroker,
} from "./embed/create-broker.ts";
export type { BrokerEventName, BrokerEvents, BrokerListener } from "./embed/events.ts";
export type { HistoryOptions } from "./embed/history.ts";
export type { Inside } from "./embed/inside.ts";
export type { InsideMessage, PublishOptions } from "./embed/message.ts";
export type { InsideSubscription, SubscribeOptions } from "./embed/subscription.ts";
export { errorTables, helpOfCode } from "./error-tables.ts";
export { configErrors, nodeErrors } from "./errors.ts";
export { startNode } from "./local.ts";
export { createLineWriter, createLogger, type LogLevel, type NodeLogger } from "./logger.ts";
export type { RunningNode } from "./node.ts";
export { warnWhenOpen } from "./security/files.ts";
export { type SignalSource, type StopSignal, watchSignals } from "./signals.ts";
export { version } from "./version.ts";
