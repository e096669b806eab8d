// From a CONNECT packet to what the session room is asked, and to what CONNACK says. Pure: nothing of
// a CONNECT that is refused here has taken effect.

import type { Random } from "../base/index.ts";
import {
  type ConnectPacket,
  createFrame,
  type Properties,
  type ReasonCode,
  reason,
} from "../mqtt/index.ts";
import type { ConnectRequest, Will } from "../session/index.ts";
import type { Client, Rights } from "./access.ts";
import type { BrokerSettings } from "./settings.ts";

/** 4,294,967,295 seconds stand for "never" (3.1.2.11.2). */
const neverS = 0xffff_ffff;
const assignedIdBytes = 12;

/** The client's own identifier or a new one (3.1.3-6). */
export function clientIdOf(packet: ConnectPacket, random: Random): string {
  if (packet.clientId !== "") return packet.clientId;
  return `auto-${random.bytes(assignedIdBytes).toString("hex")}`;
}

/** Why CONNECT is refused whoever it is; undefined when it may go on. */
export function clientIdFault(
  clientId: string,
  { clientIdBytesMax }: Pick<BrokerSettings, "clientIdBytesMax">,
): ReasonCode | undefined {
  const isTooLong = Buffer.byteLength(clientId) > clientIdBytesMax;
  return isTooLong ? reason.clientIdentifierNotValid : undefined;
}

/** The right to publish a will is asked for when it is given, and again when it is published. */
export function willFault(
  { will }: ConnectPacket,
  client: Client,
  rights: Rights,
): ReasonCode | undefined {
  if (will === undefined || rights.may("publish", client, will.topic)) return undefined;
  return reason.notAuthorized;
}

/** What the client asks for, before the cap; 3.1.1 can only say "for ever" or "not at all". */
function askedExpiryS(packet: ConnectPacket): number {
  if (packet.level === 5) return packet.properties.sessionExpiryS ?? 0;
  return packet.cleanStart ? 0 : neverS;
}

/** `expiryMaxS` Infinity: no cap. */
export function cappedExpiryS(askedS: number, expiryMaxS: number): number {
  return Math.min(askedS, expiryMaxS);
}

export function connectRequestOf(
  packet: ConnectPacket,
  client: Client,
  expiryMaxS: number,
): ConnectRequest {
  return {
    clientId: client.clientId,
    user: client.user,
    cleanStart: packet.cleanStart,
    expiryS: cappedExpiryS(askedExpiryS(packet), expiryMaxS),
    protocol: packet.level,
    will: packet.will === undefined ? undefined : willOf(packet.will),
  };
}

function willOf(will: NonNullable<ConnectPacket["will"]>): Will {
  const { topic, payload, qos, retain } = will;
  const { willDelayS = 0, ...properties } = will.properties;
  const frame = createFrame({ topic, payload, qos, retain, properties });
  return {
    topic,
    qos,
    retain,
    delayS: willDelayS,
    version: frame.version,
    frame: frame.bytes,
    messageExpiryS: properties.messageExpiryS,
    expiryOffset: frame.expiryOffset,
  };
}

/** What CONNACK tells of the broker's decisions, besides what the protocol core adds. */
export function answerProperties(packet: ConnectPacket, request: ConnectRequest): Properties {
  return {
    ...(packet.clientId === "" && { assignedClientId: request.clientId }),
    ...(request.expiryS !== askedExpiryS(packet) && { sessionExpiryS: request.expiryS }),
  };
}
