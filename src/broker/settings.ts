// Settings of the broker: plain data, every limit with its reason and its policy at the brim.

import {
  type ReasonCode,
  reason,
  type ServerConnectionSettings,
  serverConnectionSettingsDefault,
} from "../mqtt/index.ts";

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
  /** Longest client identifier: it is part of storage keys. Beyond: 0x85. */
  readonly clientIdBytesMax: number;
  /** Topics whose subscribers are remembered; all are forgotten when one more comes. */
  readonly topicCacheMax: number;
  /** First levels that clients can neither publish to nor read. */
  readonly closedPrefixes: readonly string[];
  /** What a filter without rights is answered in MQTT 5: 0x87, or 0x80 to say less. */
  readonly denySubscribeCode: ReasonCode;
  /** Other server that clients hear of when the broker stops (0x9C); empty: none (0x8B). */
  readonly serverReference: string;
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
  clientIdBytesMax: 1024,
  topicCacheMax: 10_000,
  closedPrefixes: ["$SYS", "$flagstone"],
  denySubscribeCode: reason.notAuthorized,
  serverReference: "",
  lingerMs: 5000,
  closeBatchMax: 500,
  closePaceMs: 10,
  logLinesPerSMax: 10,
};
