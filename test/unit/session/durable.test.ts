import { describe, expect, test } from "vitest";
import { World } from "../../support/session-world.ts";

describe("delivery", () => {
  test("a durable session gets what matches, at the lower of both QoS, ids from 1 up", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    expect(s.sessionPresent).toBe(false);
    await s.subscribe("a/+", { qos: 1 });
    await world.publish("p", "a/b", "one", { qos: 2 });
    await world.publish("p", "a/c", "two", { qos: 1 });
    await world.publish("p", "x", "no", { qos: 1 });
    expect(s.take()).toEqual(["suback 1", "publish 1 q1 a/b one", "publish 2 q1 a/c two"]);
  });

  test("overlapping filters give one copy, highest QoS, every identifier", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("a/b", { qos: 0, identifier: 7 });
    await s.subscribe("a/+", { qos: 1, identifier: 9 });
    s.take();
    await world.publish("p", "a/b", "m", { qos: 2 });
    expect(s.take()).toEqual(["publish 1 q1 a/b m [7,9]"]);
  });

  test("No Local and Retain As Published hold for live messages and for the backlog", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("nl", { noLocal: true });
    await s.subscribe("rap", { retainAsPublished: true });
    await s.subscribe("plain");
    s.take();
    await world.publish("s", "nl", "own");
    await s.drop();
    await world.publish("s", "nl", "own");
    await world.publish("p", "rap", "r", { retain: true });
    await world.publish("p", "plain", "r", { retain: true });
    await s.connect();
    await world.advance(10);
    expect(s.take()).toEqual(["publish 1 q1 retain rap r", "publish 2 q1 plain r"]);
  });

  test("the window is the smaller of both limits; each ack lets one more through", async () => {
    const world = await World.start({ settings: { inflightMax: 3 } });
    const s = await world.client("s").connect({ receiveMaximum: 2 });
    await s.subscribe("t");
    s.take();
    for (const n of [1, 2, 3, 4]) await world.publish("p", "t", `m${n}`);
    expect(s.take()).toEqual(["publish 1 q1 t m1", "publish 2 q1 t m2"]);
    expect(s.puback(2)).toBeUndefined();
    expect(s.take()).toEqual(["publish 3 q1 t m3"]);
  });

  test("the byte window admits one message whatever its size", async () => {
    const world = await World.start({ settings: { inflightBytesMax: 10 } });
    const s = await world.client("s").connect();
    await s.subscribe("t");
    s.take();
    await world.publish("p", "t", "x".repeat(50));
    await world.publish("p", "t", "y");
    expect(s.take()).toHaveLength(1);
    s.puback(1);
    expect(s.take()).toEqual(["publish 2 q1 t y"]);
  });

  test("a full connection makes the message wait, and nothing is lost when it drains", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t");
    s.take();
    s.room = 1;
    for (const n of [1, 2, 3]) await world.publish("p", "t", `m${n}`);
    expect(s.take()).toEqual(["publish 1 q1 t m1"]);
    s.drain();
    expect(s.take()).toEqual(["publish 2 q1 t m2", "publish 3 q1 t m3"]);
  });

  test("a message above the client's Maximum Packet Size counts as done and blocks nothing", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ receiveMaximum: 1 });
    await s.subscribe("t", { qos: 2 });
    s.take();
    s.maxBytes = 10;
    await world.publish("p", "t", "x".repeat(50), { qos: 2 });
    await world.publish("p", "t", "x".repeat(50), { qos: 1 });
    await world.publish("p", "t", "small", { qos: 1 });
    expect(s.take()).toEqual(["publish 3 q1 t small"]);
    expect(world.sessions.counters.tooLargeDropped).toBe(2);
  });

  test("an expired message is dropped at delivery", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t");
    await s.drop();
    await world.publish("p", "t", "short", { expiryS: 5 });
    await world.publish("p", "t", "long", { expiryS: 500 });
    await world.advance(10_000);
    s.take();
    await s.connect();
    await world.advance(10);
    expect(s.take()).toEqual(["publish 1 q1 t long"]);
  });

  test("a QoS 0 subscription lasts, has no durable interest, and skips what was sent meanwhile", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t", { qos: 0 });
    expect(world.store.interest.counts.size).toBe(0);
    await world
      .client("keeper")
      .connect()
      .then((keeper) => keeper.subscribe("t"));
    await s.drop();
    await world.publish("p", "t", "away");
    await s.connect();
    s.take();
    await world.publish("p", "t", "back");
    await world.publish("p", "t", "unstored", { qos: 0 });
    expect(s.take()).toEqual(["publish q0 t back", "publish q0 t unstored"]);
  });

  test("a QoS 1 message waits behind an earlier QoS 2 one that is not bound yet", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t", { qos: 2 });
    s.take();
    const sent = [
      world.publishLater("p", "t", "two", { qos: 2 }),
      world.publishLater("p", "t", "one", { qos: 1 }),
    ];
    await world.clock.complete(Promise.all(sent));
    expect(s.take()).toEqual([]);
    await world.advance(10);
    expect(s.take()).toEqual(["publish 1 q2 t two", "publish 2 q1 t one"]);
  });
});

