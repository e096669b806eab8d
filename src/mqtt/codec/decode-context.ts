// What a decoder must know besides the bytes, and the small rules that several packets share.

import { protocolError } from "../errors.ts";
import type { MqttVersion } from "./packets.ts";
import {
  decodeProperties,
  noProperties,
  type Properties,
  type PropertyPlace,
} from "./properties.ts";
import type { PacketReader } from "./reader.ts";

export type DecodeContext = {
  /** Form of the packets after CONNECT. */
  readonly version: MqttVersion;
  /** Who sent the bytes: decides which packets and properties may come. */
  readonly sender: "client" | "server";
  /** MQTT 3.1 lets DUP stand in SUBSCRIBE, UNSUBSCRIBE and PUBREL. */
  readonly dupAnywhere: boolean;
  /** Most user properties in one packet; more are refused with 0x97. */
  readonly userPropertiesMax: number;
  /** Most levels of a topic name; more are refused with 0x90. */
  readonly topicLevelsMax: number;
  /** Most filters in one SUBSCRIBE or UNSUBSCRIBE; more are refused with 0x97. */
  readonly filtersMax: number;
  /** Refuse U+0001-001F and U+007F-009F in strings: 0x90 in topic names, else 0x81. */
  readonly refuseControlCharacters: boolean;
};

export const decodeContextDefault: DecodeContext = {
  version: 5,
  sender: "client",
  dupAnywhere: false,
  userPropertiesMax: 64,
  topicLevelsMax: 128,
  filtersMax: 1000,
  refuseControlCharacters: false,
};

/** Properties of a packet, which only MQTT 5 has. */
export function propertiesOf(
  reader: PacketReader,
  place: PropertyPlace,
  context: DecodeContext,
): Properties {
  if (context.version !== 5) return noProperties;
  return decodeProperties(reader, place, context.userPropertiesMax);
}

/** A Response Topic with wildcards is a protocol error (3.3.2-14); empty is no topic (4.7.3-1). */
export function checkResponseTopic(topic: string): void {
  if (topic.includes("+") || topic.includes("#")) throw protocolError("wildcard in responseTopic");
  if (topic === "") throw protocolError("empty responseTopic");
}
