// config/flagstone.schema.json out of the key table, so that an editor checks and completes the
// file. It knows forms, not ranges of values with units: `flagstone config check` has the last word.

import type { Entries, Entry, Field, Group, Named } from "./schema.ts";

type JsonSchema = Readonly<Record<string, unknown>>;

export function configurationSchema(table: Entries): JsonSchema {
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Flagstone configuration",
    type: "object",
    additionalProperties: false,
    properties: properties(table),
  };
}

export function formatSchema(schema: JsonSchema): string {
  return `${JSON.stringify(schema, null, 2)}\n`;
}

function properties(entries: Entries): JsonSchema {
  return Object.fromEntries(
    Object.entries(entries).map(([key, entry]) => [key, schemaOf(entry, key)]),
  );
}

function schemaOf(entry: Entry, key: string): JsonSchema {
  if (entry.node === "field") return fieldSchema(entry, key);
  return entry.node === "group" ? groupSchema(entry) : namedSchema(entry);
}

// `mqtt:` with nothing below it is allowed, hence null.
function groupSchema(entry: Group): JsonSchema {
  return {
    description: entry.doc,
    type: ["object", "null"],
    additionalProperties: false,
    properties: properties(entry.entries),
  };
}

function namedSchema(entry: Named): JsonSchema {
  const one: Group = { node: "group", doc: `One ${entry.label}.`, entries: entry.entries };
  return {
    description: entry.doc,
    type: ["object", "null"],
    propertyNames: { pattern: "^[a-z][a-z0-9_-]{0,62}$" },
    additionalProperties: groupSchema(one),
  };
}

function fieldSchema(field: Field, key: string): JsonSchema {
  const range = field.range === undefined ? "" : ` Allowed: ${field.range}.`;
  const zero = field.zero === undefined ? "" : ` 0: ${field.zero}.`;
  const change = field.reload === "hot" ? "" : " Needs a restart.";
  return {
    description: `${field.doc}${range}${zero}${change}`,
    ...(field.fallback === undefined ? {} : { default: fallbackOf(field) }),
    ...form(field, key),
  };
}

function fallbackOf(field: Field): unknown {
  const raw = field.fallback;
  if (field.kind === "flag") return raw === "true";
  return typeof raw === "string" && /^\d+$/.test(raw) ? Number(raw) : raw;
}

const durationPattern = "^((\\d+(\\.\\d+)?(ms|s|m|h|d))+|0)$";
const sizePattern = "^(\\d+(\\.\\d+)?(B|KiB|MiB|GiB|TiB)|0)$";

function form(field: Field, key: string): JsonSchema {
  const bare = key.includes(field.unit) && field.unit !== "" ? { type: "integer" } : { const: 0 };
  switch (field.kind) {
    case "duration":
      return { anyOf: [{ type: "string", pattern: durationPattern }, bare] };
    case "size":
      return { anyOf: [{ type: "string", pattern: sizePattern }, bare] };
    case "count":
      return { type: "integer", minimum: 0 };
    case "port":
      return { type: "integer", minimum: 0, maximum: 65_535 };
    case "flag":
      return { type: "boolean" };
    case "choice":
      return { enum: field.choices };
    case "list":
      return { type: "array", items: { type: "string" } };
    default:
      return { type: "string" };
  }
}