describe("subscriptions", () => {
  test("a filter subscribed again keeps its start; options change for what is unsent", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ receiveMaximum: 1 });
    await s.subscribe("t", { qos: 1 });
    for (const n of [1, 2]) await world.publish("p", "t", `m${n}`);
    const again = await s.subscribe("t", { qos: 1, identifier: 5 });
    expect(again.isNew).toBe(false);
    s.puback(1);
    expect(s.take()).toEqual([
      "suback 1",
      "publish 1 q1 t m1",
      "suback 1",
      "publish 2 q1 t m2 [5]",
    ]);
  });

  test("a new filter starts at the tail: nothing from before the SUBSCRIBE", async () => {
    const world = await World.start();
    const keeper = await world.client("keeper").connect();
    await keeper.subscribe("#");
    await world.publish("p", "t", "before");
    const s = await world.client("s").connect();
    await s.subscribe("t");
    await world.publish("p", "t", "after");
    expect(s.take()).toEqual(["suback 1", "publish 1 q1 t after"]);
  });

  test("what matches while a SUBSCRIBE is made durable is not passed over and found later", async () => {
    const world = await World.start();
    const keeper = await world.client("keeper").connect();
    await keeper.subscribe("#");
    const s = await world.client("s").connect();
    await s.subscribe("a");
    const subscribed = s.subscribeLater("b");
    await world.publish("p", "b", "between");
    await world.clock.complete(subscribed);
    await world.publish("p", "a", "after");
    const here = s.take().filter((line) => line.startsWith("publish"));
    await world.crash();
    await s.connect();
    await world.advance(10);
    const news = [...here, ...s.take()].filter((line) => !line.includes(" dup "));
    expect(news).toEqual(["publish 1 q1 b between", "publish 2 q1 a after"]);
  });

  test("a filter given up twice is told gone only when it durably is", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t");
    const told: string[] = [];
    const first = s.session!.unsubscribe(["t"]).then(([existed]) => told.push(`first ${existed}`));
    const second = s
      .session!.unsubscribe(["t"])
      .then(([existed]) => told.push(`second ${existed}`));
    await world.clock.complete(Promise.all([first, second]));
    expect(told).toEqual(["first true", "second false"]);
    await world.crash();
    await s.connect();
    await world.publish("p", "t", "m");
    expect(s.take().filter((line) => line.includes("publish"))).toEqual([]);
  });

  test("a filter given up and asked for again in one go is read with", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t");
    const given = s.session!.unsubscribe(["t"]);
    await s.subscribe("t");
    await world.clock.complete(given);
    await world.publish("p", "t", "m");
    expect(s.take()).toEqual(["suback 1", "suback 1", "publish 1 q1 t m"]);
  });

  test("UNSUBSCRIBE drops the unsent backlog of that filter only, and what is sent finishes", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ receiveMaximum: 1 });
    await s.subscribe("a");
    await s.subscribe("b");
    for (const n of [1, 2]) await world.publish("p", "a", `a${n}`);
    await world.publish("p", "b", "b1");
    expect(await s.unsubscribe("a")).toBe(true);
    expect(await s.unsubscribe("a")).toBe(false);
    s.take();
    s.puback(1);
    expect(s.take()).toEqual(["publish 2 q1 b b1"]);
    expect([...world.store.interest.counts.keys()]).toEqual(["b"]);
  });

  test("all SUBSCRIBEs of a turn share one write of a state shard", async () => {
    const world = await World.start({ store: { stateShards: 1 } });
    const clients = [];
    for (let n = 0; n < 20; n++) clients.push(await world.client(`c${n}`).connect());
    await world.advance(200);
    const before = world.store.writeCount;
    await world.clock.complete(Promise.all(clients.map((c) => c.subscribeLater("t"))));
    expect(world.store.writeCount - before).toBe(1);
  });

  test("a failed write refuses the filter and leaves nothing behind", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    const { storeError } = await import("../../support/fake-store.ts");
    world.store.failWrites = storeError("STORE_QUOTA_EXCEEDED", "limit");
    const result = await s.subscribe("t");
    expect(result.reasonCode).toBe(0x97);
    world.store.failWrites = undefined;
    expect(world.store.interest.counts.size).toBe(0);
    expect((await s.subscribe("t")).isNew).toBe(true);
  });

  test("subscriptionsMax refuses the filter with 0x97, not one the client has", async () => {
    const world = await World.start({ settings: { subscriptionsMax: 1 } });
    const s = await world.client("s").connect();
    expect((await s.subscribe("a")).reasonCode).toBe(1);
    expect((await s.subscribe("b")).reasonCode).toBe(0x97);
    expect((await s.subscribe("a", { qos: 2 })).reasonCode).toBe(2);
  });

  test.each([3600, 0])(
    "so does subscriptionBytesMax, with expiry %i; what goes frees bytes",
    async (expiryS) => {
      const world = await World.start({ settings: { subscriptionBytesMax: 100 } });
      const s = await world.client("s").connect({ expiryS });
      const filter = (letter: string, bytes: number) => letter.repeat(bytes);
      expect((await s.subscribe(filter("a", 60))).reasonCode).toBe(1);
      expect((await s.subscribe(filter("b", 41))).reasonCode).toBe(0x97);
      expect((await s.subscribe(filter("\u00e9", 21))).reasonCode).toBe(0x97);
      expect((await s.subscribe(filter("b", 40))).reasonCode).toBe(1);
      expect((await s.subscribe(filter("a", 60), { qos: 2 })).reasonCode).toBe(2);
      expect((await s.subscribe("c")).reasonCode).toBe(0x97);
      await s.unsubscribe(filter("b", 40));
      expect((await s.subscribe("c")).reasonCode).toBe(1);
    },
  );
});

