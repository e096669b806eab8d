// Packets from their bytes: everything except CONNECT (`decode-connect.ts`) and the hot way of
// PUBLISH (`publish-frame.ts`).
//
// Strict: reserved bits, lengths, identifiers, properties and reason codes are checked as MQTT 5
// and 3.1.1 ask, and a packet is valid or an error with the reason code to answer with. What needs
// to know the connection (aliases, states, quotas) is left to the core; filter syntax to the topic
// room.

import type { CodedError } from "../../base/index.ts";
import { malformed, protocolError, quotaExceeded } from "../errors.ts";
import { decodeConnect } from "./decode-connect.ts";
import { checkResponseTopic, type DecodeContext, propertiesOf } from "./decode-context.ts";
import {
  type AuthPacket,
  type ConnackPacket,
  type DisconnectPacket,
  type Packet,
  type PublishAckPacket,
  type PublishAckType,
  type PublishPacket,
  packetTypes,
  type Qos,
  type SubackPacket,
  type SubscribePacket,
  type SubscriptionOptions,
  type UnsubackPacket,
  type UnsubscribePacket,
} from "./packets.ts";
import { noProperties, type Properties } from "./properties.ts";
import { PacketReader } from "./reader.ts";
import { type ReasonCode, reason, reasonsOf } from "./reasons.ts";

const typesOfServer: ReadonlySet<number> = new Set([
  packetTypes.connack,
  packetTypes.suback,
  packetTypes.unsuback,
  packetTypes.pingresp,
]);
const typesOfClient: ReadonlySet<number> = new Set([
  packetTypes.connect,
  packetTypes.subscribe,
  packetTypes.unsubscribe,
  packetTypes.pingreq,
]);
const dupBit = 0x08;

/** The fault of a first byte: unknown type, type of the other side, or wrong flags. */
export function firstByteFault(firstByte: number, context: DecodeContext): CodedError | undefined {
  const type = firstByte >>> 4;
  const foreign = context.sender === "client" ? typesOfServer : typesOfClient;
  if (type === 0) return protocolError("packet type 0");
  if (foreign.has(type)) return protocolError(`packet type ${type} from a ${context.sender}`);
  if (type === packetTypes.auth && context.version !== 5)
    return protocolError("AUTH before MQTT 5");
  if (type === packetTypes.disconnect && context.version !== 5 && context.sender === "server") {
    return protocolError("DISCONNECT from a server before MQTT 5");
  }
  if (type === packetTypes.publish) return publishFlagsFault(firstByte);
  let flags = firstByte & 0x0f;
  const needed =
    type === packetTypes.pubrel ||
    type === packetTypes.subscribe ||
    type === packetTypes.unsubscribe
      ? 0x02
      : 0;
  if (needed !== 0 && context.dupAnywhere) flags &= ~dupBit;
  return flags === needed ? undefined : malformed(`flags ${flags} of packet type ${type}`);
}

export function publishFlagsFault(firstByte: number): CodedError | undefined {
  const qos = (firstByte >>> 1) & 3;
  if (qos === 3) return malformed("PUBLISH with QoS 3");
  if (qos === 0 && (firstByte & dupBit) !== 0) return malformed("PUBLISH with DUP at QoS 0");
  return undefined;
}

/**
 * The packet whose bytes are `bytes[start, end)`, the body beginning at `bodyStart`.
 * @throws MQTT_PACKET_MALFORMED, MQTT_PROTOCOL_ERROR, MQTT_QUOTA_EXCEEDED,
 * MQTT_TOPIC_NAME_INVALID and for CONNECT also MQTT_VERSION_UNSUPPORTED, MQTT_CLIENT_ID_INVALID,
 * each with `details.reasonCode`.
 */
export function decodePacket(
  bytes: Buffer,
  start: number,
  bodyStart: number,
  end: number,
  context: DecodeContext,
): Packet {
  const firstByte = bytes[start] as number;
  const fault = firstByteFault(firstByte, context);
  if (fault !== undefined) throw fault;
  const reader = new PacketReader(bytes, bodyStart, end, context);
  const packet = decodeBody(reader, firstByte, context);
  reader.expectEnd(packet.type);
  return packet;
}

