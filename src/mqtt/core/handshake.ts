// Pure parts of CONNECT and its answer, and of SUBSCRIBE: what follows from a packet and the
// settings alone.

import type { CodedError } from "../../base/index.ts";
import {
  parseSubscriptionFilter,
  subscriptionFilterFault,
  type TopicLimits,
} from "../../topic/index.ts";
import type { DecodeContext } from "../codec/decode-context.ts";
import type {
  ConnectPacket,
  Qos,
  SubscribePacket,
  SubscriptionOptions,
  UnsubscribePacket,
} from "../codec/packets.ts";
import { noProperties, type Properties } from "../codec/properties.ts";
import { reason } from "../codec/reasons.ts";
import { malformed, mqttErrors, protocolError } from "../errors.ts";
import type { PeerLimits } from "./packet-sender.ts";
import type {
  ConnectAnswer,
  RequestedFilter,
  ServerConnectionSettings,
  ServerEvents,
  SubscribeRequest,
  UnsubscribeRequest,
} from "./server-types.ts";

const receiveMaximumDefault = 0xffff;

/** Receive Maximum of the client: how many of our messages it takes at once. */
export function receiveMaximumOf(packet: ConnectPacket): number {
  return packet.properties.receiveMaximum ?? receiveMaximumDefault;
}

export function peerLimitsOf(
  packet: ConnectPacket,
  settings: ServerConnectionSettings,
): PeerLimits {
  const { maximumPacketSize, topicAliasMaximum = 0, requestProblemInformation } = packet.properties;
  return {
    version: packet.level === 5 ? 5 : 4,
    maxPacketSize: maximumPacketSize ?? Number.POSITIVE_INFINITY,
    topicAliasMax: Math.min(topicAliasMaximum, settings.topicAliasMaximumOut),
    problemInformation: requestProblemInformation !== false,
  };
}

/** Before CONNECT nothing is known; its form decides. */
export function decodeContextOf(
  settings: ServerConnectionSettings,
  packet: ConnectPacket | undefined,
): DecodeContext {
  return {
    version: packet !== undefined && packet.level !== 5 ? 4 : 5,
    sender: "client",
    dupAnywhere: packet?.level === 3,
    userPropertiesMax: settings.userPropertiesMax,
    topicLevelsMax: settings.topicLevelsMax,
    filtersMax: settings.filtersMax,
    refuseControlCharacters: settings.refuseControlCharacters,
  };
}

/** The keep alive that counts, and whether CONNACK must say so. */
export function keepAliveOf(
  packet: ConnectPacket,
  answer: ConnectAnswer,
  settings: ServerConnectionSettings,
): { readonly keepAliveS: number; readonly announce: boolean } {
  const own = packet.keepAliveS;
  // A 3.1.1 client cannot be told another value: it is timed by its own.
  if (packet.level !== 5) return { keepAliveS: own, announce: false };
  const given = answer.properties?.serverKeepAliveS;
  if (given !== undefined) return { keepAliveS: given, announce: true };
  const max = settings.keepAliveMaxS;
  if (max > 0 && (own === 0 || own > max)) return { keepAliveS: max, announce: true };
  return { keepAliveS: own, announce: false };
}

export function connackProperties(
  packet: ConnectPacket,
  answer: ConnectAnswer,
  settings: ServerConnectionSettings,
): Properties {
  if (packet.level !== 5) return noProperties;
  const { keepAliveS, announce } = keepAliveOf(packet, answer, settings);
  const method = packet.properties.authenticationMethod;
  return {
    ...(method !== undefined && { authenticationMethod: method }),
    ...(settings.receiveMaximum < receiveMaximumDefault && {
      receiveMaximum: settings.receiveMaximum,
    }),
    ...(settings.topicAliasMaximum > 0 && { topicAliasMaximum: settings.topicAliasMaximum }),
    maximumPacketSize: settings.maxPacketSize,
    ...offers(packet, settings),
    ...answer.properties,
    ...(announce && { serverKeepAliveS: keepAliveS }),
  };
}