describe("acks", () => {
  test("QoS 2 out: PUBLISH, PUBREC, PUBREL after its write, PUBCOMP ends it", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t", { qos: 2 });
    await world.publish("p", "t", "m", { qos: 2 });
    await world.advance(10);
    expect(s.take()).toEqual(["suback 2", "publish 1 q2 t m"]);
    expect(s.pubrec(1)).toBeUndefined();
    expect(s.take()).toEqual([]);
    await world.advance(10);
    expect(s.take()).toEqual(["pubrel 1"]);
    expect(s.pubcomp(1)).toBeUndefined();
    await world.advance(100);
    expect(outKeys(world)).toEqual([]);
  });

  test("PUBRELs leave in the order of the PUBRECs", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t", { qos: 2 });
    for (const n of [1, 2, 3]) await world.publish("p", "t", `${n}`, { qos: 2 });
    await world.advance(10);
    s.take();
    for (const id of [2, 3, 1]) s.pubrec(id);
    await world.advance(10);
    expect(s.take()).toEqual(["pubrel 2", "pubrel 3", "pubrel 1"]);
  });

  test("PUBREC with an error ends the exchange; an unknown id gets PUBREL 0x92", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t", { qos: 2 });
    await world.publish("p", "t", "m", { qos: 2 });
    await world.advance(10);
    s.take();
    expect(s.pubrec(1, 0x97)).toBeUndefined();
    expect(s.pubrec(1)).toBeUndefined();
    expect(s.take()).toEqual(["pubrel 1 0x92"]);
  });

  test("an ack for the wrong stage is a protocol error, for an unknown id it is nothing", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t", { qos: 2 });
    await world.publish("p", "t", "one", { qos: 1 });
    await world.publish("p", "t", "two", { qos: 2 });
    await world.advance(10);
    expect(s.pubrec(1)).toBe(0x82);
    expect(s.puback(2)).toBe(0x82);
    expect(s.pubcomp(2)).toBe(0x82);
    expect(s.pubcomp(1)).toBe(0x82);
    expect(s.puback(99)).toBeUndefined();
    expect(s.pubcomp(99)).toBeUndefined();
  });
});

