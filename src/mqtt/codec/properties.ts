// The 27 properties of MQTT 5 (section 2.2.2): one table says number, name, type, where each may
// stand and what values it may have; decoding and encoding walk it.
//
// Order and repeats of user properties are kept. Decoding is linear: the count of user properties
// is bounded before they are kept.

import { ByteWriter } from "../../base/index.ts";
import {
  malformed,
  protocolError,
  quotaExceeded,
  topicAliasInvalid,
  unencodable,
} from "../errors.ts";
import type { PacketReader } from "./reader.ts";
import { writeBinary, writeText } from "./writer.ts";

export type UserProperty = readonly [name: string, value: string];

/** Properties by name; absent ones are absent. Which may stand where: `propertyTable`. */
export type Properties = {
  /** 1: the payload is UTF-8. */
  readonly payloadFormat?: number;
  readonly messageExpiryS?: number;
  readonly contentType?: string;
  readonly responseTopic?: string;
  readonly correlationData?: Buffer;
  /** One in SUBSCRIBE, any number in a PUBLISH to a client. */
  readonly subscriptionIdentifiers?: readonly number[];
  /** 0xFFFFFFFF never expires. */
  readonly sessionExpiryS?: number;
  readonly assignedClientId?: string;
  readonly serverKeepAliveS?: number;
  readonly authenticationMethod?: string;
  readonly authenticationData?: Buffer;
  readonly requestProblemInformation?: boolean;
  readonly willDelayS?: number;
  readonly requestResponseInformation?: boolean;
  readonly responseInformation?: string;
  readonly serverReference?: string;
  readonly reasonString?: string;
  readonly receiveMaximum?: number;
  readonly topicAliasMaximum?: number;
  readonly topicAlias?: number;
  readonly maximumQos?: number;
  readonly retainAvailable?: boolean;
  readonly userProperties?: readonly UserProperty[];
  readonly maximumPacketSize?: number;
  readonly wildcardSubscriptionAvailable?: boolean;
  readonly subscriptionIdentifiersAvailable?: boolean;
  readonly sharedSubscriptionAvailable?: boolean;
};

export type PropertyName = keyof Properties;

/** Where properties stand: a packet type number, or 0 for those of a will. */
export type PropertyPlace = number;

type PropertyType = "bit" | "flag" | "u16" | "u32" | "varint" | "text" | "binary" | "pair";

export type PropertyRow = {
  readonly id: number;
  readonly name: PropertyName;
  readonly type: PropertyType;
  /** Bit n: may stand at place n. */
  readonly places: number;
  readonly zero: "allowed" | "refused";
};

const will = 1 << 0;
const connect = 1 << 1;
const connack = 1 << 2;
const publish = 1 << 3;
const puback = 1 << 4;
const pubrec = 1 << 5;
const pubrel = 1 << 6;
const pubcomp = 1 << 7;
const subscribe = 1 << 8;
const suback = 1 << 9;
const unsubscribe = 1 << 10;
const unsuback = 1 << 11;
const disconnect = 1 << 14;
const auth = 1 << 15;
const acks = puback | pubrec | pubrel | pubcomp | suback | unsuback;
const all = will | connect | connack | publish | acks | subscribe | unsubscribe | disconnect | auth;

function row(
  id: number,
  name: PropertyName,
  type: PropertyType,
  places: number,
  zero: "allowed" | "refused" = "allowed",
): PropertyRow {
  return { id, name, type, places, zero };
}

export const propertyTable: readonly PropertyRow[] = [
  row(0x01, "payloadFormat", "bit", publish | will),
  row(0x02, "messageExpiryS", "u32", publish | will),
  row(0x03, "contentType", "text", publish | will),
  row(0x08, "responseTopic", "text", publish | will),
  row(0x09, "correlationData", "binary", publish | will),
  row(0x0b, "subscriptionIdentifiers", "varint", publish | subscribe, "refused"),
  row(0x11, "sessionExpiryS", "u32", connect | connack | disconnect),
  row(0x12, "assignedClientId", "text", connack),
  row(0x13, "serverKeepAliveS", "u16", connack),
  row(0x15, "authenticationMethod", "text", connect | connack | auth),
  row(0x16, "authenticationData", "binary", connect | connack | auth),
  row(0x17, "requestProblemInformation", "flag", connect),
  row(0x18, "willDelayS", "u32", will),
  row(0x19, "requestResponseInformation", "flag", connect),
  row(0x1a, "responseInformation", "text", connack),
  row(0x1c, "serverReference", "text", connack | disconnect),
  row(0x1f, "reasonString", "text", connack | acks | disconnect | auth),
  row(0x21, "receiveMaximum", "u16", connect | connack, "refused"),
  row(0x22, "topicAliasMaximum", "u16", connect | connack),
  row(0x23, "topicAlias", "u16", publish, "refused"),
  row(0x24, "maximumQos", "bit", connack),
  row(0x25, "retainAvailable", "flag", connack),
  row(0x26, "userProperties", "pair", all),
  row(0x27, "maximumPacketSize", "u32", connect | connack, "refused"),
  row(0x28, "wildcardSubscriptionAvailable", "flag", connack),
  row(0x29, "subscriptionIdentifiersAvailable", "flag", connack),
  row(0x2a, "sharedSubscriptionAvailable", "flag", connack),
];

