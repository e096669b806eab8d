import fc from "fast-check";
import { expect, test } from "vitest";
import type { LiveTarget } from "../../src/session/index.ts";
import { amount } from "../support/amount.ts";
import { RoutesWorld, wanted } from "../support/routes-world.ts";

const filters = ["a/b", "a/+", "a/#", "#", "c", "+"];
const topics = ["a/b", "a/x", "a", "c", "d/e"];
const nodes = [1, 2, 3];

const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant("subscribe" as const),
      node: fc.constantFrom(...nodes),
      client: fc.nat(2),
      filter: fc.constantFrom(...filters),
      isWanted: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("leave" as const),
      node: fc.constantFrom(...nodes),
      client: fc.nat(2),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("wait" as const), ms: fc.nat(3) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("lose" as const),
      from: fc.constantFrom(...nodes),
      to: fc.constantFrom(...nodes),
      isLost: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("restart" as const),
      node: fc.constantFrom(...nodes),
    }),
  },
);

const takes = ["all", "unstored", "all"] as const;

test("after any changes and losses, a message at any node comes once to all who want it, and to no other", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const world = new RoutesWorld();
      for (const node of nodes) world.broker(node);
      const clients = new Map<string, LiveTarget & { readonly got: string[] }>();
      const clientOf = (node: number, number: number) => {
        const name = `${node}.${number}`;
        const broker = world.brokers.get(node);
        if (broker === undefined) throw new Error("it is always there");
        const known = clients.get(name) ?? broker.client(name, takes[number]);
        clients.set(name, known);
        return { broker, client: known };
      };
      for (const each of steps) {
        if (each.kind === "wait") await world.clock.advance(each.ms);
        else if (each.kind === "lose") world.way(each.from, each.to).lost = each.isLost;
        else if (each.kind === "restart") {
          world.end(each.node);
          world.broker(each.node);
          for (const name of [...clients.keys()]) {
            if (name.startsWith(`${each.node}.`)) clients.delete(name);
          }
        } else {
          const { broker, client } = clientOf(each.node, each.client);
          const { live } = broker.routes;
          if (each.kind === "leave") live.removeAll(client);
          else if (each.isWanted) live.set(client, wanted(each.filter));
          else live.remove(client, each.filter);
        }
      }
      for (const way of world.ways.values()) way.lost = false;
      await world.clock.advance(5_000);
      for (const broker of world.brokers.values()) {
        expect(broker.routes.settled()).toBeUndefined();
      }
      for (const [node, broker] of world.brokers) {
        for (const topic of topics) {
          for (const stored of [false, true]) {
            const value = `${topic} of ${node}, ${stored}`;
            broker.publish(topic, value, { stored });
          }
        }
      }
      await world.clock.advance(100);
      for (const [name, client] of clients) {
        const trie = world.brokers.get(Number(name[0]))?.trie;
        const expected = topics.flatMap((topic) => {
          const isWanted = trie?.match(topic).some(({ target }) => target === client) === true;
          if (!isWanted) return [];
          const kinds = client.takes === "unstored" ? [false] : [false, true];
          return nodes.flatMap((node) => kinds.map((stored) => `${topic} of ${node}, ${stored}`));
        });
        expect([...client.got].sort()).toEqual(expected.sort());
      }
    }),
    { numRuns: Number(process.env.FLAGSTONE_ROUTES_RUNS ?? amount(20, 1_000)), endOnFailure: true },
  );
});
