// The face of the session room.
export type * from "./api.ts";
export { consumedFloors } from "./consumed-floor.ts";
export { sessionErrors } from "./errors.ts";
export type { NodeWordHandler, SessionNodes } from "./nodes.ts";
export { createSessions, type SessionComponents, type SessionRegistry } from "./registry.ts";
export { type SessionCounters, type SessionSettings, sessionSettingsDefault } from "./settings.ts";
