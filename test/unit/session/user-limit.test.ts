// How many durable sessions one user may have.

import { expect, test } from "vitest";
import { storeError } from "../../support/fake-store.ts";
import { World } from "../../support/session-world.ts";

const full = { code: "SESSION_USER_FULL", kind: "limit" };
const two = { settings: { sessionsPerUserMax: 2 } };

test("a user's third durable session is refused; others, short sessions and those that are there go on", async () => {
  const world = await World.start(two);
  const [a, b] = [world.client("a"), world.client("b")];
  for (const client of [a, b]) await client.connect({ user: "ann" });
  await expect(world.client("c").connect({ user: "ann" })).rejects.toMatchObject(full);
  expect(world.sessions.counters.sessionsOfUserFull).toBe(1);
  expect(world.sessions.counts()).toEqual({ durable: 2, connected: 2 });
  await world.client("c").connect({ user: "ann", expiryS: 0 });
  await world.client("d").connect({ user: "bob" });
  await world.client("a").connect({ user: "ann" });
  await b.drop();
  await b.connect({ user: "ann" });
  expect(b.sessionPresent).toBe(true);
});

test("anonymous clients count together", async () => {
  const world = await World.start(two);
  for (const id of ["a", "b"]) await world.client(id).connect();
  await expect(world.client("c").connect()).rejects.toMatchObject(full);
  await world.client("c").connect({ user: "ann" });
});

test("an end of any kind frees the place: by the client, by expiry, by a clean start", async () => {
  const world = await World.start({ settings: { sessionsPerUserMax: 1 } });
  const user = "ann";
  const a = await world.client("a").connect({ user });
  await a.disconnect(0);
  const b = await world.client("b").connect({ user, expiryS: 60 });
  await b.drop();
  await expect(world.client("c").connect({ user })).rejects.toMatchObject(full);
  await world.advance(61_000);
  const c = await world.client("c").connect({ user });
  await c.connect({ user, clean: true });
  expect(world.sessions.counts().durable).toBe(1);
  await c.connect({ user, clean: true, expiryS: 0 });
  await world.client("d").connect({ user });
});

test("many that come at once are not more than that", async () => {
  const world = await World.start(two);
  const clients = Array.from({ length: 10 }, (_, n) => world.client(`c${n}`));
  const all = Promise.allSettled(clients.map((client) => client.connectLater({ user: "ann" })));
  const settled = await world.clock.complete(all);
  expect(settled.filter(({ status }) => status === "fulfilled")).toHaveLength(2);
  expect(world.sessions.counts().durable).toBe(2);
});

test.each(["restart", "crash"] as const)(
  "a %s counts what is there, connected or not",
  async (end) => {
    const world = await World.start(two);
    const a = await world.client("a").connect({ user: "ann" });
    await world.client("b").connect({ user: "ann" });
    await world.client("e").connect({ user: "bob" });
    await a.drop();
    await world[end]();
    await expect(world.client("c").connect({ user: "ann" })).rejects.toMatchObject(full);
    await world.client("d").connect({ user: "bob" });
    await expect(world.client("f").connect({ user: "bob" })).rejects.toMatchObject(full);
    await a.connect({ user: "ann" });
    expect(a.sessionPresent).toBe(true);
  },
);

test("a place that could not be used is free again", async () => {
  const world = await World.start({ settings: { sessionsPerUserMax: 1 } });
  const shard = world.store.state("a") as unknown as { write: (...args: unknown[]) => void };
  const write = shard.write;
  shard.write = (...args) => {
    const done = args[2] as (error: Error) => void;
    world.clock.soon(() => done(storeError("STORE_CLOSED", "closed")));
  };
  await expect(world.client("a").connect({ user: "ann" })).rejects.toThrow();
  shard.write = write;
  await world.client("a").connect({ user: "ann" });
});
