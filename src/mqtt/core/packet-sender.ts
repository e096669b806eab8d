// Everything one connection sends: in the form its peer speaks, within the peer's Maximum Packet
// Size, with no output after it was closed.
//
// Reason Strings and user properties are left out where the client asked for it (3.1.2-29) or where
// they would make the packet too large for it (3.2.2-19, -20 and alike).

import { encodePacket } from "../codec/encode.ts";
import { type ForwardOptions, forwardSize, writeForward } from "../codec/forward.ts";
import { describeFrame } from "../codec/frame-layout.ts";
import type { OutputBuffer } from "../codec/output.ts";
import type { MqttVersion, Packet, PublishAckType, Qos } from "../codec/packets.ts";
import { noProperties, type Properties } from "../codec/properties.ts";
import type { StoredFrame } from "../codec/publish-frame.ts";
import { type ReasonCode, reason } from "../codec/reasons.ts";
import type { FrameRun } from "../codec/stored-run.ts";
import { OutboundAliases } from "./aliases.ts";

export type SendOptions = {
  readonly qos: Qos;
  readonly dup: boolean;
  /** As the receiver is to see it. */
  readonly retain: boolean;
  /** 0 for QoS 0. */
  readonly packetId: number;
  readonly subscriptionIds?: readonly number[] | undefined;
  readonly remainingExpiryS?: number | undefined;
  /** Spares decoding it from the frame where topic aliases are in use. */
  readonly topic?: string | undefined;
};

/** `too_large`: the client's Maximum Packet Size forbids it; it counts as delivered (3.1.2-25). */
export type SendResult = "sent" | "too_large" | "ended";

export type PeerLimits = {
  readonly version: MqttVersion;
  readonly maxPacketSize: number;
  /** Aliases we may set at the peer. */
  readonly topicAliasMax: number;
  /** False: reasons in words only where the standard always allows them. */
  readonly problemInformation: boolean;
};

const ackFirstBytes: Record<PublishAckType, number> = {
  puback: 0x40,
  pubrec: 0x50,
  pubrel: 0x62,
  pubcomp: 0x70,
};
/** Of an ack that says nothing but success. */
const bareAckBytes = 4;
const ackTypes = new Map<number, PublishAckType>(
  Object.entries(ackFirstBytes).map(([type, first]) => [first, type as PublishAckType]),
);

/** First byte of an ack, by which `sendAck` knows it. */
export const ackFirst = ackFirstBytes;

export class PacketSender {
  readonly #output: OutputBuffer;
  #limits: PeerLimits;
  #aliases: OutboundAliases;
  #open = true;

  constructor(output: OutputBuffer, limits: PeerLimits) {
    this.#output = output;
    this.#limits = limits;
    this.#aliases = new OutboundAliases(limits.topicAliasMax);
  }

  /** What CONNECT said. REQUIRES: nothing was sent yet. */
  setLimits(limits: PeerLimits): void {
    this.#limits = limits;
    this.#aliases = new OutboundAliases(limits.topicAliasMax);
  }

  close(): void {
    this.#open = false;
  }