function decodeBody(reader: PacketReader, firstByte: number, context: DecodeContext): Packet {
  switch (firstByte >>> 4) {
    case packetTypes.connect:
      return decodeConnect(reader, context);
    case packetTypes.connack:
      return decodeConnack(reader, context);
    case packetTypes.publish:
      return decodePublish(reader, firstByte, context);
    case packetTypes.puback:
      return decodePublishAck(reader, "puback", context);
    case packetTypes.pubrec:
      return decodePublishAck(reader, "pubrec", context);
    case packetTypes.pubrel:
      return decodePublishAck(reader, "pubrel", context);
    case packetTypes.pubcomp:
      return decodePublishAck(reader, "pubcomp", context);
    case packetTypes.subscribe:
      return decodeSubscribe(reader, context);
    case packetTypes.suback:
      return decodeSuback(reader, context);
    case packetTypes.unsubscribe:
      return decodeUnsubscribe(reader, context);
    case packetTypes.unsuback:
      return decodeUnsuback(reader, context);
    case packetTypes.pingreq:
      return { type: "pingreq" };
    case packetTypes.pingresp:
      return { type: "pingresp" };
    case packetTypes.disconnect:
      return decodeDisconnect(reader, context);
    default:
      return decodeAuth(reader, context);
  }
}

function packetIdOf(reader: PacketReader): number {
  const packetId = reader.u16("packet identifier");
  if (packetId === 0) throw protocolError("packet identifier 0");
  return packetId;
}

function decodePublish(
  reader: PacketReader,
  firstByte: number,
  context: DecodeContext,
): PublishPacket {
  const qos = ((firstByte >>> 1) & 3) as Qos;
  const topic = reader.topicName("topic name");
  const packetId = qos === 0 ? 0 : packetIdOf(reader);
  const properties = propertiesOf(reader, packetTypes.publish, context);
  if (properties.subscriptionIdentifiers !== undefined && context.sender === "client") {
    throw protocolError("subscription identifier from a client");
  }
  if (properties.responseTopic !== undefined) checkResponseTopic(properties.responseTopic);
  if (topic === "" && properties.topicAlias === undefined) throw protocolError("empty topic name");
  return {
    type: "publish",
    topic,
    payload: reader.rest(),
    qos,
    dup: (firstByte & dupBit) !== 0,
    retain: (firstByte & 1) !== 0,
    packetId,
    properties,
  };
}

function decodePublishAck(
  reader: PacketReader,
  type: PublishAckType,
  context: DecodeContext,
): PublishAckPacket {
  const packetId = packetIdOf(reader);
  if (context.version !== 5 || reader.remaining === 0) {
    return { type, packetId, reasonCode: reason.success, properties: noProperties };
  }
  const reasonCode = reasonOf(reader, reasonsOf[type], type);
  return { type, packetId, reasonCode, properties: lastProperties(reader, type, context) };
}

/** Properties that may be left out together with their length, at the end of a packet. */
function lastProperties(
  reader: PacketReader,
  type: keyof typeof packetTypes,
  context: DecodeContext,
): Properties {
  return reader.remaining === 0 ? noProperties : propertiesOf(reader, packetTypes[type], context);
}

function reasonOf(
  reader: PacketReader,
  allowed: ReadonlySet<ReasonCode>,
  what: string,
): ReasonCode {
  const code = reader.u8("reason code");
  if (!allowed.has(code)) throw protocolError(`reason code 0x${code.toString(16)} in ${what}`);
  return code;
}

function decodeSubscribe(reader: PacketReader, context: DecodeContext): SubscribePacket {
  const packetId = packetIdOf(reader);
  const properties = propertiesOf(reader, packetTypes.subscribe, context);
  const filters: Array<SubscribePacket["filters"][number]> = [];
  while (reader.remaining > 0) {
    const filter = filterOf(reader);
    const options = subscriptionOptionsOf(reader, context);
    if (options.noLocal && isSharedFilter(filter)) {
      throw protocolError("No Local on a shared subscription");
    }
    if (filters.length === context.filtersMax) throw quotaExceeded("filters", context.filtersMax);
    filters.push({ filter, options });
  }
  if (filters.length === 0) throw protocolError("SUBSCRIBE without a filter");
  return { type: "subscribe", packetId, filters, properties };
}

function filterOf(reader: PacketReader): string {
  const filter = reader.topicFilter("topic filter");
  if (filter === "") throw malformed("empty topic filter");
  return filter;
}

function isSharedFilter(filter: string): boolean {
  return filter.startsWith("$share/");
}

