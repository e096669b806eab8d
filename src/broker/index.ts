// The face of the broker room.
export { type AccessAction, type AccessPort, allowAll, type Client } from "./access.ts";
export { Broker, type BrokerComponents, createBroker, type SessionPorts } from "./broker.ts";
export type { ClientDirectory, ClientPage, ClientView } from "./clients.ts";
export { type BrokerCounters, createBrokerCounters } from "./counters.ts";
export { brokerErrors } from "./errors.ts";
export { type BrokerSettings, brokerSettingsDefault } from "./settings.ts";
