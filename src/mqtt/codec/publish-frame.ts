// The hot way of PUBLISH: a client's frame is validated and its parts are located, not copied, and
// its properties are not decoded unless somebody asks.
//
// All offsets of an `InboundPublish` count from the first byte of its frame, which is only valid
// during the call that handed it out. What is kept is `canonicalFrame(publish)`: own memory, topic
// in full and no alias, DUP cleared, RETAIN as received, the packet id a zeroed slot. Stored frames
// and everything sent to subscribers start from that form (`forward.ts`).

import { malformed, protocolError } from "../errors.ts";
import { publishFlagsFault } from "./decode.ts";
import type { DecodeContext } from "./decode-context.ts";
import { type MqttVersion, packetTypes, type Qos } from "./packets.ts";
import { decodeProperties, noProperties, type Properties } from "./properties.ts";
import {
  aliasPropertyBytes,
  type PublishProperties,
  skimPublishProperties,
} from "./publish-properties.ts";
import { checkTopicName, decodeText, PacketReader } from "./reader.ts";
import { putBytes, putVarint, varintSize } from "./writer.ts";

const dupBit = 0x08;

/** Stored frames were admitted once: limits of today do not refuse them. */
const anyText = { refuseControlCharacters: false, topicLevelsMax: Number.POSITIVE_INFINITY };

/** A PUBLISH in stored form. `bytes` are owned by whoever holds the frame and never change. */
export type StoredFrame = {
  readonly bytes: Buffer;
  readonly version: MqttVersion;
  /** Of the four bytes of the Message Expiry Interval; 0 when there is none. */
  readonly expiryOffset: number;
};

/** One PUBLISH as it came in. */
export class InboundPublish {
  /** In full also when the client sent an alias; empty until the core has resolved it. */
  topic = "";
  readonly qos: Qos;
  readonly retain: boolean;
  readonly dup: boolean;
  /** 0 for QoS 0. */
  packetId = 0;
  readonly version: MqttVersion;
  topicLength = 0;
  /** 0 for QoS 0. */
  idOffset = 0;
  /** Of the first property, behind the property length. */
  propertiesOffset = 0;
  propertiesLength = 0;
  payloadOffset = 0;
  messageExpiryS: number | undefined = undefined;
  /** 0 without a Message Expiry Interval. */
  expiryOffset = 0;
  /** 0 without an alias. */
  topicAlias = 0;
  /** 0 without an alias. */
  aliasOffset = 0;
  /** 1: the sender says that the payload is UTF-8, which nobody has checked. */
  payloadFormat = 0;
  readonly #bytes: Buffer;
  readonly #start: number;
  readonly topicOffset: number;
  readonly sizeBytes: number;

  constructor(bytes: Buffer, start: number, bodyStart: number, end: number, version: MqttVersion) {
    const firstByte = bytes[start] as number;
    this.qos = ((firstByte >>> 1) & 3) as Qos;
    this.retain = (firstByte & 1) !== 0;
    this.dup = (firstByte & dupBit) !== 0;
    this.version = version;
    this.#bytes = bytes;
    this.#start = start;
    this.sizeBytes = end - start;
    this.topicOffset = bodyStart + 2 - start;
  }

  /** The whole packet as received. */
  get frame(): Buffer {
    return this.#bytes.subarray(this.#start, this.#start + this.sizeBytes);
  }

  get payload(): Buffer {
    const end = this.#start + this.sizeBytes;
    return this.#bytes.subarray(this.#start + this.payloadOffset, end);
  }

  get payloadLength(): number {
    return this.sizeBytes - this.payloadOffset;
  }

  /** Decodes the properties; they have been validated. */
  decodeProperties(): Properties {
    return decodePropertiesAt(this.frame, this.propertiesOffset, this.propertiesLength);
  }

  /** Copies the frame, without decoding, into `target` at `offset`. */
  copyTo(target: Buffer, offset: number): void {
    this.#bytes.copy(target, offset, this.#start, this.#start + this.sizeBytes);
  }
}

