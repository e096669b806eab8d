// Hooks: what the program around a broker may decide and hear of. All of them may be async; several
// sets of hooks are asked in their order.
//
// A decision that is not made in time, an error, and an answer that makes no sense refuse what was
// asked for. What was refused goes no further: no later hook, no subscriber, store or retained
// message hears of it.

import type { Properties } from "../../mqtt/index.ts";
import type { Qos } from "../../session/index.ts";

export type HookClient = {
  readonly clientId: string;
  /** Undefined: anonymous. */
  readonly user: string | undefined;
  /** Address and port; "" where it is not known. */
  readonly remote: string;
};

export type HookLogin = {
  readonly clientId: string;
  readonly userName: string | undefined;
  readonly password: Buffer | undefined;
  readonly remote: string;
  /** Name of the listener. */
  readonly listener: string;
};

export type HookPublish = {
  readonly topic: string;
  /** A copy: it may be kept. */
  readonly payload: Buffer;
  readonly qos: Qos;
  readonly retain: boolean;
  /** Of MQTT 5; without alias and subscription identifiers. */
  readonly properties: Properties;
};

export type HookSubscription = { readonly filter: string; readonly qos: Qos };

/** All but the QoS, which the client must be able to finish. */
export type PublishChange = Partial<Omit<HookPublish, "qos">>;

type Answer<T> = T | Promise<T>;

// biome-ignore lint/suspicious/noConfusingVoidType: a hook without a `return` lets pass.
type Pass = void | undefined | true;

export type Hooks = {
  /** A CONNECT has come. False refuses it before anybody looks at its credentials. */
  preConnect?(login: HookLogin): Answer<Pass | false>;
  /** True or a user lets in, false refuses; nothing leaves it to the next hook and the listener. */
  authenticate?(login: HookLogin): Answer<Pass | false | { readonly user: string | undefined }>;
  /** A client is in. */
  connected?(client: HookClient): Answer<unknown>;
  /** False refuses a PUBLISH or a will; an object changes it. */
  authorizePublish?(client: HookClient, publish: HookPublish): Answer<Pass | false | PublishChange>;
  /** False refuses one filter; an object lowers its QoS. */
  authorizeSubscribe?(
    client: HookClient,
    subscription: HookSubscription,
  ): Answer<Pass | false | { readonly qos: Qos }>;
  /** Before a delivery: false leaves this message out for this client. */
  authorizeForward?(client: HookClient, message: HookPublish & HookOrigin): Answer<Pass | false>;
  /** A PUBLISH of a client was taken: it is durable, as far as anybody durable wants it. */
  published?(client: HookClient, publish: HookPublish): Answer<unknown>;
  /** Filters are subscribed. */
  subscribed?(client: HookClient, subscriptions: readonly HookSubscription[]): Answer<unknown>;
  /** The connection of a client that was in has ended. */
  closed?(client: HookClient, cause: string): Answer<unknown>;
};

export type HookOrigin = { readonly publisher: string };

export type HookName = keyof Hooks;
