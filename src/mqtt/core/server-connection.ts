// One server-side connection as a sans-IO machine: bytes, ticks and commands in; events to its
// owner and bytes to its output.
//
// It keeps the rules that belong to a connection: CONNECT first and once; nothing after a refusal
// takes effect; what is pipelined behind CONNECT waits for the answer; inbound aliases; our Receive
// Maximum; keep alive; acks in order of arrival; the answer of each version to a fault; no output
// after the end. Who may do what, sessions, windows and wills are the owner's.
//
// Faults of the peer never throw; wrong use by the owner is an assertion, except that commands
// after the end do nothing, since commits finish when they finish.

import { assert, type CodedError, isCodedError } from "../../base/index.ts";
import { decodePacket, firstByteFault } from "../codec/decode.ts";
import type { DecodeContext } from "../codec/decode-context.ts";
import { PacketFramer } from "../codec/framer.ts";
import type { OutputBuffer } from "../codec/output.ts";
import {
  type AuthPacket,
  type ConnectPacket,
  type DisconnectPacket,
  type MqttVersion,
  type Packet,
  packetTypes,
  type SubscribePacket,
  type UnsubscribePacket,
} from "../codec/packets.ts";
import { noProperties, type Properties } from "../codec/properties.ts";
import type { InboundPublish, StoredFrame } from "../codec/publish-frame.ts";
import { type PublishRun, RunReader } from "../codec/publish-run.ts";
import {
  connackReason,
  connackReturnCode,
  disconnectReason,
  type ReasonCode,
  reason,
} from "../codec/reasons.ts";
import type { FrameRun } from "../codec/stored-run.ts";
import { mqttErrors, protocolError, quotaExceeded, reasonCodeOf } from "../errors.ts";
import type { AckToken } from "./ack-queue.ts";
import { AuthExchange } from "./auth-exchange.ts";
import {
  connackProperties,
  decodeContextOf,
  disconnectFault,
  filtersEvent,
  keepAliveOf,
  offerFault,
  peerLimitsOf,
  receiveMaximumOf,
} from "./handshake.ts";
import { HeldBytes } from "./held-bytes.ts";
import { KeepAlive } from "./keep-alive.ts";
import { OwedAcks } from "./owed-acks.ts";
import { ackFirst, PacketSender, type SendOptions, type SendResult } from "./packet-sender.ts";
import { type PlainOwner, PlainPackets } from "./plain-packets.ts";
import { PublishIntake } from "./publish-intake.ts";
import type {
  ConnectAnswer,
  ConnectionEnd,
  EndCause,
  ServerConnectionSettings,
  ServerEvents,
} from "./server-types.ts";

/** `deciding`: CONNECT has come and waits for its answer. */
export type ConnectionState = "opening" | "deciding" | "connected" | "ended";

const noLimits = {
  version: 4,
  maxPacketSize: Number.POSITIVE_INFINITY,
  topicAliasMax: 0,
  problemInformation: true,
} as const;

export class ServerConnection implements PlainOwner {
  readonly #settings: ServerConnectionSettings;
  readonly #events: ServerEvents;
  readonly #sender: PacketSender;
  readonly #framer: PacketFramer;
  readonly #plain: PlainPackets;
  readonly #acks: OwedAcks;
  readonly #keepAlive = new KeepAlive();
  readonly #auth = new AuthExchange();
  readonly #held: HeldBytes;
  #context: DecodeContext;
  #intake: PublishIntake;
  #state: ConnectionState = "opening";
  #connect: ConnectPacket | undefined;
  #nowMs: number;
  /** When a peer that owes us CONNECT or AUTH is cut; undefined while it owes nothing. */
  #handshakeDeadlineMs: number | undefined;

