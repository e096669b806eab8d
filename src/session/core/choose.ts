// How one message goes to one session: a single copy over all its subscriptions that match, at the
// highest QoS, with every identifier (MQTT 5: 3.3.4-2 to 3.3.4-5). Pure.

import type { Ttv } from "../../store/index.ts";
import type { Qos, Subscription } from "../api.ts";

export type Choice = {
  readonly qos: Qos;
  readonly retain: boolean;
  readonly identifiers: readonly number[];
  /** A subscription that lasts while the client is away matched, so the message is owed. */
  readonly owed: boolean;
};

const none: readonly number[] = [];

/** Undefined when No Local leaves nothing. */
export function chooseDelivery(
  message: Pick<Ttv, "publisher" | "retain" | "qos">,
  subscriptions: readonly Subscription[],
  clientId: string,
): Choice | undefined {
  let granted = -1;
  let retain = false;
  let identifiers: number[] | undefined;
  const own = message.publisher === clientId;
  for (const subscription of subscriptions) {
    if (own && subscription.noLocal) continue;
    if (subscription.qos > granted) granted = subscription.qos;
    if (subscription.retainAsPublished) retain = message.retain;
    if (subscription.identifier !== 0) {
      if (identifiers === undefined) identifiers = [subscription.identifier];
      else if (!identifiers.includes(subscription.identifier)) {
        identifiers.push(subscription.identifier);
      }
    }
  }
  if (granted < 0) return undefined;
  const qos = Math.min(granted, message.qos) as Qos;
  return { qos, retain, identifiers: identifiers ?? none, owed: granted > 0 };
}

/** A retained message sent because of a SUBSCRIBE (3.3.1-8, 3.3.1-12). */
export function chooseRetained(message: Ttv, subscription: Subscription): Choice {
  const qos = Math.min(subscription.qos, message.qos) as Qos;
  const identifiers = subscription.identifier === 0 ? none : [subscription.identifier];
  return { qos, retain: true, identifiers, owed: subscription.qos > 0 };
}

export function isExpired(message: Ttv, nowUs: number): boolean {
  return message.expiryUs !== 0 && message.expiryUs <= nowUs;
}
