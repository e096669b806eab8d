// Environment and `--set` flags as assignments. `FLAGSTONE__MQTT__MAX_PACKET_SIZE=1MiB` names
// mqtt.maxPacketSize: levels are parted by two underscores; case, single underscores and dashes do
// not count. A secret may be read from the file that `..._FILE` names. Only names that begin with
// FLAGSTONE__ are ours (schedulers set FLAGSTONE_PORT and the like for a service of that name), but
// of those every one must fit.

import type { Fault } from "./fault.ts";
import type { Place } from "./place.ts";
import type { Assignment } from "./raw.ts";
import type { Entries, Entry } from "./schema.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

/** Text of a secret's file, or the reason why it cannot be read. */
export type ReadSecret = (path: string) => { readonly text: string } | { readonly reason: string };

export const environmentPrefix = "FLAGSTONE__";

/** @param names names known per named map (`databases` -> `messages`, ...), for any case. */
export function assignmentsFromEnvironment(
  table: Entries,
  environment: Environment,
  context: {
    readonly names: ReadonlyMap<string, readonly string[]>;
    readonly readSecret: ReadSecret;
    readonly faults: Fault[];
  },
): Assignment[] {
  const assignments: Assignment[] = [];
  for (const variable of Object.keys(environment).sort()) {
    const text = environment[variable];
    if (!variable.startsWith(environmentPrefix) || text === undefined) continue;
    const place: Place = { kind: "environment", label: `environment ${variable}` };
    const segments = variable.slice(environmentPrefix.length).split("__");
    const direct = matchPath(table, segments, context.names);
    const asFile = direct.entry === undefined ? withoutFile(segments) : undefined;
    const named = asFile && matchPath(table, asFile, context.names);
    if (named?.entry?.node !== "field") {
      assignments.push({ path: direct.path, text, place });
    } else if (named.entry.kind !== "secret") {
      const message = "only secrets can be read from a file";
      context.faults.push(invalid(place, named.path, message));
    } else {
      const secret = context.readSecret(text);
      if ("text" in secret) {
        assignments.push({ path: named.path, text: secret.text.replace(/\r?\n$/, ""), place });
      } else {
        context.faults.push(invalid(place, named.path, `cannot read the file: ${secret.reason}`));
      }
    }
  }
  return assignments;
}

/** `--set a.b=value`; also the launcher's own flags, as `{ label: "--port", ... }`. */
export function assignmentsFromSet(texts: readonly string[], faults: Fault[]): Assignment[] {
  const assignments: Assignment[] = [];
  for (const text of texts) {
    const at = text.indexOf("=");
    const path = (at < 0 ? text : text.slice(0, at)).trim();
    const place: Place = { kind: "flag", label: `--set ${path}` };
    if (at < 0 || path === "") {
      faults.push({
        code: "CONFIG_SOURCE_INVALID",
        place,
        path: "",
        message: "expected path=value, such as mqtt.publishWait=15s",
      });
    } else {
      assignments.push({ path: path.split("."), text: text.slice(at + 1).trim(), place });
    }
  }
  return assignments;
}

/** `FLAGSTONE__MQTT__MAX_PACKET_SIZE` for `mqtt.maxPacketSize`, as the reference prints it. */
export function environmentName(path: string): string {
  const words = path.split(".").map((segment) =>
    segment
      .replace(/([a-z0-9])([A-Z])/g, "$1_$2")
      .replaceAll("-", "_")
      .toUpperCase(),
  );
  return environmentPrefix + words.join("__");
}

type Match = { readonly path: readonly string[]; readonly entry: Entry | undefined };

function matchPath(
  table: Entries,
  segments: readonly string[],
  names: ReadonlyMap<string, readonly string[]>,
): Match {
  const path: string[] = [];
  let entry: Entry | undefined = { node: "group", doc: "", entries: table };
  for (const segment of segments) {
    if (entry === undefined || entry.node === "field") {
      path.push(segment.toLowerCase());
      entry = undefined;
      continue;
    }
    const entries: Entries = entry.entries;
    if (entry.node === "named") {
      const known = names.get(path.join(".")) ?? [];
      const name = known.find((candidate) => sameWord(candidate, segment));
      path.push(name ?? segment.toLowerCase());
      entry = { node: "group", doc: "", entries };
    } else {
      const key = Object.keys(entries).find((candidate) => sameWord(candidate, segment));
      path.push(key ?? segment.toLowerCase());
      entry = key === undefined ? undefined : entries[key];
    }
  }
  return { path, entry };
}

function withoutFile(segments: readonly string[]): readonly string[] | undefined {
  const last = segments.at(-1) ?? "";
  return /_FILE$/i.test(last) ? [...segments.slice(0, -1), last.slice(0, -5)] : undefined;
}

function sameWord(left: string, right: string): boolean {
  return plain(left) === plain(right);
}

function plain(word: string): string {
  return word.replace(/[_-]/g, "").toLowerCase();
}

function invalid(place: Place, path: readonly string[], message: string): Fault {
  return { code: "CONFIG_VALUE_INVALID", place, path: path.join("."), message };
}
