// What a program gets as `flagstone`: brokers inside of it. The launcher's own needs are in index.ts.
//
// Who embeds a broker waits for what this loads: a test counts the modules. The HTTP interface is
// loaded when a node is to have one.

export { CodedError, type ErrorKind, isCodedError, type Logger } from "../base/index.ts";
export type {
  HookClient,
  HookLogin,
  HookPublish,
  HookSubscription,
  Hooks,
  PublishChange,
} from "../broker/index.ts";
export type { Properties } from "../mqtt/index.ts";
export type { MapTransaction } from "../store/index.ts";
export type { AdminAddress } from "./admin/operator.ts";
export type { BoundListener, Components } from "./assemble.ts";
export { createSettings } from "./config/config.ts";
export type { Settings } from "./config/keys.ts";
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
export { startNode } from "./local.ts";
export type { RunningNode } from "./node.ts";
export { version } from "./version.ts";
