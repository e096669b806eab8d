// Rules between keys, checked on the merged settings. Each broken rule is one fault, shown at the
// value that somebody wrote last.

import type { Fault } from "./fault.ts";
import { nearest, quote } from "./fault.ts";
import type { Settings } from "./keys.ts";
import type { Effective } from "./resolve.ts";

type Report = (path: string, message: string) => void;

export function checkRules(
  settings: Settings,
  effective: ReadonlyMap<string, Effective>,
  faults: Fault[],
): void {
  const report: Report = (path, message) => {
    const place = effective.get(path)?.place ?? { kind: "default" };
    faults.push({ code: "CONFIG_COMBINATION_INVALID", place, path, message });
  };
  checkDatabases(settings, report);
  checkListeners(settings, report);
  checkSegment(settings, report);
}

/** What the broker itself keeps in the built-in databases decides their form. */
const fixedLayouts = { messages: "log", state: "map", meta: "map" } as const;

function checkDatabases(settings: Settings, report: Report): void {
  const groups = Object.keys(settings.groups);
  for (const [name, database] of Object.entries(settings.databases)) {
    const path = `databases.${name}`;
    if (!groups.includes(database.group)) {
      const near = nearest(database.group, groups);
      const hint =
        near === undefined ? `known: ${groups.join(", ")}` : `did you mean ${quote(near)}?`;
      report(`${path}.group`, `there is no group ${quote(database.group)}; ${hint}`);
    }
    const fixed = Object.hasOwn(fixedLayouts, name)
      ? fixedLayouts[name as keyof typeof fixedLayouts]
      : undefined;
    if (fixed !== undefined && database.layout !== fixed) {
      report(`${path}.layout`, `the database ${name} always has layout ${fixed}`);
    }
    if (database.replicationFactor !== 1) {
      report(`${path}.replicationFactor`, "a single node holds one copy; only 1 is possible");
    }
  }
  const { meta } = settings.databases;
  if (meta !== undefined && meta.shards !== 1) {
    report("databases.meta.shards", "the database meta always has one shard");
  }
}

function checkListeners(settings: Settings, report: Report): void {
  const takenBy = new Map<string, string>();
  const take = (path: string, host: string, port: number): void => {
    if (port === 0) return;
    const address = `${host}:${port}`;
    const owner = takenBy.get(address);
    if (owner === undefined) takenBy.set(address, path);
    else report(path, `${address} is taken by ${owner} already`);
  };
  for (const [name, listener] of Object.entries(settings.listeners)) {
    take(`listeners.${name}.port`, listener.host, listener.port);
  }
  if (settings.admin.port !== "off") {
    report("admin.port", "this version has no administration API; only off is possible");
  }
}

/** Head room of a segment beside the largest record: its header and the frame of a flush. */
const segmentSpareBytes = 128 * 1024;

function checkSegment(settings: Settings, report: Report): void {
  const needBytes = settings.mqtt.maxPacketSizeBytes + segmentSpareBytes;
  if (settings.log.segmentBytes >= needBytes) return;
  report("log.segmentBytes", "must hold a packet of mqtt.maxPacketSize and 128KiB more");
}
