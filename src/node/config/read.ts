// A source read against the key table: raw tree or assignments -> typed leaves by path, and every
// fault on the way (unknown keys, wrong forms, out of range). Reading goes on after a fault, so that
// one run names them all. Merging sources and filling in defaults is left to `resolve.ts`.

import type { Fault } from "./fault.ts";
import { nearest, quote, unknownKey } from "./fault.ts";
import { wanted } from "./hints.ts";
import type { Place } from "./place.ts";
import type { Assignment, RawList, RawMap, RawNode } from "./raw.ts";
import type { Entries, Entry, Field, Named, Parsed, RawValue } from "./schema.ts";
import { describeRange, parseValue } from "./schema.ts";

export type Leaf = {
  readonly path: string;
  readonly field: Field;
  readonly value: unknown;
  readonly place: Place;
};

/** What one source says: typed leaves by dotted path, and the names it gives in named maps. */
export class Layer {
  readonly leaves = new Map<string, Leaf>();
  /** Path of a named map -> name -> where it was first named. */
  readonly names = new Map<string, Map<string, Place>>();

  addName(mapPath: string, name: string, place: Place): void {
    const names = this.names.get(mapPath) ?? new Map<string, Place>();
    this.names.set(mapPath, names);
    if (!names.has(name)) names.set(name, place);
  }
}

/** Names become folders and topics, and stand in dotted paths: short, lower case, no dots. */
export const namePattern = /^[a-z][a-z0-9_-]{0,62}$/;

const nameRule = "a lower-case letter, then up to 62 of a-z 0-9 _ -";

export function readTree(table: Entries, root: RawMap, faults: Fault[]): Layer {
  const reader = new TreeReader(table, faults);
  reader.readEntries(table, root, "");
  return reader.layer;
}

class TreeReader {
  readonly layer = new Layer();
  readonly #table: Entries;
  readonly #faults: Fault[];

  constructor(table: Entries, faults: Fault[]) {
    this.#table = table;
    this.#faults = faults;
  }

  readEntries(entries: Entries, map: RawMap, prefix: string): void {
    for (const { key, keyPlace, value } of map.entries) {
      const path = prefix === "" ? key : `${prefix}.${key}`;
      const entry = Object.hasOwn(entries, key) ? entries[key] : undefined;
      if (entry === undefined) {
        this.#faults.push(unknownKeyIn(this.#table, entries, { path, place: keyPlace }));
      } else {
        this.#readEntry(entry, value, path);
      }
    }
  }

  #readEntry(entry: Entry, value: RawNode, path: string): void {
    if (entry.node === "field") {
      readField(this.layer, this.#faults, { field: entry, path, raw: value });
      return;
    }
    // `mqtt:` with everything below it commented out says nothing, and that is allowed.
    if (value.kind === "scalar" && value.text === undefined) return;
    if (value.kind !== "map") {
      const got = value.kind === "list" ? "a list" : quote(value.text ?? "");
      const expected = entry.node === "group" ? "keys below it" : "names below it";
      this.#fault(value.place, path, `got ${got}, expected ${expected}`);
    } else if (entry.node === "group") {
      this.readEntries(entry.entries, value, path);
    } else {
      this.#readNamed(entry, value, path);
    }
  }

  #readNamed(entry: Named, map: RawMap, path: string): void {
    for (const { key, keyPlace, value } of map.entries) {
      if (!namePattern.test(key)) {
        this.#fault(keyPlace, path, `${quote(key)} is not a name: ${nameRule}`);
        continue;
      }
      this.layer.addName(path, key, keyPlace);
      this.#readEntry({ node: "group", doc: "", entries: entry.entries }, value, `${path}.${key}`);
    }
  }

  #fault(place: Place, path: string, message: string): void {
    this.#faults.push({ code: "CONFIG_VALUE_INVALID", place, path, message });
  }
}

/** How the text of an assignment becomes a list: `[a, b]`, or a single item. */
export type ParseList = (text: string) => readonly string[] | undefined;

/** @param parseList turns `[a, b]` into items; undefined when it is no list. */
export function readAssignments(
  table: Entries,
  assignments: readonly Assignment[],
  parseList: ParseList,
  faults: Fault[],
): Layer {
  const layer = new Layer();
  for (const assignment of assignments) {
    readAssignment(table, assignment, { layer, faults, parseList });
  }
  return layer;
}

type AssignmentSink = {
  readonly layer: Layer;
  readonly faults: Fault[];
  readonly parseList: ParseList;
};

function readAssignment(table: Entries, assignment: Assignment, sink: AssignmentSink): void {
  const { place, text } = assignment;
  const path = assignment.path.join(".");
  const located = locate(table, assignment, sink.layer);
  if ("code" in located) {
    sink.faults.push(located);
    return;
  }
  const raw = rawFromText(located, text, place, sink.parseList);
  readField(sink.layer, sink.faults, { field: located, path, raw });
}