describe("checkpoints", () => {
  test("a change is written within 50 ms on a quiet node, acked messages leave no record", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t");
    await world.publish("p", "t", "acked");
    s.puback(1);
    await world.publish("p", "t", "open");
    await world.advance(60);
    expect(outKeys(world)).toHaveLength(1);
    s.puback(2);
    await world.advance(60);
    expect(outKeys(world)).toEqual([]);
  });

  test("behind a large round the next one waits as long as its keys allow, a second at most", async () => {
    const world = await World.start({ settings: { checkpointKeysPerS: 20 } });
    const s = await world.client("s").connect();
    await s.subscribe("t");
    const publishAll = async (count: number) => {
      for (let n = 0; n < count; n++) await world.publish("p", "t", "open");
    };
    await publishAll(10);
    await world.advance(1000);
    expect(outKeys(world)).toHaveLength(10);
    await publishAll(60);
    await world.advance(1000);
    expect(outKeys(world)).toHaveLength(70);
    s.puback(1);
    await world.advance(900);
    expect(outKeys(world)).toHaveLength(70);
    await world.advance(150);
    expect(outKeys(world)).toHaveLength(69);
    s.puback(2);
    await world.advance(120);
    expect(outKeys(world)).toHaveLength(68);
  });

  test("an idle session writes nothing", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t");
    await world.publish("p", "t", "m");
    s.puback(1);
    await world.advance(5000);
    const before = world.store.writeCount;
    await world
      .client("other")
      .connect()
      .then((other) => other.subscribe("x"));
    await world.publish("p", "x", "not for s");
    await world.advance(100);
    const after = world.store.writeCount;
    await world.advance(60_000);
    expect(world.store.writeCount).toBe(after);
    expect(after - before).toBeLessThan(5);
  });

  test("a failed checkpoint is tried again and never ends the connection", async () => {
    const world = await World.start();
    const { storeError } = await import("../../support/fake-store.ts");
    const s = await world.client("s").connect();
    await s.subscribe("t", { qos: 2 });
    world.store.failWrites = storeError("STORE_RETRY", "retry");
    await world.publish("p", "t", "two", { qos: 2 });
    await world.advance(3000);
    expect(s.take()).toEqual(["suback 2"]);
    expect(world.sessions.counters.writesFailed).toBeGreaterThan(2);
    world.store.failWrites = undefined;
    await world.advance(5000);
    expect(s.take()).toEqual(["publish 1 q2 t two"]);
  });

  test("a session whose claim was lost ends its connection with 0x8E and writes nothing more", async () => {
    const world = await World.start();
    const s = await world.client("s").connect();
    await s.subscribe("t");
    const shard = world.store.state("s");
    const claim = (await world.clock.complete(shard.get("session/s/claim")))!;
    shard.write([{ key: claim.key, value: claim.value }], [], () => undefined);
    await world.publish("p", "t", "m");
    await world.advance(100);
    expect(s.take()).toEqual(["suback 1", "publish 1 q1 t m", "end 0x8e"]);
    expect(outKeys(world)).toEqual([]);
  });

  test("one fenced session does not hold up the others of its write", async () => {
    const world = await World.start({ store: { stateShards: 1 } });
    const a = await world.client("a").connect();
    const b = await world.client("b").connect();
    await a.subscribe("t", { qos: 2 });
    await b.subscribe("t", { qos: 2 });
    const shard = world.store.state("a");
    const claim = (await world.clock.complete(shard.get("session/a/claim")))!;
    shard.write([{ key: claim.key, value: claim.value }], [], () => undefined);
    await world.publish("p", "t", "m", { qos: 2 });
    await world.advance(100);
    expect(a.take()).toEqual(["suback 2", "end 0x8e"]);
    expect(b.take()).toEqual(["suback 2", "publish 1 q2 t m"]);
  });
});

function outKeys(world: World): string[] {
  return world.store.stateShards.flatMap((shard) =>
    shard.keys().filter((key) => key.includes("/out/")),
  );
}
