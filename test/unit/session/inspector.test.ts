// The operator's view of sessions: finding the few in trouble, looking without taking, and ending what
// is stuck.

import { describe, expect, test } from "vitest";
import type { SessionQuery } from "../../../src/session/index.ts";
import { amount } from "../../support/amount.ts";
import { type TestClient, World, will } from "../../support/session-world.ts";

async function offline(world: World, clientId: string, filter = `t/${clientId}`) {
  const client = await world.client(clientId).connect();
  client.autoAck = true;
  await client.subscribe(filter);
  await client.disconnect();
  client.take();
  return client;
}

async function list(world: World, query: SessionQuery = {}, countMax = 100, after?: string) {
  const page = { countMax, ...(after !== undefined && { after }) };
  return world.clock.complete(world.sessions.inspector.list(query, page));
}

const names = (page: { sessions: readonly { clientId: string }[] }): string[] =>
  page.sessions.map(({ clientId }) => clientId);

const everything = { countMax: 100, dryRun: false } as const;

async function payloads(client: TestClient): Promise<string[]> {
  await client.connect();
  await client.world.advance(100);
  return client.take().map((line) => line.split(" ").at(-1)!);
}

describe("finding sessions", () => {
  const many = amount(500, 2_000);
  test("of very many sessions the 3 with a backlog are found, reading only theirs", async () => {
    const world = await World.start();
    for (let n = 0; n < many; n++) await offline(world, `c${String(n).padStart(4, "0")}`);
    for (const n of ["0007", "0070", "0499"]) await world.publish("p", `t/c${n}`, "m");
    for (const restarted of [false, true]) {
      if (restarted) await world.restart();
      let reads = 0;
      for (const shard of world.store.stateShards) {
        const { get, list: listKeys } = shard;
        shard.get = (key) => {
          reads++;
          return get.call(shard, key);
        };
        shard.list = (prefix, options) => {
          reads++;
          return listKeys.call(shard, prefix, options);
        };
      }
      const page = await list(world, { backlog: true });
      expect(names(page)).toEqual(["c0007", "c0070", "c0499"]);
      expect([page.total, page.next]).toEqual([3, undefined]);
      expect(reads).toBeLessThan(20);
    }
    expect((await list(world, { backlog: false })).total).toBe(many - 3);
  }, 60_000);

  test("very many sessions are looked at in slices, between which others get their turn", async () => {
    const world = await World.start();
    for (let n = 0; n < 2500; n++) await offline(world, `c${String(n).padStart(4, "0")}`);
    let turns = 0;
    const { soon } = world.clock;
    world.clock.soon = (task) => {
      turns++;
      soon.call(world.clock, task);
    };
    // Nothing is read for an answer without sessions: 2,500 of them and as many filters.
    expect((await list(world, { dropped: true })).total).toBe(0);
    expect(turns).toBe(5);
    expect(await world.clock.complete(world.sessions.inspector.subscriptionCount("c1"))).toBe(1000);
    expect(turns).toBe(6);
  }, 60_000);

  test("a session tells how old the position is that it has to read on from, and who is behind", async () => {
    const world = await World.start();
    for (const clientId of ["a", "b", "c"]) await offline(world, clientId);
    const tailUs = world.store.tail();
    await world.advance(60_000);
    await world.publish("p", "t/b", "m");
    await world.advance(5_000);
    const { sessions } = await list(world);
    expect(sessions.map(({ lagMs }) => lagMs === undefined)).toEqual([true, false, true]);
    expect(sessions[1]?.lagMs).toBeGreaterThanOrEqual(5_000);
    expect(sessions[1]?.lagMs).toBeLessThan(70_000);
    const { inspector } = world.sessions;
    const later = new Map([...tailUs].map(([shard, timeUs]) => [shard, timeUs + 1]));
    expect(await inspector.behind(later)).toEqual({ count: 1, clientIds: ["b"] });
    expect((await inspector.behind(new Map())).count).toBe(0);
  });

  test("who has a filter is known without reading, of whatever kind it is", async () => {
    const world = await World.start();
    await offline(world, "a", "x/+");
    const both = await offline(world, "b", "x/+");
    await both.connect();
    await both.subscribe("last", { qos: 0 });
    await both.subscribe("$share/g/dealt");
    const { inspector } = world.sessions;
    const has = (clientId: string, filter: string) =>
      inspector.mayHave(clientId, (each) => each === filter);
    const all = () => ["x/+", "last", "$share/g/dealt", "none"].map((each) => has("b", each));
    expect(all()).toEqual([true, true, true, false]);
    await both.disconnect();
    expect(all()).toEqual([true, true, true, false]);
    expect([has("a", "x/+"), has("a", "last"), has("nobody", "x/+")]).toEqual([true, false, false]);
    await world.clock.complete(inspector.removeSubscription("b", "last"));
    expect(has("b", "last")).toBe(false);
  });

  test("pages follow each other in order, with the total", async () => {
    const world = await World.start();
    for (const clientId of ["d", "a", "c", "b"]) await offline(world, clientId);
    const first = await list(world, {}, 3);
    expect([names(first), first.total]).toEqual([["a", "b", "c"], 4]);
    const second = await list(world, {}, 3, first.next);
    expect([names(second), second.total, second.next]).toEqual([["d"], 4, undefined]);
  });

  test("exactly one client: device-1 is not device-10", async () => {
    const world = await World.start();
    for (const clientId of ["device-1", "device-10", "device-2"]) await offline(world, clientId);
    expect(names(await list(world, { clientId: "device-1" }))).toEqual(["device-1"]);
    expect(names(await list(world, { clientId: "nobody" }))).toEqual([]);
    const ended = world.sessions.inspector.end({ clientId: "device-1" }, everything);
    expect((await world.clock.complete(ended)).clientIds).toEqual(["device-1"]);
    expect(names(await list(world))).toEqual(["device-10", "device-2"]);
  });

  test("by prefix and by state; ended sessions vanish at once, in-memory ones never show", async () => {
    const world = await World.start();
    const a = await offline(world, "x/a");
    await offline(world, "x/b");
    await offline(world, "y");
    await world.client("memory").connect({ expiryS: 0 });
    await a.connect();
    expect(names(await list(world, { clientIdPrefix: "x/" }))).toEqual(["x/a", "x/b"]);
    expect(names(await list(world, { state: "connected" }))).toEqual(["x/a"]);
    expect(names(await list(world, { state: "offline" }))).toEqual(["x/b", "y"]);
    await a.disconnect(0);
    expect(names(await list(world))).toEqual(["x/b", "y"]);
  });

  test("an entry says who, since when, how much and what was lost", async () => {
    const world = await World.start({ settings: { backlogMax: 1 } });
    const s = await world.client("s").connect({ user: "ann", expiryS: 60 });
    await s.subscribe("t");
    await s.subscribe("u", { qos: 0 });
    await world.publish("p", "t", "unacked");
    await s.drop();
    for (const payload of ["1", "2", "3"]) await world.publish("p", "t", payload);
    const [entry] = (await list(world)).sessions;
    expect(entry).toMatchObject({
      ...{ clientId: "s", user: "ann", state: "offline", expiryS: 60, subscriptions: 2 },
      ...{ inFlight: 1, backlog: true, dropped: 0, closedUs: expect.any(Number) },
    });
    await s.connect({ user: "ann" });
    await world.advance(100);
    expect(names(await list(world, { dropped: true }))).toEqual(["s"]);
    expect((await list(world)).sessions[0]).toMatchObject({ state: "connected", dropped: 2 });
    const detail = await world.clock.complete(world.sessions.inspector.get("s"));
    expect(detail).toMatchObject({ protocol: 5, filters: [{ filter: "t" }, { filter: "u" }] });
    expect(await world.clock.complete(world.sessions.inspector.get("nobody"))).toBeUndefined();
  });

  test("R47: what has expired is no backlog, also behind a restart; what lasts is one", async () => {
    const world = await World.start();
    for (const clientId of ["short", "mixed"]) await offline(world, clientId);
    await world.publish("p", "t/mixed", "lasts");
    for (const clientId of ["short", "mixed"]) {
      await world.publish("p", `t/${clientId}`, "m", { expiryS: 10 });
    }
    expect(names(await list(world, { backlog: true }))).toEqual(["mixed", "short"]);
    await world.advance(10_000);
    expect(names(await list(world, { backlog: true }))).toEqual(["mixed"]);
    await world.restart();
    expect(names(await list(world, { backlog: true }))).toEqual(["mixed"]);
    expect((await list(world, { clientId: "short" })).sessions[0]).toMatchObject({
      backlog: false,
    });
  });

  test("after a crash sessions that were connected are read once to know", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t");
    await world.advance(1000);
    await world.crash();
    expect(names(await list(world, { backlog: true }))).toEqual([]);
    await world.publish("p", "t", "m");
    expect(names(await list(world, { backlog: true }))).toEqual(["s"]);
  });

  test("a page of no size, or too large, or of another kind is refused", async () => {
    const world = await World.start();
    await offline(world, "s");
    for (const countMax of [0, -1, 1.5, 1001]) {
      await expect(list(world, {}, countMax)).rejects.toMatchObject({
        code: "SESSION_PAGE_INVALID",
      });
    }
    const peek = world.sessions.inspector.peek("s", { countMax: 1, after: "x:y" });
    await expect(world.clock.complete(peek)).rejects.toMatchObject({
      code: "SESSION_PAGE_INVALID",
    });
  });
});

