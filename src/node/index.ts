// The face of the composition root: what the launcher and the tests use, besides what programs get.

export type { ConfigurationView } from "./admin/configuration-view.ts";
export { examineDirectory } from "./admin/doctor.ts";
export type { SecurityFace } from "./assemble.ts";
export { address, type BannerFacts, bannerLines, weakGroupsOf } from "./banner.ts";
export type { ConfigChange } from "./config/changes.ts";
export {
  type Config,
  type ConfigSources,
  readConfig,
  secretFilesOf,
} from "./config/config.ts";
export type { Environment } from "./config/environment.ts";
export { openConfigFile, readSecretFile } from "./config/files.ts";
export { configurationSchema, formatSchema } from "./config/json-schema.ts";
export { keyTable } from "./config/keys.ts";
export type { Place } from "./config/place.ts";
export type { Assignment } from "./config/raw.ts";
export { configurationReference } from "./config/reference.ts";
export { RunningConfiguration } from "./config/reload.ts";
export { noLimit } from "./config/schema.ts";
export { isLoopback } from "./config/security-rules.ts";
export { showConfig } from "./config/show.ts";
export { dataFormat } from "./data-dir.ts";
export { errorTables, helpOfCode } from "./error-tables.ts";
export { configErrors, nodeErrors } from "./errors.ts";
export * from "./face.ts";
export { createLineWriter, createLogger, type LogLevel, type NodeLogger } from "./logger.ts";
export { warnWhenOpen } from "./security/files.ts";
export { type SignalSource, type StopSignal, watchSignals } from "./signals.ts";
