// CONNECT from its bytes, for MQTT 3.1 (`MQIsdp`, 3), 3.1.1 (4), 5 and the bridge levels 131, 132.
//
// The whole packet is validated before any of it counts (3.1.4-1). An error thrown after the level
// is known carries `details.version`, so that the core can answer in the form the client speaks.

import { CodedError } from "../../base/index.ts";
import { malformed, mqttErrors, protocolError } from "../errors.ts";
import { checkResponseTopic, type DecodeContext, propertiesOf } from "./decode-context.ts";
import {
  type ConnectPacket,
  type MqttVersion,
  packetTypes,
  type Qos,
  type Will,
} from "./packets.ts";
import type { PacketReader } from "./reader.ts";
import { reason } from "./reasons.ts";

const bridgeBit = 0x80;
const placeWill = 0;

type Level = { readonly level: 3 | 4 | 5; readonly bridge: boolean };

export function decodeConnect(reader: PacketReader, context: DecodeContext): ConnectPacket {
  const level = decodeLevel(reader);
  const version = level.level === 5 ? 5 : 4;
  try {
    const packet = decodeAfterLevel(reader, level, { ...context, version });
    reader.expectEnd("connect");
    return packet;
  } catch (error) {
    throw error instanceof CodedError ? withVersion(error, version) : error;
  }
}

function withVersion(error: CodedError, version: MqttVersion): CodedError {
  const details = { ...error.details, version };
  return new CodedError(error.code, error.kind, error.message, details, error);
}

function decodeLevel(reader: PacketReader): Level {
  const name = reader.string("protocol name");
  if (name !== "MQTT" && name !== "MQIsdp") throw malformed("unknown protocol name");
  const byte = reader.u8("protocol level");
  const plain = byte & ~bridgeBit;
  const bridge = byte !== plain;
  if (name === "MQIsdp" ? plain === 3 : plain === 4) return { level: plain as 3 | 4, bridge };
  if (name === "MQTT" && byte === 5) return { level: 5, bridge: false };
  throw mqttErrors.versionUnsupported({
    reasonCode: reason.unsupportedProtocolVersion,
    version: name === "MQTT" && plain >= 5 ? 5 : 4,
    name,
    level: byte,
  });
}

function decodeAfterLevel(
  reader: PacketReader,
  { level, bridge }: Level,
  context: DecodeContext,
): ConnectPacket {
  const flags = decodeFlags(reader, context.version);
  const keepAliveS = reader.u16("keep alive");
  const properties = propertiesOf(reader, packetTypes.connect, context);
  if (
    properties.authenticationData !== undefined &&
    properties.authenticationMethod === undefined
  ) {
    throw protocolError("authentication data without a method");
  }
  const clientId = reader.string("client identifier");
  const will = flags.will ? decodeWill(reader, flags, context) : undefined;
  const userName = flags.userName ? reader.string("user name") : undefined;
  const password = flags.password ? reader.binary("password") : undefined;
  if (clientId === "" && context.version === 4 && !flags.cleanStart) {
    throw mqttErrors.clientIdInvalid({
      reasonCode: reason.clientIdentifierNotValid,
      what: "empty, without clean session",
    });
  }
  return {
    type: "connect",
    level,
    bridge,
    clientId,
    cleanStart: flags.cleanStart,
    keepAliveS,
    ...(will !== undefined && { will }),
    ...(userName !== undefined && { userName }),
    ...(password !== undefined && { password }),
    properties,
  };
}

type ConnectFlags = {
  readonly cleanStart: boolean;
  readonly will: boolean;
  readonly willQos: Qos;
  readonly willRetain: boolean;
  readonly userName: boolean;
  readonly password: boolean;
};

function decodeFlags(reader: PacketReader, version: MqttVersion): ConnectFlags {
  const byte = reader.u8("connect flags");
  const will = (byte & 0x04) !== 0;
  const willQos = (byte >>> 3) & 3;
  const willRetain = (byte & 0x20) !== 0;
  const userName = (byte & 0x80) !== 0;
  const password = (byte & 0x40) !== 0;
  if ((byte & 0x01) !== 0) throw malformed("reserved connect flag is set");
  if (willQos === 3) throw malformed("will with QoS 3");
  if (!will && (willQos !== 0 || willRetain)) throw malformed("will flags without a will");
  if (password && !userName && version === 4) throw malformed("password without a user name");
  const cleanStart = (byte & 0x02) !== 0;
  return { cleanStart, will, willQos: willQos as Qos, willRetain, userName, password };
}

function decodeWill(reader: PacketReader, flags: ConnectFlags, context: DecodeContext): Will {
  const properties = propertiesOf(reader, placeWill, context);
  const topic = reader.topicName("will topic");
  if (topic === "") throw malformed("empty will topic");
  if (properties.responseTopic !== undefined) checkResponseTopic(properties.responseTopic);
  const payload = reader.binary("will payload");
  return { topic, payload, qos: flags.willQos, retain: flags.willRetain, properties };
}
