// Settings of the broker: plain data, every limit with its reason and its policy at the brim.

import {
  type ReasonCode,
  reason,
  type ServerConnectionSettings,
  serverConnectionSettingsDefault,
} from "../mqtt/index.ts";
import { type ThrottleSettings, throttleSettingsDefault } from "./auth/throttle.ts";
import type { DeviceProfile } from "./limits/devices.ts";
import { type FlappingSettings, flappingSettingsDefault } from "./limits/flapping.ts";
import type { OverloadSettings } from "./limits/overload.ts";

export type BrokerSettings = {
  /** Limits of one connection's protocol; announced to clients where MQTT has a field for it. */
  readonly mqtt: ServerConnectionSettings;
  /** Longer wishes are capped and told in CONNACK; Infinity lifts the limit. */
  readonly sessionExpiryMaxS: number;
  /** How long a message that cannot be stored is held back before it is refused. */
  readonly publishWaitMs: number;
  /** How long SUBSCRIBE and UNSUBSCRIBE wait for their commit before their filters fail. */
  readonly subscribeWaitMs: number;
  /** How long CONNECT waits for its session before it is refused with 0x88. */
  readonly connectWaitMs: number;
  /** Stores QoS 0 messages too for durable sessions that want them. */
  readonly storeQos0: boolean;
  /** Bytes queued to one connection; at the brim QoS 0 is dropped, other messages wait. */
  readonly outboundBufferBytesMax: number;
  /** Bytes of one client's publishes that are not finished; beyond it is not read. */
  readonly publishBytesMax: number;
  /** The same as a count: clients before MQTT 5 know no Receive Maximum. */
  readonly publishesMax: number;
  /** SUBSCRIBEs and UNSUBSCRIBEs of one client under way; beyond it is not read. */
  readonly subscribesMax: number;
  /** Connections at once, whatever their state; beyond they are closed at once. */
  readonly connectionsMax: number;
  /** Connections of one address that have not been accepted yet; beyond they are closed. */
  readonly preAuthSocketsPerAddress: number;
  /** Connections of one address, whatever their state; beyond they are closed at once. */
  readonly connectionsPerAddressMax: number;
  /** New connections in a second, in total and of one address; beyond they are closed at once. */
  readonly connectsPerS: number;
  readonly connectsPerSPerAddress: number;
  /** PUBLISHes and bytes of all clients, and of one address; beyond clients are not read. */
  readonly messagesPerS: number;
  readonly bytesPerS: number;
  readonly messagesPerSPerAddress: number;
  readonly bytesPerSPerAddress: number;
  /** At the brim new connections are shed, then QoS 0. */
  readonly overload: OverloadSettings;
  /** Wrong logins after which further ones are refused unseen for a while. */
  readonly throttle: ThrottleSettings;
  /** Takeovers of one client id that are told, and slowed down. */
  readonly flapping: FlappingSettings;
  /** How long the CONNECT of an id that flaps waits. */
  readonly flappingDelayMs: number;
  /** Clients that take less than they can say. */
  readonly devices: readonly DeviceProfile[];
  /** How often `$SYS` and `$flagstone` are published to those who subscribed; 0: never. */
  readonly sysIntervalMs: number;
  /** Longest client identifier: it is part of storage keys. Beyond: 0x85. */
  readonly clientIdBytesMax: number;
  /** Topics whose subscribers are remembered; all are forgotten when one more comes. */
  readonly topicCacheMax: number;
  /** First levels of the broker's own topics: clients cannot publish to them. */
  readonly closedPrefixes: readonly string[];
  /** Those of them that clients may read, as far as rules let them. */
  readonly readablePrefixes: readonly string[];
  /** What a filter without rights is answered in MQTT 5: 0x87, or 0x80 to say less. */
  readonly denySubscribeCode: ReasonCode;
  /** Other server that clients hear of when the broker stops (0x9C); empty: none (0x8B). */
  readonly serverReference: string;
  /** For one answer of one hook; beyond, what it was asked for is refused. */
  readonly hookTimeoutMs: number;
  /** How long a closed connection may take to send its rest. */
  readonly lingerMs: number;
  /** Clients let go at once when the broker stops, and the pause before the next ones. */
  readonly closeBatchMax: number;
  readonly closePaceMs: number;
  /** Lines of one event in a second; more are counted and told with the next line. */
  readonly logLinesPerSMax: number;
};

export const brokerSettingsDefault: BrokerSettings = {
  mqtt: serverConnectionSettingsDefault,
  sessionExpiryMaxS: 7 * 24 * 3600,
  publishWaitMs: 15_000,
  subscribeWaitMs: 10_000,
  connectWaitMs: 15_000,
  storeQos0: false,
  outboundBufferBytesMax: 4 * 1024 * 1024,
  publishBytesMax: 4 * 1024 * 1024,
  publishesMax: 2000,
  subscribesMax: 100,
  connectionsMax: 100_000,
  preAuthSocketsPerAddress: 64,
  connectionsPerAddressMax: Number.POSITIVE_INFINITY,
  connectsPerS: Number.POSITIVE_INFINITY,
  connectsPerSPerAddress: Number.POSITIVE_INFINITY,
  messagesPerS: Number.POSITIVE_INFINITY,
  bytesPerS: Number.POSITIVE_INFINITY,
  messagesPerSPerAddress: Number.POSITIVE_INFINITY,
  bytesPerSPerAddress: Number.POSITIVE_INFINITY,
  overload: { lagMsMax: 1000, memoryBytesMax: Number.POSITIVE_INFINITY },
  throttle: throttleSettingsDefault,
  flapping: flappingSettingsDefault,
  flappingDelayMs: 1000,
  devices: [],
  sysIntervalMs: 10_000,
  clientIdBytesMax: 1024,
  topicCacheMax: 10_000,
  closedPrefixes: ["$SYS", "$flagstone", "$internal"],
  readablePrefixes: ["$SYS", "$flagstone"],
  denySubscribeCode: reason.notAuthorized,
  serverReference: "",
  hookTimeoutMs: 5000,
  lingerMs: 5000,
  closeBatchMax: 500,
  closePaceMs: 10,
  logLinesPerSMax: 10,
};
