// Walks of very many subscriptions: in slices of some rows, behind each of which messages go on.

import { expect, test } from "vitest";
import { rowsPerTurnMax } from "../../../src/admin/subscription-walk.ts";
import { adminWorld } from "../../support/admin-world.ts";

const names = Array.from({ length: 3000 }, (_, n) => `s${String(n).padStart(5, "0")}`);
const filtersOf = (clientId: string) => Array.from({ length: 20 }, (_, n) => `f/${clientId}/${n}`);
const subscription = (filter: string) => ({
  ...{ filter, qos: 1 as const, noLocal: false, retainAsPublished: false },
  ...{ retainHandling: 0 as const, identifier: 0 },
});

/** Durable sessions and live clients with 20 filters each, and what was looked at in each turn. */
async function crowd() {
  const world = await adminWorld();
  const { sessions, clients } = world.node.parts;
  const turns = [0];
  let reads = 0;
  const look = (rows: number): void => {
    turns.push((turns.pop() ?? 0) + rows);
  };
  const { schedule } = world.clock;
  world.clock.schedule = (delayMs, task) => {
    turns.push(0);
    return schedule.call(world.clock, delayMs, task);
  };
  const behind = (list: readonly string[], after: string, countMax: number) => {
    const rest = list.filter((name) => name > after);
    return { shown: rest.slice(0, countMax), hasMore: rest.length > countMax };
  };
  const live = names.map((name) => `${name}-live`);
  Object.assign(sessions, {
    clientIds: ({ after, countMax }: { after: string; countMax: number }) => {
      const { shown, hasMore } = behind(names, after, countMax);
      return { clientIds: shown, hasMore };
    },
    mayHave: (clientId: string, isWanted: (filter: string) => boolean) => {
      const filters = filtersOf(clientId);
      const at = filters.findIndex(isWanted);
      look(at < 0 ? filters.length : at + 1);
      return at >= 0;
    },
    subscriptionsOf: async (clientId: string) => {
      reads++;
      return filtersOf(clientId).map(subscription);
    },
  });
  clients.live = async ({ after, countMax }, slices) => {
    for (const _each of live) {
      look(1);
      await slices.looked(1);
    }
    const { shown, hasMore } = behind(live, after, countMax);
    const held = shown.map((clientId) => ({
      clientId,
      subscriptions: () => {
        const all = filtersOf(clientId).map(subscription);
        look(all.length);
        return all;
      },
    }));
    return { clients: held, hasMore, subscriptionCount: 20 * live.length };
  };
  /** A request begins a turn. */
  const ask = async (query: string) => {
    turns.push(0);
    return (await world.ask(`/api/v1/subscriptions?limit=1000${query}`)).json;
  };
  return { ask, turns, reads: () => reads };
}

test("a walk with a filter looks at a bounded number of rows in a turn, and reads who may match", async () => {
  const { ask, turns, reads } = await crowd();
  const found: string[] = [];
  let after = "";
  do {
    const { items, next } = await ask(`&topic=f%2Fs01234%2F7${after}`);
    for (const { clientId, filter } of items) found.push(`${clientId} ${filter}`);
    after = next === undefined ? "" : `&after=${next}`;
  } while (after !== "");
  expect(found).toEqual(["s01234 f/s01234/7"]);
  expect(reads()).toBe(1);
  // The client that ends a slice may have 20 rows behind its end.
  expect(Math.max(...turns)).toBeLessThanOrEqual(rowsPerTurnMax + 20);
  expect(turns.length).toBeGreaterThan((2 * 20 * names.length) / rowsPerTurnMax);
});

test("a walk of all of them meets each once, in slices as well", async () => {
  const { ask, turns } = await crowd();
  const seen = new Set<string>();
  let count = 0;
  let after = "";
  for (let page = 0; page < 5; page++) {
    const { items, next } = await ask(after);
    for (const { clientId, filter } of items) seen.add(`${clientId} ${filter}`);
    count += items.length;
    after = `&after=${next}`;
  }
  expect([seen.size, count]).toEqual([5000, 5000]);
  expect(Math.max(...turns)).toBeLessThanOrEqual(rowsPerTurnMax + 20);
});

test("all that stays comes once, whatever is unsubscribed between two pages", async () => {
  const world = await adminWorld();
  const { sessions, clients } = world.node.parts;
  const long = "l".repeat(60_000);
  // The first fills its cursor, and has one filter.
  const durable = "d".repeat(65_535);
  const held = new Map([
    [durable, ["one"]],
    ["e", [`${long}/2`, "f/4", "f/1", "f/3", `${long}/1`, "f/2", `${long}/3`]],
    ["f", ["f/3", "f/1", "f/2"]],
  ]);
  Object.assign(sessions, {
    clientIds: ({ after }: { after: string }) => ({
      clientIds: [durable, "e"].filter((clientId) => clientId > after),
      hasMore: false,
    }),
    mayHave: () => true,
    subscriptionsOf: async (clientId: string) => held.get(clientId)?.map(subscription) ?? [],
  });
  clients.live = async ({ after }) => ({
    clients: ["f"]
      .filter((clientId) => clientId > after)
      .map((clientId) => ({
        clientId,
        subscriptions: () => held.get(clientId)?.map(subscription) ?? [],
      })),
    ...{ hasMore: false, subscriptionCount: 3 },
  });
  const all = [...held].flatMap(([clientId, own]) => own.map((filter) => `${clientId} ${filter}`));
  const seen: string[] = [];
  let after = "";
  do {
    const { items, next } = (await world.ask(`/api/v1/subscriptions?limit=2${after}`)).json;
    for (const { clientId, filter } of items) {
      seen.push(`${clientId} ${filter}`);
      // What was answered goes: all of it, the last one as well.
      const own = held.get(clientId) ?? [];
      held.set(
        clientId,
        own.filter((each) => each !== filter),
      );
    }
    expect((next ?? "").length).toBeLessThanOrEqual(90_000);
    after = next === undefined ? "" : `&after=${next}`;
  } while (after !== "");
  expect(seen.length).toBe(all.length);
  expect(seen.toSorted()).toEqual(all.toSorted());
});
