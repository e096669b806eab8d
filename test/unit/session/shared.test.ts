// Shared subscriptions: who gets what, and what becomes of it when members come and go.

import { describe, expect, test } from "vitest";
import type { GroupQuery, PageRequest, Subscription } from "../../../src/session/index.ts";
import { type ConnectOptions, type TestClient, World } from "../../support/session-world.ts";

const shared = "$share/g/t/#";

async function member(
  world: World,
  clientId: string,
  options: ConnectOptions & { qos?: 0 | 1 | 2; subscription?: Partial<Subscription> } = {},
): Promise<TestClient> {
  const { qos = 1, subscription, ...connect } = options;
  const client = await world.client(clientId).connect(connect);
  client.autoAck = true;
  await client.subscribe(shared, { qos, ...subscription });
  expect(client.take()).toEqual([`suback ${qos}`]);
  return client;
}

async function publish(world: World, count: number, options: { qos?: 0 | 1 | 2 } = {}) {
  for (let n = 1; n <= count; n++) await world.publish("p", "t/x", `m${n}`, options);
  await world.advance(100);
}

/** Payloads received, without packet ids and flags. */
function payloads(client: TestClient): string[] {
  return client
    .take()
    .filter((line) => line.startsWith("publish"))
    .map((line) => line.split(" ").at(-1)!);
}

function names(count: number): string[] {
  return Array.from({ length: count }, (_, n) => `m${n + 1}`);
}

function groupKeysOf(world: World): string[] {
  return world.store.stateShards.flatMap((shard) =>
    shard.keys().filter((key) => key.startsWith("group/")),
  );
}

for (const expiryS of [0, 3600]) {
  const kind = expiryS === 0 ? "live" : "durable";
  describe(`a ${kind} group`, () => {
    test("each message goes to one member, in turns", async () => {
      const world = await World.start();
      const a = await member(world, "a", { expiryS });
      const b = await member(world, "b", { expiryS });
      await publish(world, 6);
      expect(payloads(a)).toEqual(["m1", "m3", "m5"]);
      expect(payloads(b)).toEqual(["m2", "m4", "m6"]);
    });

    test("each member gets its own QoS, its identifier and its Retain As Published", async () => {
      const world = await World.start();
      const one = { identifier: 7, retainAsPublished: true };
      const a = await member(world, "a", { expiryS, qos: 2, subscription: one });
      const b = await member(world, "b", { expiryS, qos: 0 });
      const c = await member(world, "c", { expiryS, qos: 1, subscription: { identifier: 9 } });
      for (let n = 1; n <= 3; n++) {
        await world.publish("p", "t/x", `m${n}`, { qos: 2, retain: true });
      }
      await world.advance(100);
      expect(a.take()).toEqual(["publish 1 q2 retain t/x m1 [7]", "pubrel 1"]);
      expect(b.take()).toEqual(["publish q0 t/x m2"]);
      expect(c.take()).toEqual(["publish 1 q1 t/x m3 [9]"]);
    });

    test("no retained message is sent for it, whatever Retain Handling says", async () => {
      const world = await World.start();
      await world.publish("p", "t/x", "kept", { retain: true });
      const a = await member(world, "a", { expiryS, subscription: { retainHandling: 0 } });
      await world.advance(1000);
      expect(a.take()).toEqual([]);
    });

    test("two groups of one filter and a plain subscription get a copy each", async () => {
      const world = await World.start();
      const a = await member(world, "a", { expiryS });
      await a.subscribe("$share/other/t/#");
      await a.subscribe("t/#");
      a.take();
      await publish(world, 1);
      expect(payloads(a)).toEqual(["m1", "m1", "m1"]);
    });

    test("R68: what a member had not acked when it went goes to another", async () => {
      const world = await World.start();
      const a = await member(world, "a", { expiryS });
      const b = await member(world, "b", { expiryS });
      a.autoAck = false;
      await publish(world, 4);
      expect(payloads(a)).toEqual(["m1", "m3"]);
      expect(payloads(b)).toEqual(["m2", "m4"]);
      await a.drop(0);
      await world.advance(100);
      expect(payloads(b)).toEqual(["m1", "m3"]);
    });

    test("what was acked, or refused by an ack, goes to nobody else", async () => {
      const world = await World.start();
      const a = await member(world, "a", { expiryS });
      a.autoAck = false;
      await publish(world, 2);
      expect(payloads(a)).toEqual(["m1", "m2"]);
      a.puback(1);
      a.session!.puback(2, 0x97);
      const b = await member(world, "b", { expiryS });
      await a.drop();
      await world.advance(100);
      expect(payloads(b)).toEqual([]);
    });

    test("R75: what is half delivered at QoS 2 reaches nobody else", async () => {
      const world = await World.start();
      const a = await member(world, "a", { expiryS, qos: 2 });
      const b = await member(world, "b", { expiryS, qos: 2 });
      a.autoAck = false;
      await publish(world, 2, { qos: 2 });
      expect(payloads(a)).toEqual(["m1"]);
      a.pubrec(1);
      await world.advance(100);
      b.take();
      await a.drop(0);
      await world.advance(1000);
      expect(payloads(b)).toEqual([]);
    });

    test("a message too large for one member goes to another, and is dropped if it is for all", async () => {
      const world = await World.start();
      const a = await member(world, "a", { expiryS });
      const b = await member(world, "b", { expiryS });
      a.maxBytes = 3;
      for (const payload of ["1", "2222222", "3333333"]) {
        await world.publish("p", "t/x", payload);
      }
      await world.advance(100);
      expect(payloads(a)).toEqual(["1"]);
      expect(payloads(b)).toEqual(["2222222", "3333333"]);
      b.maxBytes = 3;
      await world.publish("p", "t/x", "4444444");
      await world.publish("p", "t/x", "5");
      await world.advance(100);
      expect([...payloads(a), ...payloads(b)]).toEqual(["5"]);
      expect(world.sessions.counters.tooLargeDropped).toBe(1);
    });

    test("a member without room is passed over; what nobody has room for waits", async () => {
      const world = await World.start();
      const a = await member(world, "a", { expiryS, receiveMaximum: 1 });
      const b = await member(world, "b", { expiryS, receiveMaximum: 2 });
      a.autoAck = false;
      b.autoAck = false;
      await publish(world, 5);
      expect(payloads(a)).toEqual(["m1"]);
      expect(payloads(b)).toEqual(["m2", "m3"]);
      b.puback(2);
      await world.advance(100);
      expect(payloads(b)).toEqual(["m4"]);
      a.puback(1);
      await world.advance(100);
      expect(payloads(a)).toEqual(["m5"]);
    });

    test("after UNSUBSCRIBE a member gets nothing more", async () => {
      const world = await World.start();
      const a = await member(world, "a", { expiryS });
      const b = await member(world, "b", { expiryS });
      expect(await a.unsubscribe(shared)).toBe(true);
      expect(await a.unsubscribe(shared)).toBe(false);
      await publish(world, 3);
      expect(payloads(a)).toEqual([]);
      expect(payloads(b)).toEqual(names(3));
      await b.unsubscribe(shared);
      await publish(world, 3);
      expect(payloads(b)).toEqual([]);
      expect(groupKeysOf(world)).toEqual([]);
      expect(world.store.interest.counts.size).toBe(0);
    });
  });
}