/** The field an assignment means, or the fault of its path. */
function locate(table: Entries, assignment: Assignment, layer: Layer): Field | Fault {
  const { place } = assignment;
  const path = assignment.path.join(".");
  const fault = (message: string): Fault => ({
    code: "CONFIG_VALUE_INVALID",
    place,
    path,
    message,
  });
  let entry: Entry = { node: "group", doc: "", entries: table };
  let walked = "";
  for (const segment of assignment.path) {
    const at = walked === "" ? segment : `${walked}.${segment}`;
    if (entry.node === "field") return fault(`${walked} is a single value, nothing is below it`);
    const entries: Entries = entry.entries;
    if (entry.node === "named") {
      if (!namePattern.test(segment)) return fault(`${quote(segment)} is not a name: ${nameRule}`);
      layer.addName(walked, segment, place);
      entry = { node: "group", doc: "", entries };
    } else {
      const next: Entry | undefined = Object.hasOwn(entries, segment)
        ? entries[segment]
        : undefined;
      if (next === undefined) return unknownKeyIn(table, entries, { path: at, place });
      entry = next;
    }
    walked = at;
  }
  if (entry.node === "field") return entry;
  return fault(`is a group; set one of its keys: ${Object.keys(entry.entries).join(", ")}`);
}

function rawFromText(field: Field, text: string, place: Place, parseList: ParseList): RawNode {
  if (field.kind !== "list") return { kind: "scalar", place, text };
  const items = text.trimStart().startsWith("[") ? (parseList(text) ?? [""]) : [text];
  return {
    kind: "list",
    place,
    items: items.map((item) => ({ kind: "scalar", place, text: item })),
  };
}

type FieldInput = { readonly field: Field; readonly path: string; readonly raw: RawNode };

function readField(layer: Layer, faults: Fault[], input: FieldInput): void {
  const { field, path, raw } = input;
  const place = raw.place;
  const text = rawText(field, raw);
  const parsed: Parsed =
    text === undefined ? { issue: "form" } : parseValue(field, withUnit(field, path, text));
  if (parsed.issue === undefined) {
    layer.leaves.set(path, { path, field, value: parsed.value, place });
  } else {
    const reason =
      parsed.issue === "range" ? `allowed ${describeRange(field)}` : wanted(field, text);
    const message = `got ${gotWord(field, raw)}, ${reason}`;
    const shownAt = field.kind === "secret" ? masked(place) : place;
    faults.push({ code: "CONFIG_VALUE_INVALID", place: shownAt, path, message });
  }
}

// The source line of a secret's fault is cut where the secret begins.
function masked(place: Place): Place {
  if (place.kind !== "file") return place;
  return { ...place, lineText: `${place.lineText.slice(0, place.column - 1)}********`, length: 8 };
}

function rawText(field: Field, raw: RawNode): RawValue | undefined {
  if (raw.kind === "scalar") return field.kind === "list" ? undefined : raw.text;
  if (raw.kind === "map" || field.kind !== "list") return undefined;
  return listTexts(raw);
}

function listTexts(raw: RawList): readonly string[] | undefined {
  const texts: string[] = [];
  for (const item of raw.items) {
    if (item.kind !== "scalar" || item.text === undefined) return undefined;
    texts.push(item.text);
  }
  return texts;
}

// `flushIntervalMs: 5` has its unit in its name; asking for it twice would be pedantry.
function withUnit(field: Field, path: string, raw: RawValue): RawValue {
  const key = path.slice(path.lastIndexOf(".") + 1);
  const isNumber = typeof raw === "string" && /^\d+$/.test(raw);
  if (field.unit === "" || !isNumber || !key.includes(field.unit)) return raw;
  return raw === "0" ? raw : `${raw}${field.unit === "Ms" ? "ms" : "B"}`;
}

function gotWord(field: Field, raw: RawNode): string {
  if (raw.kind === "map") return "keys below it";
  if (raw.kind === "list") {
    return field.kind === "list"
      ? `a list of ${raw.items.length} with an item that does not fit`
      : "a list";
  }
  if (raw.text === undefined || raw.text === "") return "nothing";
  return field.kind === "secret" ? "a secret" : quote(raw.text);
}

// A key at home elsewhere in the table is a better hint than a sibling that looks a bit like it.
function unknownKeyIn(
  table: Entries,
  siblings: Entries,
  key: { readonly path: string; readonly place: Place },
): Fault {
  const names = Object.keys(siblings);
  const last = key.path.slice(key.path.lastIndexOf(".") + 1);
  const elsewhere = nearest(last, names) === undefined ? findKey(table, last) : undefined;
  if (elsewhere === undefined) return unknownKey(key.place, key.path, names);
  const message = `unknown key ${quote(key.path)}; did you mean ${quote(elsewhere)}?`;
  return { code: "CONFIG_UNKNOWN_KEY", place: key.place, path: "", message };
}

function findKey(entries: Entries, key: string, prefix = ""): string | undefined {
  for (const [name, entry] of Object.entries(entries)) {
    const path = `${prefix}${name}`;
    if (name.toLowerCase() === key.toLowerCase()) return path;
    if (entry.node === "field") continue;
    const label = entry.node === "named" ? `<${entry.label}>.` : "";
    const found = findKey(entry.entries, key, `${path}.${label}`);
    if (found !== undefined) return found;
  }
  return undefined;
}
