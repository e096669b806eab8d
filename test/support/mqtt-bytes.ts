// MQTT packets spelled out byte by byte, for tests that say exactly what goes over the wire. It knows
// lengths and nothing else: what is wrong can be written as easily as what is right, and nothing is
// shared with the codec under test.

import { parseHex } from "./raw-client.ts";

/** Hex text with spaces, or bytes. */
export type Part = string | Uint8Array;

export type ConnectParts = {
  readonly level?: 3 | 4 | 5;
  readonly clientId?: string;
  readonly clean?: boolean;
  readonly keepAliveS?: number;
  /** Connect flags as they are; else only Clean Start. */
  readonly flags?: number;
  /** MQTT 5: properties in hex. */
  readonly properties?: string;
  /** What follows the client identifier. */
  readonly rest?: readonly Part[];
};

export function bytes(...parts: readonly Part[]): Buffer {
  return Buffer.concat(parts.map((part) => (typeof part === "string" ? parseHex(part) : part)));
}

export function varint(value: number): Buffer {
  const digits: number[] = [];
  let rest = value;
  do {
    const digit = rest % 128;
    rest = Math.floor(rest / 128);
    digits.push(rest > 0 ? digit | 0x80 : digit);
  } while (rest > 0);
  return Buffer.from(digits);
}

/** A packet: first byte in hex, remaining length, body. */
export function packet(first: string, ...parts: readonly Part[]): Buffer {
  const body = bytes(...parts);
  return Buffer.concat([parseHex(first), varint(body.length), body]);
}

export function u16(value: number): Buffer {
  return Buffer.from([value >> 8, value & 0xff]);
}

export function u32(value: number): Buffer {
  const buffer = Buffer.alloc(4);
  buffer.writeUInt32BE(value);
  return buffer;
}

/** A string or binary field with its two bytes of length. */
export function field(value: string | Uint8Array): Buffer {
  const content = Buffer.from(value as string);
  return Buffer.concat([u16(content.length), content]);
}

/** Properties with their length in front. */
export function properties(...parts: readonly Part[]): Buffer {
  const content = bytes(...parts);
  return Buffer.concat([varint(content.length), content]);
}

export function connect(parts: ConnectParts = {}): Buffer {
  const { level = 5, clientId = "raw", clean = true, keepAliveS = 0, rest = [] } = parts;
  const flags = parts.flags ?? (clean ? 0x02 : 0);
  return packet(
    "10",
    field(level === 3 ? "MQIsdp" : "MQTT"),
    Buffer.from([level, flags]),
    u16(keepAliveS),
    level === 5 ? properties(parts.properties ?? "") : "",
    field(clientId),
    ...rest,
  );
}

export type PublishParts = {
  readonly qos?: 0 | 1 | 2;
  readonly id?: number;
  readonly dup?: boolean;
  readonly retain?: boolean;
  /** MQTT 5: properties in hex; undefined before MQTT 5. */
  readonly properties?: string | undefined;
};

/** PUBLISH; without `properties` in the form of 3.1.1. */
export function publish(topic: string, payload: string | Uint8Array, parts: PublishParts = {}) {
  const { qos = 0, id = 0, dup = false, retain = false } = parts;
  const first = 0x30 | (dup ? 8 : 0) | (qos << 1) | (retain ? 1 : 0);
  return packet(
    first.toString(16),
    field(topic),
    qos > 0 ? u16(id) : "",
    parts.properties === undefined ? "" : properties(parts.properties),
    Buffer.from(payload as string),
  );
}

/** The same in the form of MQTT 5, with no properties unless given. */
export function publish5(topic: string, payload: string | Uint8Array, parts: PublishParts = {}) {
  return publish(topic, payload, { properties: "", ...parts });
}

export type FilterParts = readonly [filter: string, options: number];

/** SUBSCRIBE of MQTT 5. */
export function subscribe5(id: number, filters: readonly FilterParts[], props = ""): Buffer {
  return packet("82", u16(id), properties(props), ...filterParts(filters));
}

/** SUBSCRIBE of 3.1.1. */
export function subscribe4(id: number, filters: readonly FilterParts[]): Buffer {
  return packet("82", u16(id), ...filterParts(filters));
}

export function unsubscribe5(id: number, filters: readonly string[]): Buffer {
  return packet("a2", u16(id), "00", ...filters.map((filter) => field(filter)));
}

export function unsubscribe4(id: number, filters: readonly string[]): Buffer {
  return packet("a2", u16(id), ...filters.map((filter) => field(filter)));
}

function filterParts(filters: readonly FilterParts[]): Part[] {
  return filters.flatMap(([filter, options]) => [field(filter), Buffer.from([options])]);
}

/** PUBACK, PUBREC, PUBREL, PUBCOMP in their short form. */
export const puback = (id: number): Buffer => packet("40", u16(id));
export const pubrec = (id: number): Buffer => packet("50", u16(id));
export const pubrel = (id: number): Buffer => packet("62", u16(id));
export const pubcomp = (id: number): Buffer => packet("70", u16(id));