describe("a group with durable members", () => {
  test("R70, R73: only connected members are dealt to", async () => {
    const world = await World.start();
    const clients = [];
    for (const name of ["a", "b", "c", "d"]) clients.push(await member(world, name));
    const [a, b, c, d] = clients as [TestClient, TestClient, TestClient, TestClient];
    await c.drop();
    await publish(world, 12);
    expect([payloads(a).length, payloads(b).length, payloads(d).length]).toEqual([4, 4, 4]);
    await a.drop();
    await b.disconnect();
    await publish(world, 12);
    expect(payloads(d)).toEqual(names(12));
  });

  test("R71: what came while all were away goes to the first that returns, without SUBSCRIBE", async () => {
    const world = await World.start();
    const clients = [];
    for (const name of ["a", "b", "c", "d"]) clients.push(await member(world, name));
    for (const client of clients) await client.drop();
    await publish(world, 12);
    await clients[2]!.connect();
    await world.advance(200);
    expect(payloads(clients[2]!)).toEqual(names(12));
    await clients[0]!.connect();
    await world.advance(200);
    expect(payloads(clients[0]!)).toEqual([]);
  });

  test("R74: what went out at QoS 0 does not come again, at a reconnect or after a crash", async () => {
    const world = await World.start();
    const a = await member(world, "a", { qos: 0 });
    const b = await member(world, "b", { qos: 1 });
    await b.disconnect();
    await publish(world, 3);
    expect(payloads(a)).toEqual(names(3));
    await a.drop();
    await a.connect();
    await world.advance(500);
    expect(payloads(a)).toEqual([]);
    await world.publish("p", "t/x", "later");
    expect(payloads(a)).toEqual(["later"]);
    await world.crash();
    await a.connect();
    await world.advance(500);
    expect(payloads(a)).toEqual([]);
  });

  test("a group begins at the tail, and goes with its last durable member", async () => {
    const world = await World.start();
    const reader = await world.client("reader").connect();
    await reader.subscribe("t/#");
    await publish(world, 3);
    const a = await member(world, "a");
    await world.advance(100);
    expect(payloads(a)).toEqual([]);
    expect(groupKeysOf(world).length).toBeGreaterThan(0);
    await a.drop(10);
    await world.advance(30_000);
    expect(groupKeysOf(world)).toEqual([]);
    expect([...world.store.interest.counts.keys()]).toEqual(["t/#"]);
    const again = await member(world, "again");
    await world.advance(100);
    expect(payloads(again)).toEqual([]);
  });

  for (const end of ["restart", "crash"] as const) {
    test(`backlog and unfinished messages survive a ${end}; what may have been sent carries DUP`, async () => {
      const world = await World.start();
      const a = await member(world, "a");
      a.autoAck = false;
      await publish(world, 2);
      expect(payloads(a)).toEqual(["m1", "m2"]);
      a.puback(1);
      await world.advance(1000);
      await world[end]();
      // Past what the process before may have sent.
      await world.advance(5000);
      await world.publish("p", "t/x", "m3");
      const b = await world.client("b").connect();
      b.autoAck = true;
      await b.subscribe(shared);
      await world.advance(6000);
      expect(b.take().map((line) => line.replace(/publish \d+/, "publish"))).toEqual([
        "suback 1",
        "publish q1 dup t/x m2",
        "publish q1 t/x m3",
      ]);
      await world.advance(1000);
      expect(groupKeysOf(world).filter((key) => key.includes("/out/"))).toEqual([]);
    });
  }

  test("QoS 2 that was bound by a member is its own: sent again to it, to nobody else", async () => {
    const world = await World.start();
    const a = await member(world, "a", { qos: 2 });
    const b = await member(world, "b", { qos: 2 });
    a.autoAck = false;
    await publish(world, 1, { qos: 2 });
    expect(a.take()).toEqual(["publish 1 q2 t/x m1"]);
    await a.drop();
    await world.crash();
    await b.connect();
    await world.advance(6000);
    expect(b.take()).toEqual([]);
    a.autoAck = true;
    await a.connect();
    await world.advance(1000);
    expect(a.take()).toEqual(["publish 1 q2 dup t/x m1", "pubrel 1"]);
    expect(groupKeysOf(world).filter((key) => key.includes("/out/"))).toEqual([]);
  });

  test("QoS 2 that was assigned and never bound goes to another", async () => {
    const world = await World.start();
    const a = await member(world, "a", { qos: 2 });
    const b = await member(world, "b", { qos: 2 });
    const order: string[] = [];
    for (const client of [a, b])
      client.onPublish = ({ frame }) => order.push(`${client.clientId} ${frame}`);
    await world.publish("p", "t/x", "m1", { qos: 2 });
    await a.drop(0);
    await world.advance(1000);
    expect(order).toEqual(["b m1"]);
  });

  test("a message that expired while it waited is not dealt", async () => {
    const world = await World.start();
    const a = await member(world, "a");
    await a.drop();
    await world.publish("p", "t/x", "brief", { expiryS: 5 });
    await world.publish("p", "t/x", "lasting");
    await world.advance(6000);
    await a.connect();
    await world.advance(100);
    expect(payloads(a)).toEqual(["lasting"]);
  });

  test("one that was sent and expired before it came back is dropped", async () => {
    const world = await World.start();
    const a = await member(world, "a");
    a.autoAck = false;
    await world.publish("p", "t/x", "brief", { expiryS: 5 });
    await world.advance(100);
    expect(payloads(a)).toEqual(["brief"]);
    await a.drop();
    await world.advance(6000);
    const b = await member(world, "b");
    await world.advance(100);
    expect(payloads(b)).toEqual([]);
    expect(world.sessions.counters.expiredDropped).toBe(1);
  });
});

