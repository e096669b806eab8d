// Packets to bytes, for both directions and all versions. The hot ways have their own writers:
// outgoing PUBLISH in `forward.ts`, acks in `output.ts`.
//
// What the form lacks is left out (3.1.1 has no properties and no reasons); what the wire cannot
// carry is refused with MQTT_PACKET_UNENCODABLE. REQUIRES: the caller keeps the rules of the
// conversation; only what makes a packet unreadable is checked here.

import { ByteWriter, unreachable } from "../../base/index.ts";
import { unencodable } from "../errors.ts";
import {
  type ConnackPacket,
  type ConnectPacket,
  type MqttVersion,
  type Packet,
  type PublishAckPacket,
  type PublishPacket,
  packetTypes,
  type SubscribePacket,
  type SubscriptionOptions,
  type Will,
} from "./packets.ts";
import { encodeProperties, type Properties, propertyTable } from "./properties.ts";
import { type ReasonCode, reason } from "./reasons.ts";
import { joinPacket, writeBinary, writeText } from "./writer.ts";

const placeWill = 0;

/** The whole packet. A CONNECT is encoded in its own level; `version` counts for all others. */
export function encodePacket(packet: Packet, version: MqttVersion): Buffer {
  const form = packet.type === "connect" ? (packet.level === 5 ? 5 : 4) : version;
  const body = new ByteWriter();
  writeBody(body, packet, form);
  return joinPacket(firstByteOf(packet), body.finish());
}

function firstByteOf(packet: Packet): number {
  const first = packetTypes[packet.type] << 4;
  switch (packet.type) {
    case "publish":
      return first | publishFlags(packet);
    case "pubrel":
    case "subscribe":
    case "unsubscribe":
      return first | 0x02;
    default:
      return first;
  }
}

function publishFlags(packet: PublishPacket): number {
  return (packet.dup ? 8 : 0) | (packet.qos << 1) | (packet.retain ? 1 : 0);
}

function writeBody(body: ByteWriter, packet: Packet, version: MqttVersion): void {
  switch (packet.type) {
    case "connect":
      writeConnect(body, packet, version);
      return;
    case "connack":
      writeConnack(body, packet, version);
      return;
    case "publish":
      writePublish(body, packet, version);
      return;
    case "puback":
    case "pubrec":
    case "pubrel":
    case "pubcomp":
      writePublishAck(body, packet, version);
      return;
    case "subscribe":
      writeSubscribe(body, packet, version);
      return;
    case "unsubscribe":
      writePacketId(body, packet.packetId);
      writeProperties(body, packet.properties, packetTypes.unsubscribe, version);
      for (const filter of packet.filters) writeText(body, filter, "topic filter");
      return;
    case "suback":
      writePacketId(body, packet.packetId);
      writeProperties(body, packet.properties, packetTypes.suback, version);
      for (const code of packet.reasonCodes) body.u8(subackCode(code, version));
      return;
    case "unsuback":
      writePacketId(body, packet.packetId);
      if (version !== 5) return;
      writeProperties(body, packet.properties, packetTypes.unsuback, version);
      for (const code of packet.reasonCodes) body.u8(code);
      return;
    case "pingreq":
    case "pingresp":
      return;
    case "disconnect":
    case "auth":
      writeReasonAndProperties(body, packet, version);
      return;
    default:
      unreachable(packet);
  }
}

function writeProperties(
  body: ByteWriter,
  properties: Properties,
  place: number,
  version: MqttVersion,
): void {
  if (version === 5) body.raw(encodeProperties(properties, place));
}

function writePacketId(body: ByteWriter, packetId: number): void {
  if (!Number.isInteger(packetId) || packetId < 1 || packetId > 0xffff) {
    throw unencodable(`packet identifier ${packetId}`);
  }
  body.u16(packetId);
}

function subackCode(code: ReasonCode, version: MqttVersion): number {
  return version !== 5 && code > 2 ? reason.unspecifiedError : code;
}

function writeConnect(body: ByteWriter, packet: ConnectPacket, version: MqttVersion): void {
  const { will, userName, password } = packet;
  writeText(body, packet.level === 3 ? "MQIsdp" : "MQTT", "protocol name");
  body.u8(packet.level | (packet.bridge ? 0x80 : 0));
  const flags =
    (packet.cleanStart ? 0x02 : 0) |
    (will === undefined ? 0 : 0x04 | (will.qos << 3) | (will.retain ? 0x20 : 0)) |
    (password === undefined ? 0 : 0x40) |
    (userName === undefined ? 0 : 0x80);
  body.u8(flags).u16(packet.keepAliveS);
  writeProperties(body, packet.properties, packetTypes.connect, version);
  writeText(body, packet.clientId, "client identifier");
  if (will !== undefined) writeWill(body, will, version);
  if (userName !== undefined) writeText(body, userName, "user name");
  if (password !== undefined) writeBinary(body, password, "password");
}

function writeWill(body: ByteWriter, will: Will, version: MqttVersion): void {
  writeProperties(body, will.properties, placeWill, version);
  writeText(body, will.topic, "will topic");
  writeBinary(body, will.payload, "will payload");
}

function writeConnack(body: ByteWriter, packet: ConnackPacket, version: MqttVersion): void {
  body.u8(packet.sessionPresent ? 1 : 0).u8(packet.reasonCode);
  writeProperties(body, packet.properties, packetTypes.connack, version);
}

function writePublish(body: ByteWriter, packet: PublishPacket, version: MqttVersion): void {
  writeText(body, packet.topic, "topic name");
  if (packet.qos > 0) writePacketId(body, packet.packetId);
  writeProperties(body, packet.properties, packetTypes.publish, version);
  body.raw(packet.payload);
}

function writePublishAck(body: ByteWriter, packet: PublishAckPacket, version: MqttVersion): void {
  writePacketId(body, packet.packetId);
  writeReasonAndProperties(body, packet, version);
}

/** The reason, and the properties if there are any; success without properties is nothing. */
function writeReasonAndProperties(
  body: ByteWriter,
  packet: { type: keyof typeof packetTypes; reasonCode: ReasonCode; properties: Properties },
  version: MqttVersion,
): void {
  if (version !== 5) return;
  const bare = propertyTable.every((row) => packet.properties[row.name] === undefined);
  if (bare && packet.reasonCode === reason.success) return;
  body.u8(packet.reasonCode);
  if (!bare) writeProperties(body, packet.properties, packetTypes[packet.type], version);
}

function writeSubscribe(body: ByteWriter, packet: SubscribePacket, version: MqttVersion): void {
  writePacketId(body, packet.packetId);
  writeProperties(body, packet.properties, packetTypes.subscribe, version);
  for (const { filter, options } of packet.filters) {
    writeText(body, filter, "topic filter");
    body.u8(version === 5 ? optionsByte(options) : options.qos);
  }
}

function optionsByte(options: SubscriptionOptions): number {
  return (
    options.qos |
    (options.noLocal ? 4 : 0) |
    (options.retainAsPublished ? 8 : 0) |
    (options.retainHandling << 4)
  );
}
