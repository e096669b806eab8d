// Outgoing PUBLISH from a stored frame, for one receiver.
//
// Where form and id slot agree and nothing is added, the frame is copied and its first byte, packet
// id and expiry are patched; everything else is rebuilt from the parts. Both ways give the same
// bytes (property test). Sizes are known before anything is written, so that a receiver's Maximum
// Packet Size can be kept.
//
// REQUIRES: stored frames are canonical (`publish-frame.ts`), or received ones without an alias.

import { assert } from "../../base/index.ts";
import type { MqttVersion, Qos } from "./packets.ts";
import { packetTypes } from "./packets.ts";
import type { StoredFrame } from "./publish-frame.ts";
import { aliasPropertyBytes } from "./publish-properties.ts";
import { putBytes, putVarint, varintSize } from "./writer.ts";

export type ForwardOptions = {
  /** Form of the receiver. */
  readonly version: MqttVersion;
  readonly qos: Qos;
  readonly dup: boolean;
  readonly retain: boolean;
  /** 0 for QoS 0. */
  readonly packetId: number;
  /** Of the subscriptions that match; MQTT 5 only. */
  readonly subscriptionIds?: readonly number[] | undefined;
  /** What is left of the Message Expiry Interval; absent: as stored. */
  readonly remainingExpiryS?: number | undefined;
  /** MQTT 5 only; without `sendTopic` the topic is left out. */
  readonly topicAlias?: { readonly alias: number; readonly sendTopic: boolean } | undefined;
};

const idBytes = 2;
const expiryPropertyBytes = 5;
const messageExpiryId = 0x02;
const subscriptionIdentifierId = 0x0b;
const topicAliasId = 0x23;

/** Bytes of the packet that `writeForward` makes of the same arguments. */
export function forwardSize(stored: StoredFrame, options: ForwardOptions): number {
  if (isPatchable(stored, options)) return stored.bytes.length;
  const remaining = planRebuild(stored, options);
  return 1 + varintSize(remaining) + remaining;
}

/**
 * Writes the packet into `target` at `offset`; returns the offset behind it.
 * REQUIRES: room for `forwardSize` bytes.
 */
export function writeForward(
  stored: StoredFrame,
  options: ForwardOptions,
  target: Buffer,
  offset: number,
): number {
  if (isPatchable(stored, options)) return writePatched(stored, options, target, offset);
  return writeRebuilt(stored, options, target, offset);
}

export function forwardPublish(stored: StoredFrame, options: ForwardOptions): Buffer {
  const packet = Buffer.allocUnsafe(forwardSize(stored, options));
  writeForward(stored, options, packet, 0);
  return packet;
}

/** `forwardPublish` that never patches: the reference of the fast way. */
export function rebuildPublish(stored: StoredFrame, options: ForwardOptions): Buffer {
  const remaining = planRebuild(stored, options);
  const packet = Buffer.allocUnsafe(1 + varintSize(remaining) + remaining);
  writeRebuilt(stored, options, packet, 0);
  return packet;
}

function isPatchable(stored: StoredFrame, options: ForwardOptions): boolean {
  if (stored.version !== options.version) return false;
  const storedHasId = ((stored.bytes[0] as number) & 0x06) !== 0;
  if (storedHasId !== options.qos > 0) return false;
  if (stored.version === 4) return true;
  if (options.topicAlias !== undefined) return false;
  const identifiers = options.subscriptionIds;
  if (identifiers !== undefined && identifiers.length > 0) return false;
  return options.remainingExpiryS === undefined || stored.expiryOffset > 0;
}

function firstByteOf(options: ForwardOptions): number {
  const dup = options.dup && options.qos > 0 ? 0x08 : 0;
  return (packetTypes.publish << 4) | dup | (options.qos << 1) | (options.retain ? 1 : 0);
}

function writePatched(
  stored: StoredFrame,
  options: ForwardOptions,
  target: Buffer,
  offset: number,
): number {
  const { bytes, expiryOffset } = stored;
  target.set(bytes, offset);
  target[offset] = firstByteOf(options);
  if (options.qos > 0) {
    // The topic length stands behind the remaining length, the id behind the topic.
    let at = 1;
    while ((bytes[at] as number) >= 0x80) at++;
    const topicLength = ((bytes[at + 1] as number) << 8) | (bytes[at + 2] as number);
    const id = offset + at + 3 + topicLength;
    target[id] = options.packetId >>> 8;
    target[id + 1] = options.packetId & 0xff;
  }
  if (options.remainingExpiryS !== undefined && expiryOffset > 0 && stored.version === 5) {
    target.writeUInt32BE(options.remainingExpiryS, offset + expiryOffset);
  }
  return offset + bytes.length;
}