describe("between live and durable", () => {
  test("a durable member makes it durable: nothing is lost or comes twice", async () => {
    const world = await World.start();
    const live = await member(world, "live", { expiryS: 0 });
    await publish(world, 2);
    expect(payloads(live)).toEqual(["m1", "m2"]);
    const durable = await member(world, "durable");
    await publish(world, 4);
    expect([...payloads(live), ...payloads(durable)].sort()).toEqual(names(4));
    await durable.drop();
    await publish(world, 3);
    expect(payloads(live)).toEqual(names(3));
    await live.drop();
    await publish(world, 3);
    await durable.connect();
    await world.advance(100);
    expect(payloads(durable)).toEqual(names(3));
  });

  test("the last durable member leaves: who is connected gets the backlog, then the group is live", async () => {
    const world = await World.start();
    const durable = await member(world, "durable");
    const live = await member(world, "live", { expiryS: 0, receiveMaximum: 1 });
    live.autoAck = false;
    await durable.drop();
    await publish(world, 3);
    expect(payloads(live)).toEqual(["m1"]);
    await durable.connect({ clean: true });
    await world.advance(100);
    expect(groupKeysOf(world).length).toBeGreaterThan(0);
    for (let n = 1; n <= 3; n++) {
      live.puback(n);
      await world.advance(100);
    }
    expect(payloads(live)).toEqual(["m2", "m3"]);
    expect(groupKeysOf(world)).toEqual([]);
    await publish(world, 1);
    expect(payloads(live)).toEqual(["m1"]);
    expect(world.store.interest.counts.size).toBe(0);
  });

  test("a QoS 0 member does not make it durable", async () => {
    const world = await World.start();
    const a = await member(world, "a", { qos: 0 });
    await a.drop();
    await publish(world, 3);
    await a.connect();
    await world.advance(100);
    expect(payloads(a)).toEqual([]);
    expect(groupKeysOf(world)).toEqual([]);
  });

  test("a live group's queue is bounded: the oldest are dropped and counted", async () => {
    const world = await World.start({ settings: { memoryQueueMax: 3 } });
    const a = await member(world, "a", { expiryS: 0, receiveMaximum: 1 });
    a.autoAck = false;
    await publish(world, 6);
    expect(payloads(a)).toEqual(["m1"]);
    expect(world.sessions.counters.groupMessagesDropped).toBe(2);
    for (let n = 1; n <= 3; n++) {
      a.puback(n);
      await world.advance(10);
    }
    expect(payloads(a)).toEqual(["m4", "m5", "m6"]);
  });
});

