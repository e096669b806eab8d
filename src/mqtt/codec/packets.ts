// The fifteen control packets as data, the same types in both directions and for all versions.
//
// Fields that a version lacks keep the meaning that version implies (3.1.1: no properties, reason
// 0). Byte fields (payload, password, correlation and authentication data) of decoded packets are
// own memory, so a decoded packet outlives the bytes it came from. The hot way of PUBLISH is apart:
// `publish-frame.ts`.

import type { Properties } from "./properties.ts";
import type { ReasonCode } from "./reasons.ts";

export type Qos = 0 | 1 | 2;

/** Form of the packets: 4 is MQTT 3.1.1 (and 3.1), 5 is MQTT 5. */
export type MqttVersion = 4 | 5;

/** Numbers of the packet types on the wire. */
export const packetTypes = {
  connect: 1,
  connack: 2,
  publish: 3,
  puback: 4,
  pubrec: 5,
  pubrel: 6,
  pubcomp: 7,
  subscribe: 8,
  suback: 9,
  unsubscribe: 10,
  unsuback: 11,
  pingreq: 12,
  pingresp: 13,
  disconnect: 14,
  auth: 15,
} as const;

export type PacketType = keyof typeof packetTypes;

export type Will = {
  readonly topic: string;
  readonly payload: Buffer;
  readonly qos: Qos;
  readonly retain: boolean;
  readonly properties: Properties;
};

export type ConnectPacket = {
  readonly type: "connect";
  /** 3 = MQTT 3.1 (`MQIsdp`), 4 = 3.1.1, 5. */
  readonly level: 3 | 4 | 5;
  /** Level 131 or 132: the peer is a bridge and wants RETAIN as published. */
  readonly bridge: boolean;
  readonly clientId: string;
  readonly cleanStart: boolean;
  readonly keepAliveS: number;
  readonly will?: Will;
  readonly userName?: string;
  readonly password?: Buffer;
  readonly properties: Properties;
};

export type ConnackPacket = {
  readonly type: "connack";
  readonly sessionPresent: boolean;
  /** MQTT 5 reason code, or the return code of 3.1.1 as it stands on the wire. */
  readonly reasonCode: ReasonCode;
  readonly properties: Properties;
};

export type PublishPacket = {
  readonly type: "publish";
  readonly topic: string;
  readonly payload: Buffer;
  readonly qos: Qos;
  readonly dup: boolean;
  readonly retain: boolean;
  /** 0 for QoS 0. */
  readonly packetId: number;
  readonly properties: Properties;
};

export type PublishAckType = "puback" | "pubrec" | "pubrel" | "pubcomp";

export type PublishAckPacket = {
  readonly type: PublishAckType;
  readonly packetId: number;
  readonly reasonCode: ReasonCode;
  readonly properties: Properties;
};

export type SubscriptionOptions = {
  readonly qos: Qos;
  readonly noLocal: boolean;
  readonly retainAsPublished: boolean;
  readonly retainHandling: 0 | 1 | 2;
};

export type SubscribePacket = {
  readonly type: "subscribe";
  readonly packetId: number;
  /** Filters as sent; their syntax is not judged here. */
  readonly filters: ReadonlyArray<{
    readonly filter: string;
    readonly options: SubscriptionOptions;
  }>;
  readonly properties: Properties;
};

export type SubackPacket = {
  readonly type: "suback";
  readonly packetId: number;
  readonly reasonCodes: readonly ReasonCode[];
  readonly properties: Properties;
};

export type UnsubscribePacket = {
  readonly type: "unsubscribe";
  readonly packetId: number;
  readonly filters: readonly string[];
  readonly properties: Properties;
};

export type UnsubackPacket = {
  readonly type: "unsuback";
  readonly packetId: number;
  /** Empty in 3.1.1. */
  readonly reasonCodes: readonly ReasonCode[];
  readonly properties: Properties;
};

export type PingreqPacket = { readonly type: "pingreq" };
export type PingrespPacket = { readonly type: "pingresp" };

export type DisconnectPacket = {
  readonly type: "disconnect";
  readonly reasonCode: ReasonCode;
  readonly properties: Properties;
};

export type AuthPacket = {
  readonly type: "auth";
  readonly reasonCode: ReasonCode;
  readonly properties: Properties;
};

export type Packet =
  | ConnectPacket
  | ConnackPacket
  | PublishPacket
  | PublishAckPacket
  | SubscribePacket
  | SubackPacket
  | UnsubscribePacket
  | UnsubackPacket
  | PingreqPacket
  | PingrespPacket
  | DisconnectPacket
  | AuthPacket;
