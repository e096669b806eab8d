// Properties of a PUBLISH as a program made them: names, types and sizes, told in words. What came off
// the wire was checked by its decoder.

import { packetTypes } from "./packets.ts";
import { type PropertyRow, propertyTable } from "./properties.ts";

const textBytesMax = 0xffff;
const numberMaxima = { bit: 1, u16: 0xffff, u32: 0xffff_ffff, varint: 0x0fff_ffff } as const;

/** What belongs to one connection is none of a message. */
const foreign = new Set<string>(["topicAlias", "subscriptionIdentifiers"]);

const known = new Map<string, PropertyRow>(
  propertyTable
    .filter(({ places, name }) => places & (1 << packetTypes.publish) && !foreign.has(name))
    .map((row) => [row.name, row]),
);

/** What is wrong with them; undefined: nothing. */
export function publishPropertiesFault(properties: object): string | undefined {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined) continue;
    const row = known.get(name);
    if (row === undefined) {
      return `a message has no property ${JSON.stringify(name)}, but ${[...known.keys()].join(", ")}`;
    }
    const expected = expectedOf(row, value);
    if (expected !== undefined) return `${name} is not ${expected}`;
  }
  return undefined;
}

/** Undefined where the value is as expected. */
function expectedOf({ type }: PropertyRow, value: unknown): string | undefined {
  switch (type) {
    case "text":
      return isText(value) ? undefined : "a text of MQTT";
    case "binary":
      return value instanceof Uint8Array && value.length <= textBytesMax ? undefined : "bytes";
    case "pair":
      return isPairs(value) ? undefined : "a list of pairs of texts";
    case "flag":
      return typeof value === "boolean" ? undefined : "true or false";
    default: {
      const max = numberMaxima[type];
      const isNumber =
        Number.isInteger(value) && (value as number) >= 0 && (value as number) <= max;
      return isNumber ? undefined : `a whole number from 0 to ${max}`;
    }
  }
}

function isPairs(value: unknown): boolean {
  const isPair = (pair: unknown): boolean =>
    Array.isArray(pair) && pair.length === 2 && pair.every(isText);
  return Array.isArray(value) && value.every(isPair);
}

function isText(value: unknown): value is string {
  if (typeof value !== "string" || value.includes("\0") || /\p{Surrogate}/u.test(value)) {
    return false;
  }
  return Buffer.byteLength(value) <= textBytesMax;
}
