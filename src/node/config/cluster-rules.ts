// Rules between the keys of a member of a cluster.

import { quote } from "./fault.ts";
import type { Settings } from "./keys.ts";
import type { Effective } from "./resolve.ts";
import { parseValue } from "./schema.ts";
import { isLoopback, type Report } from "./security-rules.ts";

/** A first member as `cluster.seeds` names it. */
export type Seed = { readonly name: string; readonly address: HostPort };
export type HostPort = { readonly host: string; readonly port: number };

export function checkCluster(
  settings: Settings,
  effective: ReadonlyMap<string, Effective>,
  report: Report,
): void {
  const { cluster } = settings;
  const isWritten = (path: string): boolean => {
    const found = effective.get(path);
    // What `config show` prints has all keys, at their defaults.
    return found !== undefined && found.place.kind !== "default" && !isDefault(found);
  };
  if (cluster.name === "") {
    for (const path of effective.keys()) {
      const isOther = path.startsWith("cluster.") && path !== "cluster.name";
      if (isOther && isWritten(path)) report(path, "is of no use without cluster.name");
    }
    return;
  }
  if (cluster.node === "") report("cluster.node", "is missing: every member has a name of its own");
  checkSeeds(cluster, report);
  if (cluster.address !== "" && parseHostPort(cluster.address) === undefined) {
    report("cluster.address", `${quote(cluster.address)} is no host and port`);
  }
  checkNetwork(cluster, report);
  const listener = [...effective.keys()].find(
    (path) => path.startsWith("listeners.") && isWritten(path),
  );
  if (cluster.storeOnly && listener !== undefined) {
    report(listener, "a node with cluster.storeOnly has no MQTT listeners: leave it out");
  }
}

function isDefault({ field, value }: Effective): boolean {
  if (field.fallback === undefined) return false;
  const fallback = parseValue(field, field.fallback);
  return fallback.issue === undefined && field.format(value) === field.format(fallback.value);
}

function checkSeeds({ expect, seeds, node }: Settings["cluster"], report: Report): void {
  const found = seeds.map((text) => ({ text, seed: parseSeed(text) }));
  for (const { text, seed } of found) {
    if (seed !== undefined) continue;
    const fault = `${quote(text)} is not a name and an address such as n1=10.0.0.1:7400`;
    report("cluster.seeds", fault);
  }
  const names = found.flatMap(({ seed }) => (seed === undefined ? [] : [seed.name]));
  const twice = names.find((each, at) => names.indexOf(each) !== at);
  if (twice !== undefined) report("cluster.seeds", `${quote(twice)} is named twice`);
  if (seeds.length !== expect) {
    const fault = `names ${seeds.length} first members, and cluster.expect says ${expect}`;
    report("cluster.seeds", fault);
    return;
  }
  if (expect > 0 && !names.includes(node)) {
    report("cluster.seeds", `${quote(node)}, this node, is not among them`);
  }
}

function checkNetwork({ host, tls, trustNetwork }: Settings["cluster"], report: Report): void {
  const given = (["cert", "key", "ca"] as const).filter((key) => tls[key] !== "");
  if (given.length > 0 && given.length < 3) {
    const missing = (["cert", "key", "ca"] as const).find((key) => tls[key] === "");
    report(`cluster.tls.${missing}`, "is missing: TLS between members needs cert, key and ca");
  }
  if (given.length > 0 || trustNetwork || isLoopback(host)) return;
  const fault = `${host} can be reached by other machines, and members would speak in the clear`;
  report("cluster.host", `${fault}: set cluster.tls, or cluster.trustNetwork to true`);
}

/** `n1=10.0.0.1:7400` */
export function parseSeed(text: string): Seed | undefined {
  const match = /^([a-z0-9][a-z0-9.-]{0,63})=(.+)$/.exec(text);
  const address = match === null ? undefined : parseHostPort(match[2] as string);
  return address === undefined ? undefined : { name: match?.[1] as string, address };
}

/** `node1.example.org:7400`, `[::1]:7400` */
export function parseHostPort(text: string): HostPort | undefined {
  const match = /^(?:\[([0-9A-Fa-f:.%]+)\]|([A-Za-z0-9_.-]+)):(\d{1,5})$/.exec(text);
  if (match === null) return undefined;
  const number = Number(match[3]);
  const host = match[1] ?? match[2] ?? "";
  return number >= 1 && number <= 65_535 ? { host, port: number } : undefined;
}