/** What the broker does not do, and what the client has asked to be told (3.1.2-28). */
function offers(packet: ConnectPacket, settings: ServerConnectionSettings): Properties {
  const { maximumQos, retainAvailable, responseInformation } = settings;
  const isAsked = packet.properties.requestResponseInformation === true;
  return {
    ...(maximumQos < 2 && { maximumQos }),
    ...(!retainAvailable && { retainAvailable }),
    ...(isAsked && responseInformation !== "" && { responseInformation }),
  };
}

/**
 * Why a publish or a will asks for more than CONNACK offers (3.2.2-11 to -14), with the reason to
 * answer; undefined when it does not.
 */
export function offerFault(
  { qos, retain }: { readonly qos: Qos; readonly retain: boolean },
  { maximumQos, retainAvailable }: ServerConnectionSettings,
): CodedError | undefined {
  if (qos > maximumQos) {
    const what = `QoS ${qos}, the maximum is ${maximumQos}`;
    return mqttErrors.notOffered({ reasonCode: reason.qosNotSupported, what });
  }
  if (retain && !retainAvailable) {
    return mqttErrors.notOffered({ reasonCode: reason.retainNotSupported, what: "RETAIN" });
  }
  return undefined;
}

/** @throws MQTT_PACKET_MALFORMED for a broken `$share` (4.8.2-1, -2). */
export function subscribeRequest(
  packet: SubscribePacket,
  bridge: boolean,
  settings: ServerConnectionSettings,
): SubscribeRequest {
  const { maximumQos } = settings;
  const limits = topicLimitsOf(settings);
  const filters = packet.filters.map(({ filter, options: asked }) => {
    const options = asked.qos > maximumQos ? { ...asked, qos: maximumQos } : asked;
    const requested = requestedFilter(filter, limits);
    const plain = requested.filter?.group === undefined;
    return { ...requested, options: bridge && plain ? bridgeOptions(options) : options };
  });
  const subscriptionId = packet.properties.subscriptionIdentifiers?.[0];
  return { packetId: packet.packetId, subscriptionId, filters, properties: packet.properties };
}

/** What bridges of 3.1.1 mean without being able to say it: no loops, RETAIN as it was. */
function bridgeOptions(options: SubscriptionOptions): SubscriptionOptions {
  return { ...options, noLocal: true, retainAsPublished: true };
}

/** @throws MQTT_PACKET_MALFORMED for a broken `$share`. */
export function unsubscribeRequest(
  packet: UnsubscribePacket,
  settings: ServerConnectionSettings,
): UnsubscribeRequest {
  const limits = topicLimitsOf(settings);
  const filters = packet.filters.map((filter) => requestedFilter(filter, limits));
  return { packetId: packet.packetId, filters, properties: packet.properties };
}

/** What tells the owner of a packet of filters. @throws MQTT_PACKET_MALFORMED for a broken `$share`. */
export function filtersEvent(
  packet: SubscribePacket | UnsubscribePacket,
  bridge: boolean,
  settings: ServerConnectionSettings,
): (events: ServerEvents) => void {
  if (packet.type === "subscribe") {
    const request = subscribeRequest(packet, bridge, settings);
    return (events) => events.onSubscribe(request);
  }
  const request = unsubscribeRequest(packet, settings);
  return (events) => events.onUnsubscribe(request);
}

/** A session that CONNECT let end with the connection cannot be kept by DISCONNECT (3.14.2-2). */
export function disconnectFault(
  connect: ConnectPacket,
  { sessionExpiryS = 0 }: Properties,
): CodedError | undefined {
  if (sessionExpiryS === 0 || (connect.properties.sessionExpiryS ?? 0) > 0) return undefined;
  return protocolError("DISCONNECT sets a session expiry that CONNECT did not");
}

function topicLimitsOf(settings: ServerConnectionSettings): TopicLimits {
  return {
    levelsMax: settings.topicLevelsMax,
    controlCharacters: settings.refuseControlCharacters ? "refuse" : "allow",
  };
}

function requestedFilter(text: string, limits: TopicLimits): RequestedFilter {
  const fault = subscriptionFilterFault(text, limits);
  if (fault === undefined) {
    return { text, filter: parseSubscriptionFilter(text, limits), fault: undefined };
  }
  if (fault.startsWith("share_")) throw malformed(`shared subscription: ${fault}`);
  return { text, filter: undefined, fault };
}
