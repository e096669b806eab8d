// Settings, events and answers of a server-side connection: plain data and one interface.

import type { CodedError } from "../../base/index.ts";
import type { SubscriptionFilter, TopicFault } from "../../topic/index.ts";
import type { AuthPacket, ConnectPacket, Qos, SubscriptionOptions } from "../codec/packets.ts";
import type { Properties } from "../codec/properties.ts";
import type { InboundPublish } from "../codec/publish-frame.ts";
import type { PublishRun } from "../codec/publish-run.ts";
import type { ReasonCode } from "../codec/reasons.ts";
import type { AckToken } from "./ack-queue.ts";

export type ServerConnectionSettings = {
  /** Largest packet taken, fixed header included. */
  readonly maxPacketSize: number;
  /** Largest packet taken before the client is accepted. */
  readonly preAuthPacketBytesMax: number;
  /** From the accept of the socket to a complete CONNECT, and for each answer to a challenge. */
  readonly connectTimeoutMs: number;
  /** Bytes kept of what a client sends behind CONNECT before it has its answer. */
  readonly heldBytesMax: number;
  /** QoS 1 and 2 messages a client may have unacknowledged; MQTT 5 clients only are held to it. */
  readonly receiveMaximum: number;
  /** Topic aliases a client may set; 0 for none. */
  readonly topicAliasMaximum: number;
  /** Topic aliases we set at a client that allows as many; 0 for none. */
  readonly topicAliasMaximumOut: number;
  /** Longest keep alive granted to MQTT 5 clients; 0 for any. */
  readonly keepAliveMaxS: number;
  readonly userPropertiesMax: number;
  readonly topicLevelsMax: number;
  /** Filters in one SUBSCRIBE or UNSUBSCRIBE. */
  readonly filtersMax: number;
  readonly refuseControlCharacters: boolean;
  /** Highest QoS that clients may publish with; SUBSCRIBEs are granted no more. */
  readonly maximumQos: Qos;
  /** False: RETAIN is refused with 0x9A, in publishes and wills. */
  readonly retainAvailable: boolean;
  /** What clients that ask for Response Information are told; empty: nothing. */
  readonly responseInformation: string;
};

export const serverConnectionSettingsDefault: ServerConnectionSettings = {
  maxPacketSize: 8 * 1024 * 1024,
  preAuthPacketBytesMax: 64 * 1024,
  connectTimeoutMs: 10_000,
  heldBytesMax: 128 * 1024,
  receiveMaximum: 1000,
  topicAliasMaximum: 16,
  topicAliasMaximumOut: 16,
  keepAliveMaxS: 0,
  userPropertiesMax: 64,
  topicLevelsMax: 128,
  filtersMax: 1000,
  refuseControlCharacters: false,
  maximumQos: 2,
  retainAvailable: true,
  responseInformation: "",
};

export type RequestedFilter = {
  /** As sent: UNSUBSCRIBE compares character by character. */
  readonly text: string;
  /** Undefined for a filter that is to be refused: 0x8F, or 0x80 before MQTT 5. */
  readonly filter: SubscriptionFilter | undefined;
  readonly fault: TopicFault | undefined;
};

export type SubscribeRequest = {
  readonly packetId: number;
  readonly subscriptionId: number | undefined;
  /** A bridge (level 131, 132) gets No Local and Retain As Published for plain filters. */
  readonly filters: ReadonlyArray<RequestedFilter & { readonly options: SubscriptionOptions }>;
  readonly properties: Properties;
};

export type UnsubscribeRequest = {
  readonly packetId: number;
  readonly filters: readonly RequestedFilter[];
  readonly properties: Properties;
};

export type EndCause =
  | "client_disconnect"
  | "server_disconnect"
  | "refused"
  | "protocol_error"
  | "keep_alive"
  | "connect_timeout"
  | "transport";

export type ConnectionEnd = {
  readonly cause: EndCause;
  /** What the peer was told or told us; for log lines also where nothing was sent. */
  readonly reasonCode: ReasonCode;
  /**
   * True when an accepted client's connection ends without its DISCONNECT 0x00. A takeover or a
   * stop of the broker has rules of its own, which are the caller's.
   */
  readonly publishWill: boolean;
  /** A new Session Expiry Interval out of the client's DISCONNECT. */
  readonly sessionExpiryS: number | undefined;
  readonly error: CodedError | undefined;
};

/**
 * What a connection tells its owner, synchronously, in the order of arrival. `InboundPublish` is
 * only valid during the call; everything else may be kept. After `onEnd` nothing follows: write
 * what the output holds, then close the transport.
 */
export interface ServerEvents {
  /** Answer with `acceptConnect`, `refuseConnect` or a challenge, now or later. */
  onConnect(packet: ConnectPacket): void;
  /** `token` is owed a `completeAck`; 0 for QoS 0, which is owed nothing. */
  onPublish(publish: InboundPublish, token: AckToken): void;
  /** Asked before a run is looked for. False: it would be declined, whatever it is. */
  takesRuns?(qos: 0 | 1): boolean;
  /**
   * Plain PUBLISHes of one topic, valid during the call. True: all of them were taken, and at QoS 1
   * acked by `ackRun`; false: nothing was done, and they follow one by one through `onPublish`.
   */
  onPublishRun?(run: PublishRun): boolean;
  onPuback(packetId: number, reasonCode: ReasonCode): void;
  /** Several in a row, all of success, valid during the call. False: nothing was done, as above. */
  onPubacks?(packetIds: Uint16Array, count: number): boolean;
  onPubrec(packetId: number, reasonCode: ReasonCode): void;
  onPubrel(packetId: number, reasonCode: ReasonCode, token: AckToken): void;
  onPubcomp(packetId: number, reasonCode: ReasonCode): void;
  onSubscribe(request: SubscribeRequest): void;
  onUnsubscribe(request: UnsubscribeRequest): void;
  /** The client's part of an authentication exchange, before or after acceptance. */
  onAuth(packet: AuthPacket): void;
  onEnd(end: ConnectionEnd): void;
}

export type ConnectAnswer = {
  readonly sessionPresent: boolean;
  /**
   * Assigned identifier, granted Session Expiry and so on. The core adds its own: Receive Maximum,
   * Topic Alias Maximum, Maximum Packet Size, Server Keep Alive, Maximum QoS, Retain Available,
   * Response Information, the method.
   */
  readonly properties?: Properties;
};