describe("the operator's view", () => {
  const list = (world: World, query: GroupQuery = {}, page: Partial<PageRequest> = {}) =>
    world.sessions.sharedGroups.list(query, { countMax: 100, ...page });

  test("a group shows who is there, what is in hands, what waits and what was lost", async () => {
    const world = await World.start();
    const a = await member(world, "a", { receiveMaximum: 2 });
    await (await member(world, "b")).drop();
    await (await member(world, "live", { expiryS: 0 })).drop();
    a.autoAck = false;
    await publish(world, 5);
    const told = { group: shared, durable: true, connectedMembers: 1, durableMembers: 2 };
    expect(list(world).groups).toEqual([
      { ...told, inFlight: 2, returned: 0, backlog: true, dropped: 0 },
    ]);
    await a.drop();
    expect(list(world).groups).toMatchObject([
      { connectedMembers: 0, inFlight: 0, returned: 2, backlog: true },
    ]);
    await world.restart();
    expect(list(world, { backlog: true })).toMatchObject({ total: 1, groups: [{ returned: 2 }] });
    a.autoAck = true;
    await a.connect();
    await world.advance(500);
    expect(payloads(a)).toHaveLength(5 + 2);
    expect(list(world).groups).toMatchObject([{ inFlight: 0, returned: 0, backlog: false }]);
    expect(list(world, { backlog: true }).total).toBe(0);
    const { groupMessagesDealt, groupMessagesReturned } = world.sessions.counters;
    expect([groupMessagesDealt, groupMessagesReturned]).toEqual([5, 0]);
  });

  test("R47: what has expired is no backlog", async () => {
    const world = await World.start();
    const a = await member(world, "a");
    await a.drop();
    await world.publish("p", "t/x", "m", { expiryS: 10 });
    await world.advance(100);
    expect(list(world, { backlog: true }).total).toBe(1);
    await world.advance(10_000);
    expect(list(world, { backlog: true }).total).toBe(0);
    await world.publish("p", "t/x", "lasts");
    expect(list(world, { backlog: true }).total).toBe(1);
  });

  test("pages follow each other in order of filters; one that is over is in none", async () => {
    const world = await World.start();
    const c = await world.client("c").connect({ expiryS: 0 });
    const filters = ["$share/a/x", "$share/b/x", "$share/b/y", "$share/c/x"];
    for (const filter of filters) await c.subscribe(filter);
    const first = list(world, {}, { countMax: 3 });
    expect(first.groups.map(({ group }) => group)).toEqual(filters.slice(0, 3));
    expect([first.next, first.total]).toEqual(["$share/b/y", 4]);
    const { groups, next } = list(world, {}, { countMax: 3, after: "$share/b/y" });
    expect([groups.map(({ group }) => group), next]).toEqual([["$share/c/x"], undefined]);
    expect(list(world, { prefix: "$share/b/" }).total).toBe(2);
    expect(groups).toMatchObject([{ durable: false, connectedMembers: 1, durableMembers: 0 }]);
    await c.drop();
    expect(list(world).total).toBe(0);
    expect(() => list(world, {}, { countMax: 0 })).toThrow("countMax");
  });
});
