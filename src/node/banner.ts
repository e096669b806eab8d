// What a node says on standard output when it is ready: at most 12 lines, the last of them
// `ready mqtt=127.0.0.1:1883 admin=off ms=123` for programs that wait for it.

import { describeSize } from "../base/index.ts";
import type { BoundListener } from "./assemble.ts";
import { isLoopback } from "./config/security-rules.ts";

export type BannerFacts = {
  readonly version: string;
  /** Bound addresses of the MQTT listeners, by name. */
  readonly listeners: readonly BoundListener[];
  /** Of a member of a cluster: which of which cluster it is. */
  readonly member?: string | undefined;
  /** The HTTP interface, where there is one. */
  readonly admin: { readonly host: string; readonly port: number } | undefined;
  /** Its address, where it was wanted and another program has it. */
  readonly adminTaken: string | undefined;
  /** Secret of the first API key, at the start that made it. */
  readonly firstKey: string | undefined;
  readonly dataDir: string;
  readonly freeBytes: number;
  readonly totalBytes: number;
  readonly fileSystem: string | undefined;
  /** Groups with `fsync: interval`. */
  readonly weakGroups: readonly string[];
  /** How this program was called: `flagstone` or `node dist/cli/main.js`. */
  readonly command: string;
  readonly readyMs: number;
};

/** Listeners printed with their own line; more are counted. */
const listenersShown = 3;

export function bannerLines(facts: BannerFacts): string[] {
  const shown = facts.listeners.slice(0, listenersShown);
  const rest = facts.listeners.length - shown.length;
  const [first] = facts.listeners;
  return [
    `Flagstone ${facts.version}`,
    ...shown.map((listener) => row("mqtt", `${place(listener)}  (${audience(listener)})`)),
    ...memberLines(facts),
    ...(rest > 0 ? [row("", `and ${rest} more`)] : []),
    row("data", `${facts.dataDir}  (${space(facts)})`),
    row("durability", durability(facts.fileSystem, facts.weakGroups)),
    ...adminLines(facts),
    ...(first?.type === "tcp" ? tryLines(facts.command, first) : []),
    readyLine(facts),
  ];
}

function memberLines({ member, listeners }: BannerFacts): string[] {
  if (member === undefined) return [];
  if (listeners.length > 0) return [row("cluster", member)];
  return [row("cluster", member), row("mqtt", "none: this node only stores (cluster.storeOnly)")];
}

function readyLine(facts: BannerFacts): string {
  const [first] = facts.listeners;
  const mqtt = first === undefined ? "off" : (first.path ?? address(first.host, first.port));
  const { admin } = facts;
  const at = admin === undefined ? "off" : address(admin.host, admin.port);
  return `ready mqtt=${mqtt} admin=${at} ms=${Math.round(facts.readyMs)}`;
}

function adminLines({ admin, adminTaken, firstKey, command }: BannerFacts): string[] {
  if (adminTaken !== undefined) {
    return [row("admin", `none: another program has ${adminTaken} (see --admin-port)`)];
  }
  if (admin === undefined) return [];
  const url = `http://${address(admin.host, admin.port)}`;
  if (firstKey === undefined) return [row("admin", url)];
  const save = `${command} context add here --url ${url} --key ${firstKey}`;
  return [row("admin", `${url}  (its first key, role admin, is shown this once)`), row("", save)];
}

export function address(host: string, port: number): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

/** As a client would write it: `127.0.0.1:1883`, `wss://[::1]:8884`, `/run/flagstone.sock`. */
function place({ type, host, port, path }: BoundListener): string {
  if (path !== undefined) return path;
  return type === "tcp" ? address(host, port) : `${type}://${address(host, port)}`;
}

function audience({ authentication, host, path }: BoundListener): string {
  const isLocal = path !== undefined || isLoopback(host);
  const known = authentication.filter((method) => method !== "anonymous");
  if (known.length > 0) {
    const more = known.length < authentication.length ? ", and anonymous" : "";
    return `${known.join(", ")}${more}${isLocal ? ", this machine only" : ""}`;
  }
  if (path !== undefined) return "anonymous, this machine only";
  return isLocal ? "anonymous, loopback only" : "ANONYMOUS, EVERYBODY who reaches this address";
}

function space(facts: BannerFacts): string {
  const type = facts.fileSystem === undefined ? "" : `, ${facts.fileSystem}`;
  return `${describeSize(facts.freeBytes)} free of ${describeSize(facts.totalBytes)}${type}`;
}

/** What an ack means, in a line: `weakGroups` ack before they sync. */
export function durability(fileSystem: string | undefined, weakGroups: readonly string[]): string {
  if (fileSystem === "tmpfs" || fileSystem === "ramfs") {
    return "IN MEMORY: nothing here survives a reboot";
  }
  if (weakGroups.length === 0) return "acked means synced to disk";
  const groups = weakGroups.join(", ");
  return `WEAK in group ${groups} (fsync: interval): an end of the machine loses acked messages`;
}

/** Groups whose acks do not wait for the sync. */
export function weakGroupsOf(groups: Readonly<Record<string, { fsync: string }>>): string[] {
  return Object.entries(groups).flatMap(([name, { fsync }]) => (fsync === "interval" ? name : []));
}

function tryLines(command: string, listener: BoundListener): string[] {
  // Nobody can connect to "any address"; the loopback one is part of it.
  const host = listener.host === "0.0.0.0" || listener.host === "::" ? "127.0.0.1" : listener.host;
  const login = listener.authentication.at(-1) === "anonymous" ? "" : " -u USER -P PASSWORD";
  const at = `-h ${host} -p ${listener.port}${login}`;
  return [
    row("try", `${command} sub ${at} -t 'demo/#' -v`),
    row("", `${command} pub ${at} -t demo/hello -m world`),
  ];
}

function row(label: string, text: string): string {
  return `  ${label.padEnd(11)}${text}`;
}
