// What connections do, told while it happens to whoever watches: traces of the operator, and programs
// that subscribe to the `diagnostics_channel`s below. Never payloads, passwords, authentication data or
// the values of properties.
//
// Nobody watching costs two comparisons a message. Watchers are called within the turn: what they throw
// is theirs, and they must not keep what they get.

import { type Channel, channel } from "node:diagnostics_channel";
import {
  type ConnectionEnd,
  type ConnectPacket,
  type InboundPublish,
  type ReasonCode,
  reasonName,
  type SubscribeRequest,
  type UnsubscribeRequest,
} from "../mqtt/index.ts";
import type { Delivery } from "../session/index.ts";

/** Of connections: `connect` to `ended`, with subscriptions and acks of deliveries. */
export const connectionChannelName = "flagstone.connection";
/** `publish`, `publish_refused` and `deliver`. */
export const messageChannelName = "flagstone.message";

export type TapEvent = {
  readonly event:
    | "connect"
    | "login_refused"
    | "connected"
    | "ended"
    | "subscribe"
    | "suback"
    | "unsubscribe"
    | "publish"
    | "publish_refused"
    | "answer"
    | "deliver"
    | "ack";
  readonly clientId: string;
  /** Of messages. */
  readonly topic?: string;
  readonly facts: TapFacts;
};

export type TapFacts = Readonly<Record<string, string | number | boolean | readonly string[]>>;
export type TapListener = (event: TapEvent) => void;

export type AckPacket = "PUBACK" | "PUBREC" | "PUBCOMP";

const filtersShown = 20;

export class Tap {
  readonly #listeners = new Set<TapListener>();
  readonly #connections: Channel = channel(connectionChannelName);
  readonly #messages: Channel = channel(messageChannelName);

  get watchesConnections(): boolean {
    return this.#listeners.size > 0 || this.#connections.hasSubscribers;
  }

  get watchesMessages(): boolean {
    return this.#listeners.size > 0 || this.#messages.hasSubscribers;
  }

  /** Returns the end of it. */
  listen(listener: TapListener): () => void {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  }

  ofConnection(event: TapEvent): void {
    this.#connections.publish(event);
    for (const listener of this.#listeners) listener(event);
  }

  ofMessage(event: TapEvent): void {
    this.#messages.publish(event);
    for (const listener of this.#listeners) listener(event);
  }
}

type Named = { readonly client: { readonly clientId: string }; readonly remote: string };

/** One connection's way to tell. */
export class ConnectionTap {
  readonly #tap: Tap;
  readonly #of: Named;

  constructor(tap: Tap, of: Named) {
    this.#tap = tap;
    this.#of = of;
  }

  /** Somebody wants to hear of each packet. */
  get isWatched(): boolean {
    return this.#tap.watchesMessages || this.#tap.watchesConnections;
  }

  connect(packet: ConnectPacket, listener: string): void {
    const { level, cleanStart, keepAliveS, will, userName, properties } = packet;
    this.#tell("connect", () => ({
      ...{ remote: this.#of.remote, listener, protocol: level, cleanStart, keepAliveS },
      ...{ expiryS: properties.sessionExpiryS ?? 0, hasUserName: userName !== undefined },
      ...(will === undefined ? {} : { willTopic: will.topic, willQos: will.qos }),
    }));
  }

  loginRefused(why: string): void {
    this.#tell("login_refused", () => ({ why }));
  }

  connected(sessionPresent: boolean, isDurable: boolean): void {
    this.#tell("connected", () => ({ sessionPresent, isDurable }));
  }

  subscribe({ packetId, filters }: SubscribeRequest): void {
    this.#tell("subscribe", () => ({
      packetId,
      filters: filters.slice(0, filtersShown).map(({ text, options }) => `${options.qos} ${text}`),
    }));
  }

  suback(packetId: number, codes: readonly ReasonCode[]): void {
    this.#tell("suback", () => ({
      packetId,
      reasons: codes.slice(0, filtersShown).map(reasonName),
    }));
  }

  unsubscribe({ packetId, filters }: UnsubscribeRequest): void {
    this.#tell("unsubscribe", () => ({
      packetId,
      filters: filters.slice(0, filtersShown).map(({ text }) => text),
    }));
  }

  /** The broker's answer to a publish: PUBACK, PUBREC or PUBCOMP. */
  answered(reasonCode: ReasonCode): void {
    this.#tell("answer", () => ({ reason: reasonName(reasonCode) }));
  }

  /** The client's answer to a delivery. */
  acked(packet: AckPacket, packetId: number, reasonCode: ReasonCode): void {
    this.#tell("ack", () => ({ packet, packetId, reason: reasonName(reasonCode) }));
  }

  ended({ cause, reasonCode, publishWill, error }: ConnectionEnd): void {
    this.#tell("ended", () => ({
      ...{ cause, reason: reasonName(reasonCode), publishWill },
      ...(error === undefined ? {} : { code: error.code }),
    }));
  }

  publish({ topic, qos, retain, dup, packetId, sizeBytes }: InboundPublish): void {
    if (!this.#tap.watchesMessages) return;
    const facts = { qos, retain, dup, packetId, sizeBytes };
    this.#tap.ofMessage({ event: "publish", clientId: this.#of.client.clientId, topic, facts });
  }

  publishRefused(topic: string, reasonCode: ReasonCode): void {
    if (!this.#tap.watchesMessages) return;
    const facts = { reason: reasonName(reasonCode) };
    const { clientId } = this.#of.client;
    this.#tap.ofMessage({ event: "publish_refused", clientId, topic, facts });
  }

  deliver(topic: string, sizeBytes: number, delivery: Delivery, result: string): void {
    if (!this.#tap.watchesMessages) return;
    const { qos, dup, retain, packetId } = delivery;
    const facts = { result, qos, dup, retain, packetId: packetId ?? 0, sizeBytes };
    this.#tap.ofMessage({ event: "deliver", clientId: this.#of.client.clientId, topic, facts });
  }

  #tell(event: TapEvent["event"], facts: () => TapFacts): void {
    if (!this.#tap.watchesConnections) return;
    this.#tap.ofConnection({ event, clientId: this.#of.client.clientId, facts: facts() });
  }
}
