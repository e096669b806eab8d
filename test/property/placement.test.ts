// Placement of shards and the steps towards it, for any sites and any way in which they come and go.

import fc from "fast-check";
import { expect, test } from "vitest";
import {
  type LeadView,
  nextHandOver,
  nextStep,
  placementOf,
  type ShardView,
} from "../../src/cluster/core/placement.ts";
import type { Site } from "../../src/cluster/core/roster.ts";
import { type Configuration, changeConfiguration } from "../../src/raft/index.ts";

const siteAt = (node: number, zone: string): Site => ({
  ...{ node, zone, name: `n${node}`, address: { host: "h", port: 1 }, state: "active" },
  siteId: (node * 7_919).toString(16).padStart(32, "0"),
  diskId: "d".repeat(32),
  addressNumber: 0,
});

const anySites = (min: number, zones: readonly string[]) =>
  fc
    .uniqueArray(fc.integer({ min: 1, max: 60 }), { minLength: min, maxLength: 12 })
    .chain((nodes) =>
      fc
        .array(fc.constantFrom(...zones), { minLength: nodes.length, maxLength: nodes.length })
        .map((chosen) => nodes.map((node, at) => siteAt(node, chosen[at] as string))),
    );

const anyShard = fc.integer({ min: 1, max: 100_000 });
const anyReplicas = fc.constantFrom(1, 3, 5);

test("a shard stands on as many sites as it needs, in as many zones as there are", () => {
  const sites = anySites(1, ["a", "b", "c", "d"]);
  fc.assert(
    fc.property(sites, anyShard, anyReplicas, (all, shard, replicas) => {
      const nodes = placementOf(shard, all, replicas);
      const count = Math.min(replicas, all.length);
      expect(new Set(nodes).size).toBe(count);
      const zoneOf = (node: number) => all.find((site) => site.node === node)?.zone;
      const zones = new Set(all.map(({ zone }) => zone));
      expect(new Set(nodes.map(zoneOf)).size).toBe(Math.min(count, zones.size));
      expect(placementOf(shard, [...all].reverse(), replicas)).toEqual(nodes);
    }),
  );
});

test("a site that comes or goes moves one replica of a shard at most", () => {
  for (const zones of [[""], ["a", "b", "c"]]) {
    const sites = anySites(2, zones);
    fc.assert(
      fc.property(sites, anyShard, anyReplicas, (all, shard, replicas) => {
        const fewer = placementOf(shard, all.slice(1), replicas);
        const more = placementOf(shard, all, replicas);
        expect(fewer.filter((node) => !more.includes(node)).length).toBeLessThanOrEqual(1);
        expect(more.filter((node) => !fewer.includes(node)).length).toBeLessThanOrEqual(1);
      }),
    );
  }
});

test("shards are spread over the sites", () => {
  const sites = [1, 2, 3, 4, 5, 6].map((node) => siteAt(node, ""));
  const counts = new Map<number, number>();
  for (let shard = 1; shard <= 1_200; shard++) {
    for (const node of placementOf(shard, sites, 3)) {
      counts.set(node, (counts.get(node) ?? 0) + 1);
    }
  }
  for (const count of counts.values()) expect(Math.abs(count - 600)).toBeLessThan(90);
});

const anyNodes = (min: number) =>
  fc.uniqueArray(fc.integer({ min: 1, max: 8 }), { minLength: min, maxLength: 5 });

test("steps lead to the placement, one change at a time, and always leave a majority", () => {
  fc.assert(
    fc.property(
      anyNodes(1),
      anyNodes(1),
      fc.integer({ min: 0, max: 8 }),
      fc.boolean(),
      (voters, wanted, dead, isLeaderFirst) => {
        let configuration: Configuration = { voters: [...voters].sort(), learners: [] };
        const isDead = (node: number): boolean => node === dead && voters.length > 2;
        // What is dead is not wanted: that is the roster's part.
        const goal = wanted.filter((node) => !isDead(node));
        if (goal.length === 0) return;
        const alive = voters.filter((node) => !isDead(node));
        let leader = (isLeaderFirst ? alive[0] : alive.at(-1)) as number;
        const caughtUp = new Set<number>(alive);
        for (let steps = 0; steps < 40; steps++) {
          const view: ShardView = { leader, configuration, wanted: goal, caughtUp };
          const step = nextStep(view);
          if (step === undefined) break;
          if (step.kind === "transfer") {
            expect(configuration.voters).toContain(step.to);
            leader = step.to;
            continue;
          }
          const { change } = step;
          const next = changeConfiguration(configuration, change);
          if (next === undefined) throw new Error(`${JSON.stringify(change)} does not fit`);
          expect(change.op === "remove" && change.node === leader).toBe(false);
          configuration = next;
          const live = next.voters.filter((node) => caughtUp.has(node));
          expect(2 * live.length).toBeGreaterThan(next.voters.length);
          expect(next.learners.length).toBeLessThanOrEqual(1);
          // A learner takes its time.
          if (change.op === "learner") {
            expect(nextStep({ ...view, configuration })).toBeUndefined();
            caughtUp.add(change.node);
          }
        }
        expect(configuration.voters).toEqual([...goal].sort());
        expect(configuration.learners).toEqual([]);
      },
    ),
  );
});

test("leaders are even after as many hand-overs as it takes, and gone from a node that drains", () => {
  const anyLeaders = fc.array(fc.constantFrom(1, 2, 3), { minLength: 1, maxLength: 30 });
  const all = new Set([1, 2, 3]);
  fc.assert(
    fc.property(anyLeaders, fc.constantFrom(0, 1, 2, 3), (leaders: number[], drained) => {
      const wanted = [1, 2, 3].filter((node) => node !== drained);
      const now = [...leaders];
      const step = (own: number): boolean => {
        const counts = new Map<number, number>();
        for (const node of now) counts.set(node, (counts.get(node) ?? 0) + 1);
        const led = now.flatMap((leader, shard): LeadView[] =>
          leader === own ? [{ shard, wanted, caughtUp: all }] : [],
        );
        const move = nextHandOver(own, led, counts, own === drained);
        if (move !== undefined) now[move.shard] = move.to;
        return move !== undefined;
      };
      for (let round = 0; round < 100; round++) if (![1, 2, 3].map(step).some(Boolean)) break;
      const counts = wanted.map((node) => now.filter((leader) => leader === node).length);
      expect(counts.reduce((sum, count) => sum + count)).toBe(leaders.length);
      expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(1);
    }),
  );
});

test("nobody is removed while a majority of those that stay lacks what is committed", () => {
  const view: ShardView = {
    leader: 1,
    configuration: { voters: [1, 2, 3], learners: [] },
    wanted: [1, 2],
    caughtUp: new Set([1, 3]),
  };
  expect(nextStep(view)).toBeUndefined();
  const step = { kind: "change", change: { op: "remove", node: 3 } };
  expect(nextStep({ ...view, caughtUp: new Set([1, 2, 3]) })).toEqual(step);
});