/** Decodes the properties of a frame whose layout is known. */
export function decodePropertiesAt(frame: Buffer, offset: number, length: number): Properties {
  if (length === 0) return noProperties;
  const lengthOffset = offset - varintSize(length);
  const reader = new PacketReader(frame, lengthOffset, offset + length, anyText);
  return decodeProperties(reader, packetTypes.publish, Number.POSITIVE_INFINITY);
}

/** Reads the PUBLISHes of one connection. Remembers the last topic: publishers repeat theirs. */
export class PublishReader {
  readonly #context: DecodeContext;
  readonly #packetIdMin: 0 | 1;
  #topicBytes: Buffer = Buffer.alloc(0);
  #topicLength = 0;
  #topic = "";

  /** `packetIdMin` 0 is for stored frames, whose id is an empty slot. */
  constructor(context: DecodeContext, packetIdMin: 0 | 1 = 1) {
    this.#context = context;
    this.#packetIdMin = packetIdMin;
  }

  /** @throws what `decodePacket` throws. An alias is noted, not resolved. */
  read(bytes: Buffer, start: number, bodyStart: number, end: number): InboundPublish {
    const fault = publishFlagsFault(bytes[start] as number);
    if (fault !== undefined) throw fault;
    const publish = new InboundPublish(bytes, start, bodyStart, end, this.#context.version);
    if (end - bodyStart < 2) throw malformed("topic name ends past the packet");
    const topicLength = ((bytes[bodyStart] as number) << 8) | (bytes[bodyStart + 1] as number);
    const topicStart = bodyStart + 2;
    let offset = topicStart + topicLength;
    if (offset > end) throw malformed("topic name ends past the packet");
    publish.topicLength = topicLength;
    publish.topic = this.#readTopic(bytes, topicStart, offset);
    if (publish.qos > 0) {
      if (end - offset < 2) throw malformed("packet identifier ends past the packet");
      publish.packetId = ((bytes[offset] as number) << 8) | (bytes[offset + 1] as number);
      if (publish.packetId < this.#packetIdMin) throw protocolError("packet identifier 0");
      publish.idOffset = offset - start;
      offset += 2;
    }
    if (this.#context.version === 5)
      offset = this.#readProperties(bytes, start, offset, end, publish);
    publish.payloadOffset = offset - start;
    if (topicLength === 0 && publish.topicAlias === 0) throw protocolError("empty topic name");
    return publish;
  }

  #readTopic(bytes: Buffer, start: number, end: number): string {
    const length = end - start;
    if (length === this.#topicLength && sameBytes(this.#topicBytes, bytes, start, length)) {
      return this.#topic;
    }
    const topic = readTopicName(bytes, start, end, this.#context);
    if (length > this.#topicBytes.length) this.#topicBytes = Buffer.allocUnsafeSlow(length * 2);
    putBytes(this.#topicBytes, 0, bytes, start, end);
    this.#topicLength = length;
    this.#topic = topic;
    return topic;
  }

  #readProperties(
    bytes: Buffer,
    start: number,
    offset: number,
    end: number,
    publish: InboundPublish,
  ): number {
    if (offset < end && bytes[offset] === 0) {
      publish.propertiesOffset = offset + 1 - start;
      return offset + 1;
    }
    const reader = new PacketReader(bytes, offset, end, this.#context);
    const length = reader.varint("property length");
    const first = reader.offset;
    if (length > end - first) throw malformed("properties end past the packet");
    const found: PublishProperties = {
      messageExpiryS: 0,
      expiryOffset: 0,
      topicAlias: 0,
      aliasOffset: 0,
      payloadFormat: 0,
    };
    skimPublishProperties(bytes, first, first + length, this.#context, found);
    publish.propertiesOffset = first - start;
    publish.propertiesLength = length;
    publish.payloadFormat = found.payloadFormat;
    if (found.expiryOffset > 0) {
      publish.messageExpiryS = found.messageExpiryS;
      publish.expiryOffset = found.expiryOffset - start;
    }
    if (found.aliasOffset > 0) {
      publish.topicAlias = found.topicAlias;
      publish.aliasOffset = found.aliasOffset - start;
    }
    return first + length;
  }
}

function sameBytes(last: Buffer, bytes: Buffer, start: number, length: number): boolean {
  // From the end: topics of one publisher differ there.
  for (let index = length - 1; index >= 0; index--) {
    if (last[index] !== bytes[start + index]) return false;
  }
  return true;
}

const slash = 0x2f;
const plus = 0x2b;
const hash = 0x23;

/**
 * `decodeText` and `checkTopicName` in one pass for the plain case: nearly every topic.
 * @throws what they throw.
 */
export function readTopicName(
  bytes: Buffer,
  start: number,
  end: number,
  context: DecodeContext,
): string {
  let levels = 1;
  for (let index = start; index < end; index++) {
    const byte = bytes[index] as number;
    if (byte === slash) {
      levels++;
    } else if (byte < 0x20 || byte >= 0x7f || byte === plus || byte === hash) {
      levels = Number.POSITIVE_INFINITY;
      break;
    }
  }
  if (levels <= context.topicLevelsMax) return bytes.toString("latin1", start, end);
  const topic = decodeText(bytes, start, end, "topic name");
  checkTopicName(topic, context, "topic name");
  return topic;
}

/** The form that is stored. REQUIRES: the topic is resolved. */
export function canonicalFrame(publish: InboundPublish): StoredFrame {
  if (publish.aliasOffset > 0) return withoutAlias(publish);
  const bytes = Buffer.allocUnsafe(publish.sizeBytes);
  publish.copyTo(bytes, 0);
  bytes[0] = (bytes[0] as number) & ~dupBit;
  if (publish.idOffset > 0) bytes.writeUInt16BE(0, publish.idOffset);
  return { bytes, version: publish.version, expiryOffset: publish.expiryOffset };
}

/**
 * The frame to send on at once: the received bytes themselves where they can serve, valid as long
 * as those are, else a canonical copy. REQUIRES: the topic is resolved.
 */
export function forwardableFrame(publish: InboundPublish): StoredFrame {
  if (publish.aliasOffset > 0) return withoutAlias(publish);
  return { bytes: publish.frame, version: publish.version, expiryOffset: publish.expiryOffset };
}

function withoutAlias(publish: InboundPublish): StoredFrame {
  const frame = publish.frame;
  const topic = Buffer.from(publish.topic, "utf8");
  const propertiesLength = publish.propertiesLength - aliasPropertyBytes;
  const propertiesEnd = publish.propertiesOffset + publish.propertiesLength;
  const idBytes = publish.qos > 0 ? 2 : 0;
  const remaining =
    2 +
    topic.length +
    idBytes +
    varintSize(propertiesLength) +
    propertiesLength +
    publish.payloadLength;
  const bytes = Buffer.allocUnsafe(1 + varintSize(remaining) + remaining);
  bytes[0] = (frame[0] as number) & ~dupBit;
  let offset = putVarint(bytes, 1, remaining);
  offset = bytes.writeUInt16BE(topic.length, offset);
  offset += topic.copy(bytes, offset);
  if (idBytes > 0) offset = bytes.writeUInt16BE(0, offset);
  offset = putVarint(bytes, offset, propertiesLength);
  const shift = offset - publish.propertiesOffset;
  offset += frame.copy(bytes, offset, publish.propertiesOffset, publish.aliasOffset);
  const behindAlias = publish.aliasOffset + aliasPropertyBytes;
  offset += frame.copy(bytes, offset, behindAlias, propertiesEnd);
  frame.copy(bytes, offset, publish.payloadOffset);
  const moved = publish.expiryOffset > behindAlias ? shift - aliasPropertyBytes : shift;
  const expiryOffset = publish.expiryOffset === 0 ? 0 : publish.expiryOffset + moved;
  return { bytes, version: publish.version, expiryOffset };
}
