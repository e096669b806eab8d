// What can be wrong with the bytes of a peer, or with a packet handed over for encoding.
//
// Every error that stands for a peer's fault carries `details.reasonCode`, the MQTT 5 reason code
// to answer with; what an older version says instead is decided by the connection core.

import { type CodedError, defineErrors } from "../base/index.ts";
import { type ReasonCode, reason } from "./codec/reasons.ts";

export const mqttErrors = defineErrors({
  packetMalformed: {
    code: "MQTT_PACKET_MALFORMED",
    kind: "invalid",
    message: "malformed packet: {what}",
    help: "The peer sent bytes that are no MQTT packet of its version; look at its client library.",
  },
  protocolError: {
    code: "MQTT_PROTOCOL_ERROR",
    kind: "invalid",
    message: "protocol error: {what}",
    help: "The peer broke a rule of the MQTT standard; look at its client library.",
  },
  packetTooLarge: {
    code: "MQTT_PACKET_TOO_LARGE",
    kind: "limit",
    message: "packet of {sizeBytes} bytes, the maximum is {sizeBytesMax} bytes",
    help: "Send smaller messages or raise maxPacketSize (before login: preAuth bytes).",
  },
  versionUnsupported: {
    code: "MQTT_VERSION_UNSUPPORTED",
    kind: "invalid",
    message: "unsupported protocol {name} level {level}",
    help: "MQTT 3.1, 3.1.1 and 5 are served.",
  },
  clientIdInvalid: {
    code: "MQTT_CLIENT_ID_INVALID",
    kind: "invalid",
    message: "client identifier refused: {what}",
    help: "An empty client identifier needs a clean session before MQTT 5.",
  },
  topicNameInvalid: {
    code: "MQTT_TOPIC_NAME_INVALID",
    kind: "invalid",
    message: "topic name refused: {what}",
    help: "It has more levels than topicLevelsMax, or control characters that are set to be refused.",
  },
  topicAliasInvalid: {
    code: "MQTT_TOPIC_ALIAS_INVALID",
    kind: "invalid",
    message: "topic alias {alias}, the maximum is {aliasMax}",
    help: "A client may use the aliases up to the Topic Alias Maximum of its CONNACK.",
  },
  notOffered: {
    code: "MQTT_NOT_OFFERED",
    kind: "invalid",
    message: "{what} is not offered",
    help: "The broker is set to offer less than all of MQTT; CONNACK says so to MQTT 5 clients.",
  },
  receiveMaximumExceeded: {
    code: "MQTT_RECEIVE_MAXIMUM_EXCEEDED",
    kind: "limit",
    message: "more than {receiveMaximum} unacknowledged messages",
    help: "The client must wait for acks as the Receive Maximum of its CONNACK says.",
  },
  quotaExceeded: {
    code: "MQTT_QUOTA_EXCEEDED",
    kind: "limit",
    message: "too many {what}: the maximum is {max}",
    help: "Raise the limit named in the message or make the client send less.",
  },
  connectTimeout: {
    code: "MQTT_CONNECT_TIMEOUT",
    kind: "invalid",
    message: "no complete CONNECT within {waitMs} ms",
    help: "Slow or silent peers are cut before they log in.",
  },
  keepAliveTimeout: {
    code: "MQTT_KEEP_ALIVE_TIMEOUT",
    kind: "invalid",
    message: "no packet for {silentMs} ms, keep alive is {keepAliveS} s",
    help: "The network or the client died, or the client does not send PINGREQ in time.",
  },
  packetUnencodable: {
    code: "MQTT_PACKET_UNENCODABLE",
    kind: "invalid",
    message: "packet cannot be encoded: {what}",
    help: "The caller gave a value that the wire has no form for.",
  },
});

export function malformed(what: string): CodedError {
  return mqttErrors.packetMalformed({ reasonCode: reason.malformedPacket, what });
}

export function protocolError(what: string): CodedError {
  return mqttErrors.protocolError({ reasonCode: reason.protocolError, what });
}

export function topicAliasInvalid(alias: number, aliasMax: number): CodedError {
  return mqttErrors.topicAliasInvalid({ reasonCode: reason.topicAliasInvalid, alias, aliasMax });
}

export function quotaExceeded(what: string, max: number): CodedError {
  return mqttErrors.quotaExceeded({ reasonCode: reason.quotaExceeded, what, max });
}

export function unencodable(what: string): CodedError {
  return mqttErrors.packetUnencodable({ what });
}

/** The reason code to answer a peer's fault with; 0x83 for errors that are not a peer's fault. */
export function reasonCodeOf(error: CodedError): ReasonCode {
  const code = error.details.reasonCode;
  return typeof code === "number" ? code : reason.implementationSpecificError;
}
