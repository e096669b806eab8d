// One client-side connection as a sans-IO machine: for `flagstone pub`, `sub`, bridges and tests.
//
// It connects, publishes at any QoS within the server's Receive Maximum, subscribes, pings, and
// finishes what a resumed session left open. A message is acknowledged when its receiver says so,
// not when it arrives. Reconnecting is the owner's: the next connection takes the same session.

import { assert, type CodedError, isCodedError } from "../../base/index.ts";
import { decodePacket, firstByteFault } from "../codec/decode.ts";
import { type DecodeContext, decodeContextDefault } from "../codec/decode-context.ts";
import { encodePacket } from "../codec/encode.ts";
import { PacketFramer } from "../codec/framer.ts";
import type { OutputBuffer } from "../codec/output.ts";
import type {
  AuthPacket,
  ConnackPacket,
  ConnectPacket,
  Packet,
  PublishPacket,
  Qos,
  SubackPacket,
  SubscribePacket,
  UnsubackPacket,
} from "../codec/packets.ts";
import { noProperties, type Properties } from "../codec/properties.ts";
import { type ReasonCode, reason } from "../codec/reasons.ts";
import { mqttErrors, protocolError, reasonCodeOf } from "../errors.ts";
import { InboundAliases } from "./aliases.ts";
import type { ClientSession } from "./client-session.ts";
import type { AckOutcome } from "./outbound-window.ts";

export type ClientSettings = {
  readonly maxPacketSize: number;
};

export const clientSettingsDefault: ClientSettings = { maxPacketSize: 0x0fff_ffff };

export type ClientEnd = {
  readonly cause:
    | "refused"
    | "server_disconnect"
    | "client_disconnect"
    | "protocol_error"
    | "keep_alive"
    | "transport";
  readonly reasonCode: ReasonCode;
  readonly properties: Properties;
  readonly error: CodedError | undefined;
};

export interface ClientEvents {
  /** Accepted; a refusal is an end. What a resumed session owes has been sent again. */
  onConnack(packet: ConnackPacket): void;
  /** Owed an `acknowledge` unless QoS 0. A QoS 2 message is told once. */
  onPublish(packet: PublishPacket): void;
  /** A message of ours is finished: PUBACK, PUBCOMP or a PUBREC that refuses. */
  onPublished(packetId: number, reasonCode: ReasonCode): void;
  onSuback(packet: SubackPacket): void;
  onUnsuback(packet: UnsubackPacket): void;
  onAuth(packet: AuthPacket): void;
  onEnd(end: ClientEnd): void;
}

export type ClientMessage = {
  readonly topic: string;
  readonly payload: Buffer;
  readonly qos: Qos;
  readonly retain: boolean;
  /** Without a topic alias, which would not survive a reconnect. */
  readonly properties?: Properties;
};

const failureMin = 0x80;
const receiveMaximumDefault = 0xffff;

export class ClientConnection {
  readonly #session: ClientSession;
  readonly #events: ClientEvents;
  readonly #output: OutputBuffer;
  readonly #connect: ConnectPacket;
  readonly #framer: PacketFramer;
  readonly #context: DecodeContext;
  readonly #aliases: InboundAliases;
  #state: "connecting" | "connected" | "ended" = "connecting";
  #receiveMaximum = receiveMaximumDefault;
  #maximumPacketSize = Number.POSITIVE_INFINITY;
  #keepAliveMs: number;
  #nowMs: number;
  #sentMs: number;
  #pingSentMs: number | undefined;

