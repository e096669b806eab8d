// The roster: which sites a cluster has, and which of them shall hold each shard. All nodes apply the
// same commands in the same order and so hold the same (docs/decisions/092-roster.md).
//
// Keeps: a number stands for one disk for ever; a site that left never comes back; no command leaves
// fewer sites to place on than replicas that are asked for; a shard is placed on sites that are there.
// A command that was carried out already is answered as it was then: whoever does not know repeats it.

import type { ListenAddress } from "../../base/index.ts";
import type { NodeId, Uuid } from "../../raft/index.ts";

/**
 * - `joining`: taken in, and holds nothing yet.
 * - `active`: shards are placed on it.
 * - `evacuating`: shards move away from it.
 * - `left`: nothing of it is taken any more. For ever.
 */
export type SiteState = "joining" | "active" | "evacuating" | "left";

export type Site = {
  readonly node: NodeId;
  readonly siteId: Uuid;
  readonly diskId: Uuid;
  readonly name: string;
  readonly address: ListenAddress;
  /** 0: first members have it from their configurations; grows with each address told since. */
  readonly addressNumber: number;
  /** Replicas of a shard go to different zones where there are several; "" is one as well. */
  readonly zone: string;
  readonly state: SiteState;
};

export type Roster = {
  /** Its name; "" before it is founded. */
  readonly cluster: string;
  /** Replicas that each shard needs. */
  readonly replicas: number;
  readonly sites: ReadonlyMap<NodeId, Site>;
  /** Which nodes shall hold a shard, sorted. */
  readonly placements: ReadonlyMap<number, readonly NodeId[]>;
};

export const emptyRoster: Roster = {
  cluster: "",
  replicas: 0,
  sites: new Map(),
  placements: new Map(),
};

export type NewSite = Omit<Site, "node" | "state" | "addressNumber">;

export type RosterCommand =
  | {
      readonly kind: "found";
      readonly cluster: string;
      readonly replicas: number;
      readonly sites: ReadonlyArray<NewSite & Pick<Site, "node">>;
    }
  | { readonly kind: "join"; readonly site: NewSite }
  | { readonly kind: "activate" | "evacuate" | "stay" | "leave" | "forget"; readonly node: NodeId }
  | {
      readonly kind: "moved";
      readonly node: NodeId;
      readonly address: ListenAddress;
      readonly zone: string;
    }
  | { readonly kind: "replicas"; readonly count: number }
  | { readonly kind: "place"; readonly shard: number; readonly nodes: readonly NodeId[] }
  | { readonly kind: "unplace"; readonly shard: number };

/** What was wrong, in a sentence with the way out. */
export type RosterAnswer =
  | { readonly ok: true; readonly node?: NodeId }
  | { readonly ok: false; readonly reason: string };

export type RosterStep = { readonly roster: Roster; readonly answer: RosterAnswer };

/** Those that left included. */
export const sitesMax = 1_024;
export const placementsMax = 65_536;
/** Of a Raft group. */
export const replicasMax = 7;

export function applyCommand(roster: Roster, command: RosterCommand): RosterStep {
  if (command.kind === "found") return found(roster, command);
  if (roster.cluster === "") return refused(roster, "the cluster is not founded yet: ask again");
  switch (command.kind) {
    case "join":
      return join(roster, command.site);
    case "moved":
      return moved(roster, command);
    case "replicas":
      return setReplicas(roster, command.count);
    case "place":
      return place(roster, command.shard, command.nodes);
    case "unplace":
      return done({ ...roster, placements: without(roster.placements, command.shard) });
    default:
      return changeState(roster, command.kind, command.node);
  }
}

/** Sites on which shards may be placed. */
export function placeable({ sites }: Roster): Site[] {
  return [...sites.values()].filter(({ state }) => state === "active");
}

/** Numbers of the sites that serve: all but those that have not begun, or have left. */
export function servingSites({ sites }: Roster): NodeId[] {
  const serving = [...sites.values()].filter(
    ({ state }) => state !== "joining" && state !== "left",
  );
  return serving.map(({ node }) => node);
}

/** Shards placed on the node. */
export function shardsOn({ placements }: Roster, node: NodeId): number[] {
  return [...placements].flatMap(([shard, nodes]) => (nodes.includes(node) ? [shard] : []));
}

function found(roster: Roster, command: RosterCommand & { kind: "found" }): RosterStep {
  const { cluster, replicas } = command;
  if (roster.cluster === cluster) return done(roster);
  if (roster.cluster !== "") {
    return refused(roster, `this is the cluster ${roster.cluster}, not ${cluster}`);
  }
  const sites = command.sites.map((site): Site => ({ ...site, state: "active", addressNumber: 0 }));
  const fault = replicasFault(replicas, sites.length);
  if (fault !== undefined) return refused(roster, fault);
  const byNode = new Map(sites.map((site) => [site.node, site]));
  return done({ ...roster, cluster, replicas, sites: byNode });
}

function join(roster: Roster, wanted: NewSite): RosterStep {
  const { sites } = roster;
  const known = [...sites.values()].find(({ siteId }) => siteId === wanted.siteId);
  if (known !== undefined) return joinAgain(roster, known, wanted);
  const holder = [...sites.values()].find(
    ({ name, state }) => name === wanted.name && state !== "left",
  );
  if (holder !== undefined) {
    const reason = `node ${holder.node} has the name ${wanted.name}: choose another one`;
    return refused(roster, `${reason}, or forget that node if its disk is gone`);
  }
  const present = [...sites.values()].filter(({ state }) => state !== "left").length;
  if (present >= replicasMax) {
    const reason = `a node holds all shards, so a cluster has ${replicasMax} sites at most`;
    return refused(roster, `${reason}: let another one go first`);
  }
  if (sites.size >= sitesMax) {
    return refused(roster, `a cluster has ${sitesMax} sites in its life, those that left included`);
  }
  const node = Math.max(0, ...sites.keys()) + 1;
  const site: Site = { ...wanted, node, state: "joining", addressNumber: 1 };
  return { roster: withSite(roster, site), answer: { ok: true, node } };
}

