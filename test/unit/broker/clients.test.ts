// Connected clients as pages, looked at in slices.

import { expect, test } from "vitest";
import { Slices } from "../../../src/base/index.ts";
import { ClientDirectory, type ClientView } from "../../../src/broker/clients.ts";
import type { Subscription } from "../../../src/session/index.ts";

const subscription: Subscription = {
  ...{ filter: "a/#", qos: 1, noLocal: false, retainAsPublished: false },
  ...{ retainHandling: 0, identifier: 0 },
};

/** Connections that come in no order; every third keeps a durable session. */
function connected(count: number) {
  const connections = new Set(
    Array.from({ length: count }, (_, n) => {
      const clientId = `c${String((n * 7) % count).padStart(4, "0")}`;
      const memorySession = { subscriptions: () => [subscription], subscriptionCount: 1 };
      return {
        client: { clientId },
        memorySession: n % 3 === 0 ? undefined : memorySession,
        view: (): ClientView | undefined => ({ clientId }) as ClientView,
        kick: () => undefined,
      };
    }),
  );
  return { connections, directory: new ClientDirectory(() => connections) };
}

const all = { prefix: "", after: "" } as const;

test("a page of many connections is looked at in slices; the smallest are on it, with the total", async () => {
  const { directory } = connected(1000);
  let pauses = 0;
  const slices = new Slices(100, async () => {
    pauses++;
  });
  const page = await directory.list({ ...all, countMax: 2 }, slices);
  expect(page.clients.map(({ clientId }) => clientId)).toEqual(["c0000", "c0001"]);
  expect([page.total, page.next, pauses]).toEqual([1000, "c0001", 10]);
  const live = await directory.live({ ...all, countMax: 1000 }, slices);
  expect([live.clients.length, live.subscriptionCount, pauses]).toEqual([666, 666, 20]);
  expect([...(live.clients[0]?.subscriptions() ?? [])]).toEqual([subscription]);
});

test("who goes between two slices is not on the page", async () => {
  const { connections, directory } = connected(10);
  const [gone] = [...connections].filter(({ client }) => client.clientId === "c0000");
  const slices = new Slices(10, async () => {
    if (gone !== undefined) gone.view = () => undefined;
  });
  const page = await directory.list({ ...all, countMax: 3 }, slices);
  expect(page.clients.map(({ clientId }) => clientId)).toEqual(["c0001", "c0002"]);
});

test("a page of which all have gone meanwhile ends no walk: there is more behind it", async () => {
  const { connections, directory } = connected(10);
  const slices = new Slices(10, async () => {
    for (const each of connections) {
      if (each.client.clientId < "c0003") each.view = () => undefined;
    }
  });
  const page = await directory.list({ ...all, countMax: 3 }, slices);
  expect([page.clients, page.next]).toEqual([[], "c0002"]);
  const rest = await directory.list({ ...all, after: "c0002", countMax: 10 }, slices);
  expect([rest.clients.length, rest.next]).toEqual([7, undefined]);
});