  /** False when the packet cannot be made small enough; nothing is sent then. */
  send(packet: Packet): boolean {
    if (!this.#open) return true;
    for (const candidate of this.#candidates(packet)) {
      const bytes = encodePacket(candidate, this.#limits.version);
      if (bytes.length <= this.#limits.maxPacketSize) {
        this.#output.write(bytes);
        return true;
      }
    }
    return false;
  }

  /** PUBACK, PUBREC, PUBREL, PUBCOMP. Before MQTT 5 the reason is not said. */
  sendAck(
    firstByte: number,
    packetId: number,
    reasonCode: ReasonCode,
    properties: Properties,
  ): boolean {
    if (!this.#open) return true;
    const { version, maxPacketSize } = this.#limits;
    const bare = version !== 5 || (reasonCode === reason.success && properties === noProperties);
    if (!bare && properties !== noProperties) {
      const type = ackTypes.get(firstByte) ?? "puback";
      return this.send({ type, packetId, reasonCode, properties });
    }
    const sizeBytes = bare ? bareAckBytes : bareAckBytes + 1;
    if (sizeBytes > maxPacketSize) return false;
    const at = this.#output.reserve(sizeBytes);
    const chunk = this.#output.chunk;
    chunk[at] = firstByte;
    chunk[at + 1] = sizeBytes - 2;
    chunk[at + 2] = packetId >>> 8;
    chunk[at + 3] = packetId & 0xff;
    if (!bare) chunk[at + 4] = reasonCode;
    return true;
  }

  /** PUBACKs for a whole run; false when the peer takes no packet of that size. */
  sendPubacks(packetIds: Uint16Array, count: number, reasonCode: ReasonCode): boolean {
    if (!this.#open) return true;
    const { version, maxPacketSize } = this.#limits;
    const bare = version !== 5 || reasonCode === reason.success;
    const sizeBytes = bare ? bareAckBytes : bareAckBytes + 1;
    if (sizeBytes > maxPacketSize) return false;
    let at = this.#output.reserve(sizeBytes * count);
    const chunk = this.#output.chunk;
    for (let index = 0; index < count; index++) {
      const packetId = packetIds[index] as number;
      chunk[at] = ackFirst.puback;
      chunk[at + 1] = sizeBytes - 2;
      chunk[at + 2] = packetId >>> 8;
      chunk[at + 3] = packetId & 0xff;
      if (!bare) chunk[at + 4] = reasonCode;
      at += sizeBytes;
    }
    return true;
  }

  /**
   * Sends the first `count` frames of a run as they are, under packet ids of ours at QoS 1. False,
   * and nothing is sent, where the peer's form, aliases or packet size ask for each by itself.
   */
  sendRun(run: FrameRun, count: number, packetIds: Uint16Array): boolean {
    const { version, maxPacketSize } = this.#limits;
    if (!this.#open || version !== run.version || this.#aliases.enabled) return false;
    if (run.frameBytesMax > maxPacketSize) return false;
    const end = run.starts[count] as number;
    const at = this.#output.reserve(end - run.start);
    const chunk = this.#output.chunk;
    run.bytes.copy(chunk, at, run.start, end);
    if (run.qos === 0) return true;
    const shift = at - run.start;
    for (let index = 0; index < count; index++) {
      const id = (run.idOffsets[index] as number) + shift;
      const packetId = packetIds[index] as number;
      chunk[id] = packetId >>> 8;
      chunk[id + 1] = packetId & 0xff;
    }
    return true;
  }

  /** Whether `sendPublish` would send it, now or later on this connection. */
  fitsPublish(stored: StoredFrame, options: Omit<SendOptions, "topic">): boolean {
    const { version, maxPacketSize } = this.#limits;
    return forwardSize(stored, { version, ...options }) <= maxPacketSize;
  }

  sendPublish(stored: StoredFrame, options: SendOptions): SendResult {
    if (!this.#open) return "ended";
    const { qos, dup, retain, packetId, subscriptionIds, remainingExpiryS } = options;
    const { version } = this.#limits;
    const plain = { version, qos, dup, retain, packetId, subscriptionIds, remainingExpiryS };
    if (!this.#aliases.enabled) return this.#write(stored, plain);
    const topic = options.topic ?? describeFrame(stored.bytes, stored.version).topic;
    const topicAlias = this.#aliases.find(topic);
    if (topicAlias === undefined) return this.#write(stored, plain);
    if (this.#write(stored, { ...plain, topicAlias }) === "sent") {
      this.#aliases.confirm(topic, topicAlias);
      return "sent";
    }
    // Setting an alias adds three bytes, which may be what is too much.
    return topicAlias.sendTopic ? this.#write(stored, plain) : "too_large";
  }

  #write(stored: StoredFrame, options: ForwardOptions): SendResult {
    const sizeBytes = forwardSize(stored, options);
    if (sizeBytes > this.#limits.maxPacketSize) return "too_large";
    const at = this.#output.reserve(sizeBytes);
    writeForward(stored, options, this.#output.chunk, at);
    return "sent";
  }

  /** The packet, then forms of it with less to say. */
  *#candidates(packet: Packet): Iterable<Packet> {
    if (this.#limits.version !== 5 || !("properties" in packet)) {
      yield packet;
      return;
    }
    const always = packet.type === "connack" || packet.type === "disconnect";
    if (this.#limits.problemInformation || always) {
      yield packet;
      const { userProperties: _users, ...withoutPairs } = packet.properties;
      yield { ...packet, properties: withoutPairs };
    }
    const { userProperties: _users, reasonString: _reason, ...needed } = packet.properties;
    yield { ...packet, properties: needed };
  }
}