  /**
   * `nowMs` is monotonic time, as in every call that takes it. Connections of one owner share `runs`,
   * with which topics are checked by the settings of the first that meets them.
   */
  constructor(
    settings: ServerConnectionSettings,
    events: ServerEvents,
    output: OutputBuffer,
    nowMs: number,
    runs = new RunReader(),
  ) {
    this.#settings = settings;
    this.#plain = new PlainPackets(runs, events, this);
    this.#events = events;
    this.#sender = new PacketSender(output, noLimits);
    this.#context = decodeContextOf(settings, undefined);
    this.#acks = new OwedAcks(settings.receiveMaximum, (first, packetId, reasonCode, properties) =>
      this.#sendAck(first, packetId, reasonCode, properties),
    );
    this.#intake = new PublishIntake(settings, this.#context, this.#acks.quota);
    this.#held = new HeldBytes(settings.heldBytesMax);
    this.#nowMs = nowMs;
    this.#handshakeDeadlineMs = nowMs + settings.connectTimeoutMs;
    this.#framer = new PacketFramer(
      Math.min(settings.preAuthPacketBytesMax, settings.maxPacketSize),
      {
        onMany: (bytes, offset) =>
          this.#state === "connected"
            ? this.#plain.take(bytes, offset, this.#framer.sizeBytesMax)
            : offset,
        onFrame: (bytes, start, bodyStart, end) => this.onFrame(bytes, start, bodyStart, end),
        onHeader: (firstByte) => this.#headerFault(firstByte),
        onFault: (error) => this.#fail(error),
      },
    );
  }

  get state(): ConnectionState {
    return this.#state;
  }

  /** REQUIRES: CONNECT has come. */
  get connectPacket(): ConnectPacket {
    assert(this.#connect !== undefined, "no CONNECT yet");
    return this.#connect;
  }

  /** As granted; 0 = none. */
  get keepAliveS(): number {
    return this.#keepAlive.keepAliveS;
  }

  get version(): MqttVersion {
    return this.#context.version;
  }

  /** Messages the client takes at once (its Receive Maximum; 65,535 before MQTT 5). */
  get clientReceiveMaximum(): number {
    return receiveMaximumOf(this.connectPacket);
  }

  /**
   * Acks owed to the client. Clients before MQTT 5 know no Receive Maximum: stop reading at a limit
   * of yours.
   */
  get acksOwed(): number {
    return this.#acks.count;
  }

  /** False while what comes could only be held back: stop reading the transport. */
  get readingWanted(): boolean {
    return (
      this.#state !== "deciding" || this.#connect?.properties.authenticationMethod !== undefined
    );
  }

  /** When `tick` has something to do at the earliest; undefined: not before another input. */
  get deadlineMs(): number | undefined {
    if (this.#state === "ended") return undefined;
    return this.#state === "connected" ? this.#keepAlive.deadlineMs : this.#handshakeDeadlineMs;
  }

  // --- inputs ---------------------------------------------------------------------------------

  /** The next bytes of the peer, valid during the call. */
  receive(bytes: Buffer, nowMs: number): void {
    if (this.#state === "ended") return;
    this.#nowMs = nowMs;
    if (!this.readingWanted) {
      this.#hold(bytes);
      return;
    }
    const used = this.#framer.push(bytes);
    if (used < bytes.length && !this.readingWanted) this.#hold(bytes.subarray(used));
  }

  tick(nowMs: number): void {
    this.#nowMs = nowMs;
    const deadlineMs = this.deadlineMs;
    if (deadlineMs === undefined || nowMs < deadlineMs) return;
    if (this.#state !== "connected") {
      const waitMs = this.#settings.connectTimeoutMs;
      const error = mqttErrors.connectTimeout({ waitMs });
      this.#end("connect_timeout", reason.unspecifiedError, error);
      return;
    }
    const { keepAliveS } = this.#keepAlive;
    const silentMs = this.#keepAlive.silentMs(nowMs);
    const reasonCode = reason.keepAliveTimeout;
    const error = mqttErrors.keepAliveTimeout({ reasonCode, silentMs, keepAliveS });
    this.#endWithDisconnect("keep_alive", reasonCode, noProperties, error);
  }

  /** The owner stopped reading the transport: the client's keep alive stands still. */
  pauseKeepAlive(nowMs: number): void {
    this.#keepAlive.pause(nowMs);
  }

  resumeKeepAlive(nowMs: number): void {
    this.#keepAlive.resume(nowMs);
  }

  /** The transport is gone, without or after an end of ours. */
  transportClosed(): void {
    this.#end("transport", reason.unspecifiedError, undefined);
  }

  // --- commands of the owner ------------------------------------------------------------------

  acceptConnect(answer: ConnectAnswer, nowMs: number): void {
    if (this.#state === "ended") return;
    assert(this.#state === "deciding", "no CONNECT to accept");
    const connect = this.connectPacket;
    const properties = connackProperties(connect, answer, this.#settings);
    const { sessionPresent } = answer;
    const reasonCode = reason.success;
    if (!this.#sender.send({ type: "connack", sessionPresent, reasonCode, properties })) {
      this.#end("refused", reason.packetTooLarge, undefined);
      return;
    }
    this.#state = "connected";
    this.#nowMs = nowMs;
    this.#handshakeDeadlineMs = undefined;
    this.#auth.end();
    this.#keepAlive.start(keepAliveOf(connect, answer, this.#settings).keepAliveS, nowMs);
    this.#framer.setSizeBytesMax(this.#settings.maxPacketSize);
    const held = this.#held.take();
    if (held !== undefined) this.receive(held, nowMs);
  }

  /** CONNACK with the reason, or what the client's version has for it, then the end. */
  refuseConnect(reasonCode: ReasonCode, properties: Properties = noProperties): void {
    if (this.#state === "ended") return;
    assert(this.#state === "deciding", "no CONNECT to refuse");
    this.#refuse(this.version, reasonCode, properties);
    this.#end("refused", reasonCode, undefined);
  }

  /**
   * Our part of an authentication exchange: 0x18 asks for more, 0x00 ends one begun after
   * acceptance. (Before acceptance CONNACK ends it.)
   */
  sendAuth(reasonCode: ReasonCode, properties: Properties): void {
    if (this.#state === "ended") return;
    const authenticationMethod = this.connectPacket.properties.authenticationMethod;
    assert(authenticationMethod !== undefined, "AUTH without a method in CONNECT");
    this.#auth.sent(reasonCode);
    if (this.#state === "deciding") {
      this.#handshakeDeadlineMs = this.#nowMs + this.#settings.connectTimeoutMs;
    }
    this.#send({ type: "auth", reasonCode, properties: { ...properties, authenticationMethod } });
  }

  /**
   * Finishes the ack owed for `token`; it leaves when all before it are finished. Before MQTT 5 a
   * failure cannot be said: the message is acked, or end the connection instead.
   */
  completeAck(
    token: AckToken,
    reasonCode: ReasonCode = reason.success,
    properties: Properties = noProperties,
  ): void {
    if (this.#state === "ended") return;
    this.#acks.complete(token, reasonCode, properties);
  }

  /** Acks a whole run at once. REQUIRES: no ack is owed for what came before it. */
  ackRun({ packetIds, count }: PublishRun, reasonCode: ReasonCode): void {
    assert(this.#acks.count === 0, "a run is acked before what came earlier");
    if (this.#state === "ended") return;
    if (!this.#sender.sendPubacks(packetIds, count, reasonCode)) this.#endTooSmall();
  }

  /** One code per filter, in order. Failures are 0x80 before MQTT 5. */
  suback(
    packetId: number,
    reasonCodes: readonly ReasonCode[],
    properties: Properties = noProperties,
  ): void {
    this.#send({ type: "suback", packetId, reasonCodes, properties });
  }

  unsuback(
    packetId: number,
    reasonCodes: readonly ReasonCode[],
    properties: Properties = noProperties,
  ): void {
    this.#send({ type: "unsuback", packetId, reasonCodes, properties });
  }

  /** Whether the client's Maximum Packet Size admits it. */
  fitsPublish(stored: StoredFrame, options: Omit<SendOptions, "topic">): boolean {
    return this.#sender.fitsPublish(stored, options);
  }

  /** The window, ids and the order of messages are the owner's. */
  sendPublish(stored: StoredFrame, options: SendOptions): SendResult {
    if (this.#state === "ended") return "ended";
    assert(this.#state === "connected", "PUBLISH before CONNACK");
    return this.#sender.sendPublish(stored, options);
  }

  /** False, and nothing is sent, where each has to be sent by itself. See `PacketSender.sendRun`. */
  sendRun(run: FrameRun, count: number, packetIds: Uint16Array): boolean {
    return this.#state === "connected" && this.#sender.sendRun(run, count, packetIds);
  }

  /** REQUIRES: in the order of the PUBRECs (4.6.0-4). */
  sendPubrel(packetId: number, reasonCode: ReasonCode = reason.success): void {
    this.#sendAck(ackFirst.pubrel, packetId, reasonCode, noProperties);
  }

  /** Ends the connection: MQTT 5 clients are told why, others find it closed. */
  disconnect(reasonCode: ReasonCode, properties: Properties = noProperties): void {
    if (this.#state === "ended") return;
    if (this.#state === "connected") {
      this.#endWithDisconnect("server_disconnect", reasonCode, properties, undefined);
      return;
    }
    if (this.#state === "deciding") this.#refuse(this.version, reasonCode, properties);
    this.#end("refused", reasonCode, undefined);
  }

  /** A fault that the owner has found, such as an ack for the wrong stage. */
  protocolError(what: string): void {
    if (this.#state !== "ended") this.#fail(protocolError(what));
  }

  // --- packets --------------------------------------------------------------------------------

  #headerFault(firstByte: number): CodedError | undefined {
    if (this.#state === "opening" && firstByte >>> 4 !== packetTypes.connect) return notConnect();
    return firstByteFault(firstByte, this.#context);
  }

  // --- of `PlainOwner`

  get context(): DecodeContext {
    return this.#context;
  }

  heard(): void {
    this.#keepAlive.heard(this.#nowMs);
  }

  mayTakeRun(qos: 0 | 1): boolean {
    if (qos === 0) return true;
    return this.#settings.maximumQos > 0 && (this.version !== 5 || this.#acks.quota.hasRoom);
  }

  /** Returns false when nothing more of the chunk may be read now. */
  onFrame(bytes: Buffer, start: number, bodyStart: number, end: number): boolean {
    const type = (bytes[start] as number) >>> 4;
    if (this.#state === "connected") {
      this.heard();
      if (type === packetTypes.publish) this.#onPublish(bytes, start, bodyStart, end);
      else if (type === packetTypes.connect) this.#fail(protocolError("second CONNECT"));
      else this.#onPacket(bytes, start, bodyStart, end);
    } else if (this.#state === "opening" && type !== packetTypes.connect) {
      this.#fail(notConnect());
    } else {
      this.#onPacket(bytes, start, bodyStart, end);
    }
    return !this.#ended() && this.readingWanted;
  }

  // The state changes under way, which the compiler does not see through calls.
  #ended(): boolean {
    return this.#state === "ended";
  }

  #onPublish(bytes: Buffer, start: number, bodyStart: number, end: number): void {
    let publish: InboundPublish;
    try {
      publish = this.#intake.read(bytes, start, bodyStart, end);
    } catch (error) {
      this.#failOrThrow(error);
      return;
    }
    const { qos, packetId } = publish;
    this.#events.onPublish(publish, qos === 0 ? 0 : this.#acks.ofPublish(qos, packetId));
  }

  #onPacket(bytes: Buffer, start: number, bodyStart: number, end: number): void {
    let packet: Packet;
    try {
      packet = decodePacket(bytes, start, bodyStart, end, this.#context);
    } catch (error) {
      this.#failOrThrow(error);
      return;
    }
    if (this.#state === "opening") this.#onConnect(packet as ConnectPacket);
    else if (this.#state === "deciding") this.#onHandshakePacket(packet);
    else this.#dispatch(packet);
  }

  #onConnect(packet: ConnectPacket): void {
    this.#connect = packet;
    this.#context = decodeContextOf(this.#settings, packet);
    this.#intake = new PublishIntake(this.#settings, this.#context, this.#acks.quota);
    this.#sender.setLimits(peerLimitsOf(packet, this.#settings));
    this.#handshakeDeadlineMs = undefined;
    this.#state = "deciding";
    const fault = packet.will && offerFault(packet.will, this.#settings);
    if (fault === undefined) this.#events.onConnect(packet);
    else this.#fail(fault);
  }

  // With an authentication method in CONNECT only AUTH and DISCONNECT may come before CONNACK.
  #onHandshakePacket(packet: Packet): void {
    if (packet.type === "auth") this.#onAuth(packet);
    else if (packet.type === "disconnect") this.#onDisconnect(packet);
    else this.#fail(protocolError(`${packet.type} during authentication`));
  }

  #dispatch(packet: Packet): void {
    switch (packet.type) {
      case "puback":
        this.#events.onPuback(packet.packetId, packet.reasonCode);
        return;
      case "pubrec":
        this.#events.onPubrec(packet.packetId, packet.reasonCode);
        return;
      case "pubrel": {
        const token = this.#acks.ofPubrel(packet.packetId);
        this.#events.onPubrel(packet.packetId, packet.reasonCode, token);
        return;
      }
      case "pubcomp":
        this.#events.onPubcomp(packet.packetId, packet.reasonCode);
        return;
      case "subscribe":
      case "unsubscribe":
        this.#onFilters(packet);
        return;
      case "pingreq":
        this.#send({ type: "pingresp" });
        return;
      case "disconnect":
        this.#onDisconnect(packet);
        return;
      case "auth":
        this.#onAuth(packet);
        return;
      default:
        // The decoder lets no packet of a server through.
        this.#fail(protocolError(`${packet.type} on an open connection`));
    }
  }

  #onFilters(packet: SubscribePacket | UnsubscribePacket): void {
    let tell: (events: ServerEvents) => void;
    try {
      tell = filtersEvent(packet, this.connectPacket.bridge, this.#settings);
    } catch (error) {
      this.#failOrThrow(error);
      return;
    }
    tell(this.#events);
  }

  #onAuth(packet: AuthPacket): void {
    const method = this.connectPacket.properties.authenticationMethod;
    const fault = this.#auth.take(packet, method, this.#state === "connected");
    if (fault !== undefined) {
      this.#fail(fault);
      return;
    }
    if (this.#state === "deciding") this.#handshakeDeadlineMs = undefined;
    this.#events.onAuth(packet);
  }

  #onDisconnect(packet: DisconnectPacket): void {
    const { reasonCode, properties } = packet;
    const { sessionExpiryS } = properties;
    const fault = disconnectFault(this.connectPacket, properties);
    if (fault !== undefined) {
      this.#fail(fault);
      return;
    }
    const publishWill = this.#state === "connected" && reasonCode !== reason.normalDisconnection;
    const cause = "client_disconnect";
    this.#finish({ cause, reasonCode, publishWill, sessionExpiryS, error: undefined });
  }

  // --- output and end -------------------------------------------------------------------------

  #send(packet: Packet): void {
    if (this.#state === "ended") return;
    if (!this.#sender.send(packet)) this.#endTooSmall();
  }

  #sendAck(first: number, packetId: number, reasonCode: ReasonCode, properties: Properties): void {
    if (this.#state === "ended") return;
    if (!this.#sender.sendAck(first, packetId, reasonCode, properties)) this.#endTooSmall();
  }

  /** The client's Maximum Packet Size leaves no room for what must be said. */
  #endTooSmall(): void {
    this.disconnect(reason.packetTooLarge);
  }

  #hold(bytes: Buffer): void {
    if (!this.#held.add(bytes))
      this.#fail(quotaExceeded("bytes before CONNACK", this.#held.bytesMax));
  }

  #failOrThrow(error: unknown): void {
    if (!isCodedError(error) || error.details.reasonCode === undefined) throw error;
    this.#fail(error);
  }

  #fail(error: CodedError): void {
    if (this.#state === "ended") return;
    const reasonCode = reasonCodeOf(error);
    const properties = { reasonString: error.message };
    if (this.#state === "connected") {
      this.#endWithDisconnect("protocol_error", reasonCode, properties, error);
      return;
    }
    // A CONNECT that could not be read to its level gets no answer: in which form?
    const version = this.#state === "deciding" ? this.version : error.details.version;
    if (version === 4 || version === 5) this.#refuse(version, reasonCode, properties);
    this.#end("protocol_error", reasonCode, error);
  }

  #refuse(version: MqttVersion, reasonCode: ReasonCode, properties: Properties): void {
    if (this.#state === "opening") this.#sender.setLimits({ ...noLimits, version });
    const code = version === 5 ? connackReason(reasonCode) : connackReturnCode(reasonCode);
    if (code === undefined) return;
    this.#sender.send({ type: "connack", sessionPresent: false, reasonCode: code, properties });
  }

  #endWithDisconnect(
    cause: EndCause,
    reasonCode: ReasonCode,
    properties: Properties,
    error: CodedError | undefined,
  ): void {
    if (this.version === 5) {
      const said = disconnectReason(reasonCode);
      this.#sender.send({ type: "disconnect", reasonCode: said, properties });
    }
    this.#end(cause, reasonCode, error);
  }

  #end(cause: EndCause, reasonCode: ReasonCode, error: CodedError | undefined): void {
    if (this.#state === "ended") return;
    const publishWill = this.#state === "connected";
    this.#finish({ cause, reasonCode, publishWill, sessionExpiryS: undefined, error });
  }

  #finish(end: ConnectionEnd): void {
    this.#state = "ended";
    this.#sender.close();
    this.#framer.stop();
    this.#held.take();
    this.#events.onEnd(end);
  }
}

function notConnect(): CodedError {
  return protocolError("the first packet is not CONNECT");
}
