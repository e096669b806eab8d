// The face of the admin room.
export { type AdminApp, type AppParts, createAdminApp } from "./app.ts";
export { type AdminClient, type AdminClientOptions, createAdminClient } from "./client.ts";
export * from "./contract.ts";
export { adminErrors, statusOf } from "./errors.ts";
export { familiesOf, type MetricSource, metricsText, snakeCase } from "./metrics.ts";
export { openApiDocument } from "./openapi.ts";
export type * from "./ports.ts";
export { type AdminComponents, type AdminServer, openAdmin } from "./server.ts";
export type { AdminSettings } from "./settings.ts";