const rowsById: ReadonlyArray<PropertyRow | undefined> = Array.from({ length: 0x2b }, (_, id) =>
  propertyTable.find((candidate) => candidate.id === id),
);

export const noProperties: Properties = {};

type MutableProperties = { -readonly [K in PropertyName]?: unknown };
type PropertyValue = number | boolean | string | Buffer | UserProperty;

/** Reads a property length and the properties it covers. */
export function decodeProperties(
  reader: PacketReader,
  place: PropertyPlace,
  userPropertiesMax: number,
): Properties {
  const length = reader.varint("property length");
  if (length === 0) return noProperties;
  const section = reader.section(length, "properties");
  const found: MutableProperties = {};
  const pairs: UserProperty[] = [];
  const identifiers: number[] = [];
  while (section.remaining > 0) {
    const property = rowsById[section.varint("property identifier")];
    if (property === undefined) throw malformed("unknown property");
    const { name } = property;
    if ((property.places & (1 << place)) === 0) throw malformed(`${name} is not allowed here`);
    const value = readValue(section, property);
    if (property.type === "pair") {
      if (pairs.length === userPropertiesMax)
        throw quotaExceeded("user properties", userPropertiesMax);
      pairs.push(value as UserProperty);
    } else if (name === "subscriptionIdentifiers" && place === packetPlacePublish) {
      identifiers.push(value as number);
    } else {
      if (found[name] !== undefined) throw protocolError(`${name} stands twice`);
      found[name] = name === "subscriptionIdentifiers" ? [value] : value;
    }
  }
  if (pairs.length > 0) found.userProperties = pairs;
  if (identifiers.length > 0) found.subscriptionIdentifiers = identifiers;
  return found as Properties;
}

const packetPlacePublish: PropertyPlace = 3;

function readValue(reader: PacketReader, property: PropertyRow): PropertyValue {
  const { name, type } = property;
  switch (type) {
    case "text":
      return reader.string(name);
    case "binary":
      return reader.binary(name);
    case "pair":
      return [reader.string(name), reader.string(name)];
    case "bit":
    case "flag": {
      const value = reader.u8(name);
      if (value > 1) throw protocolError(`${name} is ${value}`);
      return type === "flag" ? value === 1 : value;
    }
    default: {
      const value = reader[type](name);
      if (value === 0 && property.zero === "refused") {
        throw name === "topicAlias" ? topicAliasInvalid(0, 0xffff) : protocolError(`${name} is 0`);
      }
      return value;
    }
  }
}

/** Property length and properties. @throws MQTT_PACKET_UNENCODABLE for one not allowed here. */
export function encodeProperties(properties: Properties, place: PropertyPlace): Buffer {
  const body = new ByteWriter();
  for (const property of propertyTable) {
    const value = properties[property.name];
    if (value === undefined) continue;
    if ((property.places & (1 << place)) === 0) {
      throw unencodable(`${property.name} is not allowed here`);
    }
    for (const item of valuesOf(property, value)) {
      body.u8(property.id);
      writeValue(body, property, item);
    }
  }
  return new ByteWriter(body.length + 4).varint(body.length).raw(body.finish()).finish();
}

function valuesOf(property: PropertyRow, value: unknown): readonly PropertyValue[] {
  const many = property.type === "pair" || property.type === "varint";
  return (many ? value : [value]) as readonly PropertyValue[];
}

const numberMaxima = { bit: 1, u16: 0xffff, u32: 0xffff_ffff, varint: 0x0fff_ffff } as const;

function writeValue(writer: ByteWriter, property: PropertyRow, value: PropertyValue): void {
  const { name, type } = property;
  switch (type) {
    case "text":
      writeText(writer, value as string, name);
      return;
    case "binary":
      writeBinary(writer, value as Buffer, name);
      return;
    case "pair":
      for (const text of value as UserProperty) writeText(writer, text, name);
      return;
    case "flag":
      writer.u8(value === true ? 1 : 0);
      return;
    default: {
      const number = value as number;
      const min = property.zero === "refused" ? 1 : 0;
      if (!Number.isInteger(number) || number < min || number > numberMaxima[type]) {
        throw unencodable(`${name} is ${number}`);
      }
      if (type === "bit") writer.u8(number);
      else writer[type](number);
    }
  }
}
