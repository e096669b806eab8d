// Where the parts of a stored PUBLISH frame lie, found again from its bytes alone, and frames made
// from values that never were packets (wills, `$SYS`, the admin API).

import { malformed } from "../errors.ts";
import { decodeContextDefault } from "./decode-context.ts";
import { encodePacket } from "./encode.ts";
import { type MqttVersion, packetTypes, type Qos } from "./packets.ts";
import type { Properties } from "./properties.ts";
import { decodePropertiesAt, PublishReader, type StoredFrame } from "./publish-frame.ts";

/** Offsets count from the first byte of the frame; 0 where the part is absent. */
export type FrameLayout = {
  readonly topic: string;
  readonly qos: Qos;
  readonly retain: boolean;
  readonly topicOffset: number;
  readonly topicLength: number;
  readonly idOffset: number;
  readonly propertiesOffset: number;
  readonly propertiesLength: number;
  readonly payloadOffset: number;
  readonly expiryOffset: number;
  readonly messageExpiryS: number | undefined;
};

// Stored frames were admitted once: limits of today do not refuse them.
const storedContext = {
  ...decodeContextDefault,
  userPropertiesMax: Number.POSITIVE_INFINITY,
  topicLevelsMax: Number.POSITIVE_INFINITY,
};

/**
 * The layout of a canonical frame. Validates it as if a client had sent it, but for the packet id
 * slot, which may be zero. @throws MQTT_PACKET_MALFORMED, MQTT_PROTOCOL_ERROR for damaged bytes.
 */
export function describeFrame(frame: Buffer, version: MqttVersion): FrameLayout {
  const bodyStart = bodyStartOf(frame);
  if ((frame[0] as number) >>> 4 !== packetTypes.publish) throw malformed("not a PUBLISH");
  const reader = new PublishReader({ ...storedContext, version }, 0);
  return reader.read(frame, 0, bodyStart, frame.length);
}

function bodyStartOf(frame: Buffer): number {
  let remaining = 0;
  for (let index = 1; index <= 4 && index < frame.length; index++) {
    const byte = frame[index] as number;
    remaining |= (byte & 0x7f) << (7 * (index - 1));
    if (byte >= 0x80) continue;
    if (index + 1 + remaining !== frame.length) break;
    return index + 1;
  }
  throw malformed("frame and its remaining length disagree");
}

/** The payload of a stored frame, a view of it. */
export function framePayload(stored: StoredFrame): Buffer {
  return stored.bytes.subarray(describeFrame(stored.bytes, stored.version).payloadOffset);
}

export function frameProperties(stored: StoredFrame): Properties {
  const layout = describeFrame(stored.bytes, stored.version);
  return decodePropertiesAt(stored.bytes, layout.propertiesOffset, layout.propertiesLength);
}

export type FrameContent = {
  readonly topic: string;
  readonly payload: Buffer;
  readonly qos: Qos;
  readonly retain: boolean;
  /** Without `topicAlias` and `subscriptionIdentifiers`, which belong to one connection. */
  readonly properties?: Properties;
};

/** A canonical MQTT 5 frame of a value. REQUIRES: the topic is a legal name. */
export function createFrame(content: FrameContent): StoredFrame {
  const { topic, payload, qos, retain, properties = {} } = content;
  const packetId = qos === 0 ? 0 : 1;
  const bytes = encodePacket(
    { type: "publish", topic, payload, qos, retain, dup: false, packetId, properties },
    5,
  );
  const layout = describeFrame(bytes, 5);
  if (layout.idOffset > 0) bytes.writeUInt16BE(0, layout.idOffset);
  return { bytes, version: 5, expiryOffset: layout.expiryOffset };
}
