// Where shards shall stand, and the next single step from where they stand.
//
// Keeps: the same roster gives the same placement at every node; a site that comes or goes moves a
// replica of a shard at most; replicas go to different zones as far as there are any; a step adds a
// learner before it makes a voter, takes nobody away before everybody wanted votes, and never a
// leader: that hands over first.

import { hash32 } from "../../base/index.ts";
import type { Configuration, MembershipChange, NodeId } from "../../raft/index.ts";
import type { Site } from "./roster.ts";

/** The sites that a shard belongs to, sorted: at most `replicas` of them. */
export function placementOf(shard: number, sites: readonly Site[], replicas: number): NodeId[] {
  const ranked = sites
    .map((site) => ({ site, weight: hash32(`${shard}/${site.siteId}`) }))
    .sort((one, other) => other.weight - one.weight || one.site.node - other.site.node)
    .map(({ site }) => site);
  const zones = new Set<string>();
  const [firsts, rest]: [Site[], Site[]] = [[], []];
  for (const site of ranked) {
    (zones.has(site.zone) ? rest : firsts).push(site);
    zones.add(site.zone);
  }
  const chosen = [...firsts, ...rest].slice(0, replicas);
  return chosen.map(({ node }) => node).sort((one, other) => one - other);
}

/** What the leader of a shard sees of it. */
export type ShardView = {
  readonly leader: NodeId;
  readonly configuration: Configuration;
  readonly wanted: readonly NodeId[];
  /** Members that answer and lack next to nothing of the log, the leader among them. */
  readonly caughtUp: ReadonlySet<NodeId>;
};

export type PlacementStep =
  | { readonly kind: "change"; readonly change: MembershipChange }
  | { readonly kind: "transfer"; readonly to: NodeId };

/** The next step; undefined when the shard stands where it shall, or has to be waited for. */
export function nextStep(view: ShardView): PlacementStep | undefined {
  const { leader, configuration, wanted, caughtUp } = view;
  const { voters, learners } = configuration;
  const stranger = learners.find((node) => !wanted.includes(node));
  if (stranger !== undefined) return change("remove", stranger);
  const ready = learners.find((node) => caughtUp.has(node));
  if (ready !== undefined) return change("promote", ready);
  // One that comes at a time: each is sent the whole shard.
  if (learners.length > 0) return undefined;
  const missing = wanted.find((node) => !voters.includes(node));
  if (missing !== undefined) return change("learner", missing);
  const heirs = wanted.filter((node) => node !== leader && caughtUp.has(node));
  const spare = voters.filter((node) => !wanted.includes(node) && canGo(view, node));
  // The dead go first: with them a majority is harder to have.
  const others = spare.filter((node) => node !== leader);
  const goes = others.find((node) => !caughtUp.has(node)) ?? others[0];
  if (goes !== undefined) return change("remove", goes);
  return spare.length > 0 && heirs[0] !== undefined
    ? { kind: "transfer", to: heirs[0] }
    : undefined;
}

/** A majority of those that stay has what is committed. */
function canGo({ configuration, caughtUp }: ShardView, node: NodeId): boolean {
  const stay = configuration.voters.filter((voter) => voter !== node);
  return 2 * stay.filter((voter) => caughtUp.has(voter)).length > stay.length;
}

/** Of the shards that a node leads, as it sees them, and of what all lead. */
export type LeadView = {
  readonly shard: number;
  readonly wanted: readonly NodeId[];
  readonly caughtUp: ReadonlySet<NodeId>;
};

/**
 * A leader that shall hand over: to the node that leads least, where that leads two less; all of
 * them where this node drains.
 */
export function nextHandOver(
  own: NodeId,
  led: readonly LeadView[],
  counts: ReadonlyMap<NodeId, number>,
  drains: boolean,
): { readonly shard: number; readonly to: NodeId } | undefined {
  const leads = (node: NodeId): number => counts.get(node) ?? 0;
  for (const { shard, wanted, caughtUp } of led) {
    const heirs = wanted.filter((node) => node !== own && caughtUp.has(node));
    heirs.sort((one, other) => leads(one) - leads(other) || one - other);
    const [to] = heirs;
    if (to !== undefined && (drains || leads(to) + 1 < leads(own))) return { shard, to };
  }
  return undefined;
}

function change(op: MembershipChange["op"], node: NodeId): PlacementStep {
  return { kind: "change", change: { op, node } };
}