function subscriptionOptionsOf(reader: PacketReader, context: DecodeContext): SubscriptionOptions {
  const byte = reader.u8("subscription options");
  const qos = byte & 3;
  const retainHandling = (byte >>> 4) & 3;
  const reserved = context.version === 5 ? 0xc0 : 0xfc;
  if ((byte & reserved) !== 0) throw malformed("reserved bits in subscription options");
  if (qos === 3) throw malformed("subscription with QoS 3");
  if (retainHandling === 3) throw malformed("retain handling 3");
  return {
    qos: qos as Qos,
    noLocal: (byte & 4) !== 0,
    retainAsPublished: (byte & 8) !== 0,
    retainHandling: retainHandling as 0 | 1 | 2,
  };
}

function decodeUnsubscribe(reader: PacketReader, context: DecodeContext): UnsubscribePacket {
  const packetId = packetIdOf(reader);
  const properties = propertiesOf(reader, packetTypes.unsubscribe, context);
  const filters: string[] = [];
  while (reader.remaining > 0) {
    if (filters.length === context.filtersMax) throw quotaExceeded("filters", context.filtersMax);
    filters.push(filterOf(reader));
  }
  if (filters.length === 0) throw protocolError("UNSUBSCRIBE without a filter");
  return { type: "unsubscribe", packetId, filters, properties };
}

const subackCodesBefore5: ReadonlySet<ReasonCode> = new Set([0, 1, 2, 0x80]);

function decodeSuback(reader: PacketReader, context: DecodeContext): SubackPacket {
  const packetId = packetIdOf(reader);
  const properties = propertiesOf(reader, packetTypes.suback, context);
  const allowed = context.version === 5 ? reasonsOf.suback : subackCodesBefore5;
  const reasonCodes: ReasonCode[] = [];
  while (reader.remaining > 0) reasonCodes.push(reasonOf(reader, allowed, "suback"));
  if (reasonCodes.length === 0) throw protocolError("SUBACK without a reason code");
  return { type: "suback", packetId, reasonCodes, properties };
}

function decodeUnsuback(reader: PacketReader, context: DecodeContext): UnsubackPacket {
  const packetId = packetIdOf(reader);
  const properties = propertiesOf(reader, packetTypes.unsuback, context);
  const reasonCodes: ReasonCode[] = [];
  if (context.version === 5) {
    while (reader.remaining > 0) reasonCodes.push(reasonOf(reader, reasonsOf.unsuback, "unsuback"));
    if (reasonCodes.length === 0) throw protocolError("UNSUBACK without a reason code");
  }
  return { type: "unsuback", packetId, reasonCodes, properties };
}

function decodeConnack(reader: PacketReader, context: DecodeContext): ConnackPacket {
  const flags = reader.u8("connack flags");
  if (flags > 1) throw malformed("reserved bits in connack flags");
  const reasonCode =
    context.version === 5
      ? reasonOf(reader, reasonsOf.connack, "connack")
      : reader.u8("return code");
  if (context.version !== 5 && reasonCode > 5) throw protocolError(`return code ${reasonCode}`);
  if (flags === 1 && reasonCode !== 0) throw protocolError("session present on refusal");
  const properties = propertiesOf(reader, packetTypes.connack, context);
  return { type: "connack", sessionPresent: flags === 1, reasonCode, properties };
}

function decodeDisconnect(reader: PacketReader, context: DecodeContext): DisconnectPacket {
  if (context.version !== 5 || reader.remaining === 0) {
    return { type: "disconnect", reasonCode: reason.success, properties: noProperties };
  }
  const fromClient = context.sender === "client";
  const allowed = fromClient ? reasonsOf.disconnectOfClient : reasonsOf.disconnectOfServer;
  const reasonCode = reasonOf(reader, allowed, "disconnect");
  const properties = lastProperties(reader, "disconnect", context);
  if (!fromClient && properties.sessionExpiryS !== undefined) {
    throw protocolError("session expiry in a server's DISCONNECT");
  }
  if (fromClient && properties.serverReference !== undefined) {
    throw protocolError("server reference in a client's DISCONNECT");
  }
  return { type: "disconnect", reasonCode, properties };
}

function decodeAuth(reader: PacketReader, context: DecodeContext): AuthPacket {
  const allowed = context.sender === "client" ? reasonsOf.authOfClient : reasonsOf.authOfServer;
  // An empty AUTH is reason 0 without properties, and so without the method it must name.
  if (reader.remaining === 0) throw protocolError("AUTH without an authentication method");
  const reasonCode = reasonOf(reader, allowed, "auth");
  const properties = lastProperties(reader, "auth", context);
  if (properties.authenticationMethod === undefined) {
    throw protocolError("AUTH without an authentication method");
  }
  return { type: "auth", reasonCode, properties };
}
