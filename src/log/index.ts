// The face of the write-ahead log.
export { readBacklog } from "./backlog.ts";
export { type LogEvent, logChannelName } from "./channel.ts";
export type { LogCounterHelp } from "./counters.ts";
export { logErrors } from "./errors.ts";
export { openLog } from "./log.ts";
export * from "./types.ts";