describe("looking into a backlog", () => {
  test("shows what is in flight, then what waits, page by page, and takes nothing", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t/#", { qos: 2 });
    await world.publish("p", "t/0", "m0", { qos: 1 });
    await s.drop();
    s.take();
    for (let n = 1; n <= 5; n++) await world.publish("p", `t/${n}`, `m${n}`, { qos: 2 });
    await world.publish("p", "t/brief", "brief", { expiryS: 1 });
    await world.advance(2000);
    const seen: string[] = [];
    let after: string | undefined;
    do {
      const request = { countMax: 2, ...(after !== undefined && { after }) };
      const page = await world.clock.complete(world.sessions.inspector.peek("s", request));
      for (const { message, qos, inFlight } of page!.messages) {
        seen.push(`${message.frame} q${qos}${inFlight ? " in flight" : ""}`);
      }
      after = page!.next;
    } while (after !== undefined);
    expect(seen).toEqual(["m0 q1 in flight", ...[1, 2, 3, 4, 5].map((n) => `m${n} q2`)]);
    s.autoAck = true;
    const got = (await payloads(s)).filter((payload) => payload.startsWith("m"));
    expect(got).toEqual(["m0", "m1", "m2", "m3", "m4", "m5"]);
  });

  test("a client that is not known has none", async () => {
    const world = await World.start();
    const peek = world.sessions.inspector.peek("nobody", { countMax: 1 });
    expect(await world.clock.complete(peek)).toBeUndefined();
  });
});

