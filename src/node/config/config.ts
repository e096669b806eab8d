// Configuration of a node: all sources read, merged and checked in one go, or one error that names
// every fault. Pure but for the two functions that come in: nothing here touches disk or process.

import { configErrors } from "../errors.ts";
import type { Environment, ReadSecret } from "./environment.ts";
import { assignmentsFromEnvironment, assignmentsFromSet } from "./environment.ts";
import type { Fault } from "./fault.ts";
import { formatFaults } from "./fault.ts";
import { keyTable, type Settings } from "./keys.ts";
import { loadYaml, parseInlineList } from "./load.ts";
import type { Assignment, RawNode } from "./raw.ts";
import { rawFromObject } from "./raw.ts";
import { Layer, readAssignments, readTree } from "./read.ts";
import type { Effective, Resolved } from "./resolve.ts";
import { namesOf, resolve } from "./resolve.ts";
import { checkRules } from "./rules.ts";
import type { Entries } from "./schema.ts";

export type ConfigSources = {
  /** The file's name as the user wrote it, for messages, and its bytes. */
  readonly file?: { readonly name: string; readonly bytes: Uint8Array };
  readonly environment?: Environment;
  readonly readSecret?: ReadSecret;
  /** Texts of `--set`. */
  readonly set?: readonly string[];
  /** The launcher's own flags, which mean a key each: `--port`. They win over `--set`. */
  readonly flags?: readonly Assignment[];
};

export type Config = {
  readonly settings: Settings;
  readonly effective: ReadonlyMap<string, Effective>;
};

/** @throws CONFIG_INVALID with all faults in its message and in `details.faults`. */
export function readConfig(sources: ConfigSources): Config {
  const faults: Fault[] = [];
  const resolved = readSources(keyTable, sources, faults);
  return finish(resolved, faults);
}

/** Files in which somebody has written a secret: nobody else should be able to read them. */
export function secretFilesOf({ effective }: Config): string[] {
  const files = [...effective.values()].flatMap(({ field, value, place }) =>
    field.kind === "secret" && value !== "" && place.kind === "file" ? [place.file] : [],
  );
  return [...new Set(files)];
}

/** A program has doors of its own, and may run several nodes: none opens one unasked. */
const embedded = { admin: { enabled: false } };

/**
 * Settings from a plain object in the shape of the file, for embedding programs:
 * `createSettings({ data: { dir: "./data" }, mqtt: { publishWait: "5s" } })`.
 * @throws CONFIG_INVALID with all faults.
 */
export function createSettings(input: object = {}): Settings {
  const faults: Fault[] = [];
  const layers = [embedded, input].map((each) => readRoot(keyTable, rawFromObject(each), faults));
  return finish(resolve(keyTable, layers, faults), faults).settings;
}

/** All sources against any table; faults are collected, never thrown. */
export function readSources(table: Entries, sources: ConfigSources, faults: Fault[]): Resolved {
  const file = readFileLayer(table, sources, faults);
  const names = knownNames(table, [file]);
  const assignments = assignmentsFromEnvironment(table, sources.environment ?? {}, {
    names,
    readSecret:
      sources.readSecret ?? (() => ({ reason: "secrets cannot be read from files here" })),
    faults,
  });
  const environment = readAssignments(table, assignments, parseInlineList, faults);
  const set = assignmentsFromSet(sources.set ?? [], faults);
  const flags = readAssignments(table, [...set, ...(sources.flags ?? [])], parseInlineList, faults);
  return resolve(table, [file, environment, flags], faults);
}

function readFileLayer(table: Entries, sources: ConfigSources, faults: Fault[]): Layer {
  if (sources.file === undefined) return new Layer();
  const loaded = loadYaml(sources.file.name, sources.file.bytes);
  faults.push(...loaded.faults);
  return readTree(table, loaded.root, faults);
}

function readRoot(table: Entries, root: RawNode, faults: Fault[]): Layer {
  if (root.kind === "map") return readTree(table, root, faults);
  const message = "expected an object";
  faults.push({ code: "CONFIG_SOURCE_INVALID", place: root.place, path: "", message });
  return new Layer();
}

function knownNames(table: Entries, layers: readonly Layer[]): Map<string, readonly string[]> {
  const names = new Map<string, readonly string[]>();
  for (const [path, entry] of Object.entries(table)) {
    if (entry.node !== "named") continue;
    const all = [...Object.keys(entry.builtIn), ...namesOf(entry, path, layers)];
    names.set(path, [...new Set(all)]);
  }
  return names;
}

function finish(resolved: Resolved, faults: Fault[]): Config {
  // The one place where the table's types and the walked values meet: the resolver builds exactly
  // what `SettingsOf` describes when there was no fault.
  const settings = resolved.settings as Settings;
  if (faults.length === 0) checkRules(settings, resolved.effective, faults);
  if (faults.length > 0) {
    throw configErrors.invalid({ text: formatFaults(faults), faults });
  }
  return { settings, effective: resolved.effective };
}