function joinAgain(roster: Roster, known: Site, wanted: NewSite): RosterStep {
  const { node, name } = known;
  if (known.diskId !== wanted.diskId) {
    const reason = `${name} is known as node ${node} with another disk, which was replaced or wiped`;
    return refused(roster, `${reason}: forget node ${node}, and join with an empty directory`);
  }
  if (known.state === "left") {
    return refused(roster, `${name} left as node ${node}: join with an empty directory`);
  }
  return { roster, answer: { ok: true, node } };
}

function moved(
  roster: Roster,
  { node, address, zone }: RosterCommand & { kind: "moved" },
): RosterStep {
  const site = siteAt(roster, node);
  if (typeof site === "string") return refused(roster, site);
  const addressNumber = site.addressNumber + 1;
  return done(withSite(roster, { ...site, address, addressNumber, zone }));
}

function setReplicas(roster: Roster, count: number): RosterStep {
  const fault = replicasFault(count, placeable(roster).length);
  return fault === undefined ? done({ ...roster, replicas: count }) : refused(roster, fault);
}

function place(roster: Roster, shard: number, nodes: readonly NodeId[]): RosterStep {
  const { placements } = roster;
  const unique = [...new Set(nodes)].sort((one, other) => one - other);
  if (unique.length === 0 || unique.length > replicasMax) {
    return refused(roster, `a shard has 1 to ${replicasMax} replicas, not ${unique.length}`);
  }
  if (!placements.has(shard) && placements.size >= placementsMax) {
    return refused(roster, `a cluster has ${placementsMax} shards at most`);
  }
  for (const node of unique) {
    const site = siteAt(roster, node);
    if (typeof site === "string") return refused(roster, site);
  }
  return done({ ...roster, placements: new Map(placements).set(shard, unique) });
}

const stateOf = { activate: "active", stay: "active", evacuate: "evacuating" } as const;

function changeState(
  roster: Roster,
  kind: "activate" | "evacuate" | "stay" | "leave" | "forget",
  node: NodeId,
): RosterStep {
  const site = roster.sites.get(node);
  if (site === undefined) return refused(roster, `there is no node ${node} in this cluster`);
  const { state } = site;
  if (state === "left") {
    const isWanted = kind === "leave" || kind === "forget";
    return isWanted ? done(roster) : refused(roster, `node ${node} left, and never comes back`);
  }
  if (kind === "leave" || kind === "forget") return leave(roster, site, kind);
  const fault = transitionFault(roster, site, kind);
  if (fault !== undefined) return refused(roster, fault);
  return done(withSite(roster, { ...site, state: stateOf[kind] }));
}

function transitionFault(
  roster: Roster,
  { node, state }: Site,
  kind: keyof typeof stateOf,
): string | undefined {
  if (kind === "activate" && state === "evacuating") return `node ${node} is being evacuated`;
  if (kind === "stay" && state === "joining") return `node ${node} is not active yet`;
  if (kind !== "evacuate" || state !== "active") return undefined;
  return shrinkFault(roster, node);
}

function leave(roster: Roster, site: Site, kind: "leave" | "forget"): RosterStep {
  const { node, state } = site;
  const shards = shardsOn(roster, node).length;
  if (kind === "leave" && (state === "active" || shards > 0)) {
    const what = state === "active" ? "it is active" : `${shards} shards are still placed on it`;
    return refused(roster, `node ${node} cannot leave yet, since ${what}: evacuate it first`);
  }
  const fault = state === "active" ? shrinkFault(roster, node) : undefined;
  if (fault !== undefined) return refused(roster, fault);
  return done(withSite(roster, { ...site, state: "left" }));
}

/** Why the cluster cannot do without an active node. */
function shrinkFault(roster: Roster, node: NodeId): string | undefined {
  const rest = placeable(roster).length - 1;
  if (rest >= roster.replicas) return undefined;
  const without = `without node ${node} ${rest} sites are left for ${roster.replicas} replicas`;
  return `${without}: join another site first, or ask for fewer replicas`;
}

function replicasFault(count: number, sites: number): string | undefined {
  if (count < 1 || count > replicasMax || count % 2 === 0) {
    return `replicas are 1, 3, 5 or ${replicasMax}, not ${count}: an even one more saves nothing`;
  }
  if (count <= sites) return undefined;
  return `${count} replicas need ${count} active sites, and there are ${sites}: join more first`;
}

function siteAt({ sites }: Roster, node: NodeId): Site | string {
  const site = sites.get(node);
  if (site === undefined) return `there is no node ${node} in this cluster`;
  return site.state === "left" ? `node ${node} left, and never comes back` : site;
}

function withSite(roster: Roster, site: Site): Roster {
  return { ...roster, sites: new Map(roster.sites).set(site.node, site) };
}

function without<T>(map: ReadonlyMap<number, T>, key: number): Map<number, T> {
  const rest = new Map(map);
  rest.delete(key);
  return rest;
}

function done(roster: Roster): RosterStep {
  return { roster, answer: { ok: true } };
}

function refused(roster: Roster, reason: string): RosterStep {
  return { roster, answer: { ok: false, reason } };
}