describe("changing sessions", () => {
  for (const how of ["restart", "crash"] as const) {
    test(`purge drops the backlog of those that match, dry first; it holds over a ${how}`, async () => {
      const world = await World.start();
      const a = await offline(world, "a", "t");
      const b = await offline(world, "b", "t");
      await world.publish("p", "t", "old");
      const { inspector } = world.sessions;
      const query = { clientIdPrefix: "a" };
      const dry = inspector.purge(query, { countMax: 10, dryRun: true });
      expect((await world.clock.complete(dry)).clientIds).toEqual(["a"]);
      expect(names(await list(world, { backlog: true }))).toEqual(["a", "b"]);
      await world.clock.complete(inspector.purge(query, everything));
      expect(names(await list(world, { backlog: true }))).toEqual(["b"]);
      await world[how]();
      expect(names(await list(world, { backlog: true }))).toEqual(["b"]);
      await world.publish("p", "t", "new");
      expect(await payloads(a)).toEqual(["new"]);
      expect(await payloads(b)).toEqual(["old", "new"]);
    });
  }

  test("one that is named is the only one, whoever else's name begins so", async () => {
    const world = await World.start();
    for (const clientId of ["device-1", "device-10", "device-2"])
      await offline(world, clientId, "t");
    await world.publish("p", "t", "m");
    const { inspector } = world.sessions;
    const one = { clientId: "device-1" };
    expect(names(await list(world, one))).toEqual(["device-1"]);
    const purged = await world.clock.complete(inspector.purge(one, everything));
    expect(purged.clientIds).toEqual(["device-1"]);
    expect(names(await list(world, { backlog: true }))).toEqual(["device-10", "device-2"]);
    expect((await world.clock.complete(inspector.end(one, everything))).clientIds).toEqual([
      "device-1",
    ]);
    expect((await world.clock.complete(inspector.end(one, everything))).clientIds).toEqual([]);
    expect(names(await list(world))).toEqual(["device-10", "device-2"]);
  });

  test("purge of a connected session passes over what it has no room for", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ receiveMaximum: 1 });
    await s.subscribe("t");
    for (let n = 1; n <= 5; n++) await world.publish("p", "t", `m${n}`);
    expect(names(await list(world, { backlog: true }))).toEqual(["s"]);
    await world.clock.complete(world.sessions.inspector.purge({}, everything));
    expect(names(await list(world, { backlog: true }))).toEqual([]);
    await world.publish("p", "t", "later");
    s.take();
    s.puback(1);
    await world.advance(100);
    expect(s.take()).toEqual(["publish 2 q1 t later"]);
  });

  test("end ends connected sessions with 0x98 and offline ones, with their wills", async () => {
    const world = await World.start();
    const a = await world.client("a").connect({ will: will("w", "bye") });
    await offline(world, "b");
    const ended = world.sessions.inspector.end({}, everything);
    expect((await world.clock.complete(ended)).clientIds).toEqual(["a", "b"]);
    expect(a.take()).toEqual(["end 0x98"]);
    expect(world.wills).toEqual(["a w bye"]);
    expect((await list(world)).total).toBe(0);
    expect(world.store.stateShards.flatMap((shard) => shard.keys())).toEqual([]);
  });

  test("who has come back since it was found among those that are away is let alone", async () => {
    const world = await World.start();
    const ids = Array.from({ length: 40 }, (_, n) => `c${String(n).padStart(2, "0")}`);
    for (const clientId of ids) await offline(world, clientId);
    const back = world.client("c39");
    const ended = world.sessions.inspector.end({ state: "offline" }, everything);
    await back.connect();
    expect((await world.clock.complete(ended)).clientIds).toEqual(ids.slice(0, -1));
    expect(names(await list(world))).toEqual(["c39"]);
    expect(back.take().filter((line) => line.startsWith("end"))).toEqual([]);
  });

  test("R16: one subscription is dropped, connected or not, and what waits because of it", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("keep");
    await s.subscribe("drop");
    await s.subscribe("online");
    const { inspector } = world.sessions;
    expect(await world.clock.complete(inspector.removeSubscription("s", "online"))).toBe(true);
    await s.disconnect();
    s.take();
    await world.publish("p", "drop", "no");
    await world.publish("p", "keep", "yes");
    expect(await world.clock.complete(inspector.removeSubscription("s", "drop"))).toBe(true);
    expect(await world.clock.complete(inspector.removeSubscription("s", "drop"))).toBe(false);
    expect(await world.clock.complete(inspector.removeSubscription("x", "drop"))).toBeUndefined();
    expect([...world.store.interest.counts.keys()]).toEqual(["keep"]);
    expect(await payloads(s)).toEqual(["yes"]);
  });
});