  /** Sends CONNECT at once. `nowMs` is monotonic time. */
  constructor(
    parts: {
      readonly settings: ClientSettings;
      readonly session: ClientSession;
      readonly events: ClientEvents;
      readonly output: OutputBuffer;
    },
    connect: ConnectPacket,
    nowMs: number,
  ) {
    this.#session = parts.session;
    this.#events = parts.events;
    this.#output = parts.output;
    this.#connect = connect;
    this.#keepAliveMs = connect.keepAliveS * 1000;
    this.#nowMs = nowMs;
    this.#sentMs = nowMs;
    this.#aliases = new InboundAliases(connect.properties.topicAliasMaximum ?? 0);
    this.#context = {
      ...decodeContextDefault,
      version: connect.level === 5 ? 5 : 4,
      sender: "server",
      userPropertiesMax: Number.POSITIVE_INFINITY,
      topicLevelsMax: Number.POSITIVE_INFINITY,
    };
    this.#framer = new PacketFramer(parts.settings.maxPacketSize, {
      onFrame: (bytes, start, bodyStart, end) => {
        this.#onFrame(bytes, start, bodyStart, end);
        return this.#state !== "ended";
      },
      onHeader: (firstByte) => firstByteFault(firstByte, this.#context),
      onFault: (error) => this.#fail(error),
    });
    this.#session.requests.clear();
    this.#write(connect);
  }

  get state(): "connecting" | "connected" | "ended" {
    return this.#state;
  }

  // --- inputs ---------------------------------------------------------------------------------

  /** The next bytes of the server, valid during the call. */
  receive(bytes: Buffer, nowMs: number): void {
    if (this.#state === "ended") return;
    this.#nowMs = nowMs;
    this.#framer.push(bytes);
  }

  /** Sends PINGREQ when nothing else was sent for the keep alive, and ends when no answer comes. */
  tick(nowMs: number): void {
    this.#nowMs = nowMs;
    if (this.#state !== "connected" || this.#keepAliveMs === 0) return;
    if (this.#pingSentMs !== undefined) {
      if (nowMs - this.#pingSentMs < this.#keepAliveMs) return;
      const details = { silentMs: nowMs - this.#pingSentMs, keepAliveS: this.#keepAliveMs / 1000 };
      this.#end("keep_alive", reason.keepAliveTimeout, mqttErrors.keepAliveTimeout(details));
      return;
    }
    if (nowMs - this.#sentMs < this.#keepAliveMs) return;
    this.#pingSentMs = nowMs;
    this.#write({ type: "pingreq" });
  }

  transportClosed(): void {
    this.#end("transport", reason.unspecifiedError, undefined);
  }

  // --- commands -------------------------------------------------------------------------------

  /** False while the server's Receive Maximum is reached: QoS 1 and 2 messages must wait. */
  get hasRoom(): boolean {
    return this.#state === "connected" && this.#session.window.size < this.#receiveMaximum;
  }

  /**
   * Sends a message; its packet id, 0 at QoS 0. REQUIRES: connected, and `hasRoom` above QoS 0.
   * @throws MQTT_PACKET_TOO_LARGE for the server's Maximum Packet Size, MQTT_PACKET_UNENCODABLE.
   */
  publish(message: ClientMessage): number {
    assert(this.#state === "connected", "publish before CONNACK or after the end");
    assert(message.qos === 0 || this.hasRoom, "Receive Maximum of the server");
    const { topic, payload, qos, retain, properties = noProperties } = message;
    const packetId = qos === 0 ? 0 : this.#takeId();
    const flags = { qos, dup: false, retain };
    const packet: PublishPacket = {
      type: "publish",
      topic,
      payload,
      ...flags,
      packetId,
      properties,
    };
    const bytes = encodePacket(packet, this.#context.version);
    if (bytes.length > this.#maximumPacketSize) {
      const sizeBytesMax = this.#maximumPacketSize;
      throw mqttErrors.packetTooLarge({ sizeBytes: bytes.length, sizeBytesMax });
    }
    if (qos > 0) {
      const stage = qos === 1 ? "sent1" : "sent2";
      this.#session.window.add({ packetId, stage, sizeBytes: bytes.length, value: packet });
    }
    this.#writeBytes(bytes);
    return packetId;
  }

  /** Returns the packet id that SUBACK will carry. */
  subscribe(filters: SubscribePacket["filters"], properties: Properties = noProperties): number {
    const packetId = this.#takeRequestId();
    this.#write({ type: "subscribe", packetId, filters, properties });
    return packetId;
  }

  unsubscribe(filters: readonly string[], properties: Properties = noProperties): number {
    const packetId = this.#takeRequestId();
    this.#write({ type: "unsubscribe", packetId, filters, properties });
    return packetId;
  }

  /** Takes over a message: PUBACK or PUBREC. REQUIRES: in the order of arrival. */
  acknowledge(packet: PublishPacket, reasonCode: ReasonCode = reason.success): void {
    if (this.#state === "ended" || packet.qos === 0) return;
    const { packetId } = packet;
    const type = packet.qos === 1 ? "puback" : "pubrec";
    if (packet.qos === 2 && reasonCode >= failureMin) this.#session.received.release(packetId);
    this.#write({ type, packetId, reasonCode, properties: noProperties });
  }

  sendAuth(reasonCode: ReasonCode, properties: Properties): void {
    if (this.#state !== "ended") this.#write({ type: "auth", reasonCode, properties });
  }

  disconnect(
    reasonCode: ReasonCode = reason.normalDisconnection,
    properties: Properties = noProperties,
  ): void {
    if (this.#state === "ended") return;
    if (this.#state === "connected") this.#write({ type: "disconnect", reasonCode, properties });
    this.#end("client_disconnect", reasonCode, undefined);
  }

  // --- packets --------------------------------------------------------------------------------

  #onFrame(bytes: Buffer, start: number, bodyStart: number, end: number): void {
    let packet: Packet;
    try {
      packet = decodePacket(bytes, start, bodyStart, end, this.#context);
      if (packet.type === "publish") packet = this.#resolveAlias(packet);
    } catch (error) {
      if (!isCodedError(error)) throw error;
      this.#fail(error);
      return;
    }
    if (this.#state === "connected") this.#dispatch(packet);
    else if (packet.type === "connack") this.#onConnack(packet);
    else if (packet.type === "auth") this.#events.onAuth(packet);
    else this.#fail(protocolError(`${packet.type} before CONNACK`));
  }

  #resolveAlias(packet: PublishPacket): PublishPacket {
    const { topicAlias } = packet.properties;
    if (topicAlias === undefined) return packet;
    return { ...packet, topic: this.#aliases.resolve(topicAlias, packet.topic) };
  }

  #onConnack(packet: ConnackPacket): void {
    const { properties, reasonCode } = packet;
    if (reasonCode !== reason.success) {
      this.#end("refused", reasonCode, undefined, properties);
      return;
    }
    this.#state = "connected";
    this.#receiveMaximum = properties.receiveMaximum ?? receiveMaximumDefault;
    this.#maximumPacketSize = properties.maximumPacketSize ?? Number.POSITIVE_INFINITY;
    this.#keepAliveMs = (properties.serverKeepAliveS ?? this.#connect.keepAliveS) * 1000;
    if (packet.sessionPresent) this.#resume();
    else this.#session.reset();
    this.#events.onConnack(packet);
  }

  /** What was sent and not finished goes out again in its order (4.4.0-1). */
  #resume(): void {
    for (const { packetId, stage, value } of this.#session.window.entries()) {
      if (stage === "released") this.#writePubrel(packetId, reason.success);
      else this.#write({ ...value, dup: true });
    }
  }

  #dispatch(packet: Packet): void {
    switch (packet.type) {
      case "publish":
        this.#onPublish(packet);
        return;
      case "puback":
        this.#onAck(
          packet.packetId,
          packet.reasonCode,
          this.#session.window.puback(packet.packetId),
        );
        return;
      case "pubrec":
        this.#onPubrec(packet.packetId, packet.reasonCode);
        return;
      case "pubcomp":
        this.#onAck(packet.packetId, reason.success, this.#session.window.pubcomp(packet.packetId));
        return;
      case "pubrel": {
        const { packetId } = packet;
        const reasonCode = this.#session.received.release(packetId);
        this.#write({ type: "pubcomp", packetId, reasonCode, properties: noProperties });
        return;
      }
      case "suback":
        this.#session.requests.delete(packet.packetId);
        this.#events.onSuback(packet);
        return;
      case "unsuback":
        this.#session.requests.delete(packet.packetId);
        this.#events.onUnsuback(packet);
        return;
      case "pingresp":
        this.#pingSentMs = undefined;
        return;
      case "auth":
        this.#events.onAuth(packet);
        return;
      case "disconnect":
        this.#end("server_disconnect", packet.reasonCode, undefined, packet.properties);
        return;
      default:
        this.#fail(protocolError(`${packet.type} on an open connection`));
    }
  }

  #onPublish(packet: PublishPacket): void {
    if (packet.qos === 2 && this.#session.received.receive(packet.packetId) === "repeat") {
      this.acknowledge(packet);
      return;
    }
    this.#events.onPublish(packet);
  }

  #onPubrec(packetId: number, reasonCode: ReasonCode): void {
    const outcome = this.#session.window.pubrec(packetId, reasonCode);
    // One we know nothing of gets its PUBREL all the same, so that the server can end it.
    if (outcome === "unknown" && reasonCode < failureMin) {
      this.#writePubrel(packetId, reason.packetIdentifierNotFound);
    } else {
      this.#onAck(packetId, reasonCode, outcome);
    }
  }

  #onAck(packetId: number, reasonCode: ReasonCode, outcome: AckOutcome): void {
    switch (outcome) {
      case "done":
        this.#events.onPublished(packetId, reasonCode);
        return;
      case "release":
        this.#writePubrel(packetId, reason.success);
        return;
      case "protocol_error":
        this.#fail(protocolError(`ack for the wrong stage of packet ${packetId}`));
        return;
      case "unknown":
        // Late, or of a session that was lost.
        return;
    }
  }

  // --- output and end -------------------------------------------------------------------------

  #writePubrel(packetId: number, reasonCode: ReasonCode): void {
    this.#write({ type: "pubrel", packetId, reasonCode, properties: noProperties });
  }

  #write(packet: Packet): void {
    this.#writeBytes(encodePacket(packet, this.#context.version));
  }

  #writeBytes(bytes: Buffer): void {
    this.#sentMs = this.#nowMs;
    this.#output.write(bytes);
  }

  #takeId(): number {
    const packetId = this.#session.takeId();
    assert(packetId !== undefined, "all packet ids are in use");
    return packetId;
  }

  #takeRequestId(): number {
    assert(this.#state === "connected", "request before CONNACK or after the end");
    const packetId = this.#takeId();
    this.#session.requests.add(packetId);
    return packetId;
  }

  #fail(error: CodedError): void {
    if (this.#state === "ended") return;
    const reasonCode = reasonCodeOf(error);
    if (this.#state === "connected" && this.#context.version === 5) {
      this.#write({ type: "disconnect", reasonCode, properties: noProperties });
    }
    this.#end("protocol_error", reasonCode, error);
  }

  #end(
    cause: ClientEnd["cause"],
    reasonCode: ReasonCode,
    error: CodedError | undefined,
    properties: Properties = noProperties,
  ): void {
    if (this.#state === "ended") return;
    this.#state = "ended";
    this.#framer.stop();
    this.#events.onEnd({ cause, reasonCode, properties, error });
  }
}