// Where the parts of the frame being rebuilt lie and what is added: scratch of one call, since a
// rebuild runs for every receiver of a message and must not make garbage.
const plan = {
  topicStart: 0,
  topicEnd: 0,
  propertiesStart: 0,
  propertiesEnd: 0,
  addsExpiry: false,
  outTopicLength: 0,
  outPropertiesLength: 0,
};

/** Fills `plan`; returns the remaining length. */
function planRebuild(stored: StoredFrame, options: ForwardOptions): number {
  const { bytes } = stored;
  let at = 1;
  while ((bytes[at] as number) >= 0x80) at++;
  const topicLength = ((bytes[at + 1] as number) << 8) | (bytes[at + 2] as number);
  plan.topicStart = at + 3;
  plan.topicEnd = plan.topicStart + topicLength;
  let offset = plan.topicEnd;
  if (((bytes[0] as number) & 0x06) !== 0) offset += idBytes;
  let propertiesLength = 0;
  if (stored.version === 5) {
    let shift = 0;
    for (;;) {
      const byte = bytes[offset++] as number;
      propertiesLength |= (byte & 0x7f) << shift;
      if (byte < 0x80) break;
      shift += 7;
    }
  }
  plan.propertiesStart = offset;
  plan.propertiesEnd = offset + propertiesLength;
  assert(plan.propertiesEnd <= bytes.length, "stored frame is not canonical");
  plan.outTopicLength = options.topicAlias?.sendTopic === false ? 0 : topicLength;
  if (options.version !== 5) plan.outTopicLength = topicLength;
  const payloadLength = bytes.length - plan.propertiesEnd;
  const idLength = options.qos > 0 ? idBytes : 0;
  const fixed = 2 + plan.outTopicLength + idLength + payloadLength;
  if (options.version !== 5) return fixed;
  const outLength = propertiesLength + addedPropertiesLength(stored, options);
  plan.outPropertiesLength = outLength;
  return fixed + varintSize(outLength) + outLength;
}

function addedPropertiesLength(stored: StoredFrame, options: ForwardOptions): number {
  plan.addsExpiry = options.remainingExpiryS !== undefined && stored.expiryOffset === 0;
  let added = plan.addsExpiry ? expiryPropertyBytes : 0;
  if (options.topicAlias !== undefined) added += aliasPropertyBytes;
  for (const identifier of options.subscriptionIds ?? []) added += 1 + varintSize(identifier);
  return added;
}

function writeRebuilt(
  stored: StoredFrame,
  options: ForwardOptions,
  target: Buffer,
  offset: number,
): number {
  const { bytes } = stored;
  const remaining = planRebuild(stored, options);
  target[offset] = firstByteOf(options);
  let at = putVarint(target, offset + 1, remaining);
  at = target.writeUInt16BE(plan.outTopicLength, at);
  if (plan.outTopicLength > 0) at = putBytes(target, at, bytes, plan.topicStart, plan.topicEnd);
  if (options.qos > 0) at = target.writeUInt16BE(options.packetId, at);
  if (options.version === 5) at = writeProperties(stored, options, target, at);
  return putBytes(target, at, bytes, plan.propertiesEnd, bytes.length);
}

function writeProperties(
  stored: StoredFrame,
  options: ForwardOptions,
  target: Buffer,
  offset: number,
): number {
  const { remainingExpiryS, topicAlias } = options;
  let at = putVarint(target, offset, plan.outPropertiesLength);
  const copied = at - plan.propertiesStart;
  at = putBytes(target, at, stored.bytes, plan.propertiesStart, plan.propertiesEnd);
  if (remainingExpiryS !== undefined) {
    if (plan.addsExpiry) {
      target[at] = messageExpiryId;
      at = target.writeUInt32BE(remainingExpiryS, at + 1);
    } else {
      target.writeUInt32BE(remainingExpiryS, stored.expiryOffset + copied);
    }
  }
  if (topicAlias !== undefined) {
    target[at] = topicAliasId;
    at = target.writeUInt16BE(topicAlias.alias, at + 1);
  }
  for (const identifier of options.subscriptionIds ?? []) {
    target[at] = subscriptionIdentifierId;
    at = putVarint(target, at + 1, identifier);
  }
  return at;
}
