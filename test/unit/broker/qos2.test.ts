import { describe, expect, test } from "vitest";
import { BrokerWorld } from "../../support/broker-world.ts";
import { type ConnectFields, publishing } from "../../support/raw-mqtt.ts";

const durable = { properties: { sessionExpiryS: 3600 } };

async function withSubscribers() {
  const world = await BrokerWorld.start();
  const live = await world.connect("live");
  live.subscribe("t", { qos: 2 });
  const stored = await world.connect("stored", durable);
  stored.subscribe("t", { qos: 2 });
  await world.advance(100);
  live.take();
  stored.take();
  return { world, live, stored };
}

describe("QoS 2 from clients", () => {
  test.each([
    ["in memory", { cleanStart: true }],
    ["durable", durable],
  ] as Array<[string, ConnectFields]>)(
    "a repeat before PUBREL is acked and goes nowhere: %s",
    async (_name, fields) => {
      const { world, live, stored } = await withSubscribers();
      const p = await world.connect("p", fields);
      p.publish("t", "x", { qos: 2, id: 7 });
      await world.advance(100);
      p.publish("t", "x", { qos: 2, id: 7, dup: true }).publish("t", "y", { qos: 2, id: 7 });
      await world.advance(100);
      expect(p.take()).toEqual(["pubrec #7", "pubrec #7", "pubrec #7"]);
      expect(live.take()).toEqual(["publish t x q2 #1"]);
      expect(stored.take()).toEqual(["publish t x q2 #1"]);
      p.ack("pubrel", 7).publish("t", "z", { qos: 2, id: 7 });
      await world.advance(100);
      expect(p.take()).toEqual(["pubcomp #7", "pubrec #7"]);
      expect(live.take()).toEqual(["publish t z q2 #2"]);
    },
  );

  test("a repeat behind one that is still under way waits for its commit", async () => {
    const { world } = await withSubscribers();
    const p = await world.connect("p", { cleanStart: true });
    world.store.keepsAnswers = true;
    p.say(publishing("t", "x", { qos: 2, id: 7 }), publishing("t", "x", { qos: 2, id: 7 }));
    await world.advance();
    expect(p.take()).toEqual([]);
    world.store.kept[0]!.commit();
    await world.advance();
    expect(p.take()).toEqual(["pubrec #7", "pubrec #7"]);
    expect(world.store.appended.length).toBe(1);
  });

  test("R17: PUBREL for an unknown id is answered, and the connection stays", async () => {
    const { world } = await withSubscribers();
    for (const [level, answer] of [
      [5, "pubcomp #5 0x92"],
      [4, "pubcomp #5"],
    ] as const) {
      const id = `p${level}`;
      const p = await world.connect(id, { level, ...durable });
      p.publish("t", "x", { qos: 2, id: 5 });
      await world.advance(100);
      p.ack("pubrel", 5);
      await world.advance(100);
      expect(p.take()).toEqual(["pubrec #5", "pubcomp #5"]);
      p.drop();
      await world.advance();
      const again = await world.connect(id, { level, ...durable });
      again.ack("pubrel", 5);
      await world.advance(10_000);
      expect(again.take()).toEqual(["connack 0x00 present", answer]);
      expect(again.isClosed).toBe(false);
    }
  });

  test("R19: one PUBREC per PUBLISH on a new connection, one message", async () => {
    const { world, live, stored } = await withSubscribers();
    const p = await world.connect("p", durable);
    p.publish("t", "x", { qos: 2, id: 7 });
    await world.advance(100);
    p.drop();
    await world.advance();
    const again = await world.connect("p", durable);
    again.publish("t", "x", { qos: 2, id: 7, dup: true });
    await world.advance(100);
    again.ack("pubrel", 7);
    await world.advance(100);
    expect(again.take()).toEqual(["connack 0x00 present", "pubrec #7", "pubcomp #7"]);
    expect(live.take()).toEqual(["publish t x q2 #1"]);
    expect(stored.take()).toEqual(["publish t x q2 #1"]);
  });

  test.each(["drop", "crash"])(
    "R20: a message taken on one connection and released on another keeps QoS and RETAIN: %s",
    async (kind) => {
      const { world, live } = await withSubscribers();
      const p = await world.connect("p", durable);
      p.publish("t", "x", { qos: 2, id: 9, retain: true });
      await world.advance(200);
      expect([p.take(), live.take()]).toEqual([["pubrec #9"], ["publish t x q2 #1"]]);
      if (kind === "drop") p.drop();
      else await world.crash();
      await world.advance();
      const again = await world.connect("p", durable);
      again.ack("pubrel", 9);
      await world.advance(100);
      expect(again.take()).toEqual(["connack 0x00 present", "pubcomp #9"]);
      const late = await world.connect("late");
      late.subscribe("t", { qos: 2 });
      await world.advance(100);
      expect(late.take()).toEqual(["suback #1 0x02", "publish t x q2 #1 retain"]);
    },
  );

  test("a repeat after a newer retained message does not bring the old one back", async () => {
    const { world } = await withSubscribers();
    const p = await world.connect("p", durable);
    p.publish("t", "old", { qos: 2, id: 9, retain: true });
    await world.advance(200);
    p.drop();
    const other = await world.connect("other");
    other.publish("t", "new", { retain: true });
    await world.advance(100);
    const again = await world.connect("p", durable);
    again.publish("t", "old", { qos: 2, id: 9, retain: true, dup: true });
    await world.advance(200);
    expect(again.take()).toEqual(["connack 0x00 present", "pubrec #9"]);
    const late = await world.connect("late");
    late.subscribe("t");
    await world.advance(100);
    expect(late.take()).toEqual(["suback #1 0x01", "publish t new q1 #1 retain"]);
  });

  test("the evidence of a durable publisher is written even when nobody wants the message", async () => {
    const world = await BrokerWorld.start();
    const p = await world.connect("p", durable);
    p.publish("nobody", "x", { qos: 2, id: 3 });
    await world.advance(200);
    expect(p.take()).toEqual(["pubrec #3 0x10"]);
    expect(world.store.appended).toMatchObject([{ keep: false, evidence: { packetId: 3 } }]);
    await world.crash();
    const again = await world.connect("p", durable);
    again.publish("nobody", "x", { qos: 2, id: 3, dup: true }).ack("pubrel", 3);
    await world.advance(200);
    expect(again.take()).toEqual(["connack 0x00 present", "pubrec #3", "pubcomp #3"]);
  });

  test("PUBCOMP waits until the release is durable, and behind what came before", async () => {
    const { world } = await withSubscribers();
    const p = await world.connect("p", durable);
    p.publish("t", "x", { qos: 2, id: 1 });
    await world.advance(200);
    p.take();
    world.store.keepsAnswers = true;
    p.say(publishing("t", "y", { qos: 1, id: 2 }), {
      ...{ type: "pubrel", packetId: 1, reasonCode: 0, properties: {} },
    });
    await world.advance(200);
    expect(p.take()).toEqual([]);
    world.store.kept[0]!.commit();
    await world.advance();
    expect(p.take()).toEqual(["puback #2", "pubcomp #1"]);
  });

  test("R53: QoS 0 and QoS 2 in turn keep their order and lose nothing", async () => {
    const { world, live } = await withSubscribers();
    live.autoAck = true;
    live.subscribe("u", { qos: 0 }, 2);
    const p = await world.connect("p", durable);
    await world.advance();
    live.take();
    p.autoAck = true;
    const wanted: string[] = [];
    for (let id = 1; id <= 200; id++) {
      p.publish("t", `two-${id}`, { qos: 2, id }).publish("u", `zero-${id}`, { qos: 0 });
      wanted.push(`two-${id}`, `zero-${id}`);
    }
    await world.advance(2000);
    const got = live.take().filter((line) => line.startsWith("publish"));
    expect(got.map((line) => line.split(" ")[2])).toEqual(wanted);
  });
});

describe("Receive Maximum", () => {
  test("R77: a client that exceeds it gets 0x93", async () => {
    const world = await BrokerWorld.start({ mqtt: { receiveMaximum: 1 } });
    const p = await world.connect("p", durable);
    p.publish("t", "a", { qos: 2, id: 1 });
    await world.advance(100);
    p.publish("t", "b", { qos: 2, id: 2 });
    await world.advance();
    expect(p.take()).toEqual(["pubrec #1 0x10", "disconnect 0x93"]);
    expect(p.isClosed).toBe(true);
  });

  test("a 3.1.1 client with many publishes under way is not read, and not closed", async () => {
    const { world } = await withSubscribers();
    const p = await world.connect("p", { level: 4, cleanStart: true });
    world.store.keepsAnswers = true;
    const packets = Array.from({ length: 5000 }, (_, index) =>
      publishing("t", "x".repeat(100), { id: index + 1 }),
    );
    p.say(...packets);
    await world.advance(500);
    const underWay = world.store.kept.length;
    expect(underWay).toBeGreaterThanOrEqual(2000);
    expect(underWay).toBeLessThan(3000);
    world.store.keepsAnswers = false;
    for (const kept of world.store.kept) kept.commit();
    await world.advance(2000);
    expect([p.take().length, p.isClosed]).toEqual([5000, false]);
    expect(world.broker.counters.readPauses).toBeGreaterThan(0);
  });

  test("bytes under way are bounded too; one message always goes", async () => {
    const world = await BrokerWorld.start({ settings: { publishBytesMax: 10_000 } });
    const s = await world.connect("s", durable);
    s.subscribe("t");
    const p = await world.connect("p");
    await world.advance();
    world.store.keepsAnswers = true;
    for (let id = 1; id <= 20; id++) p.publish("t", "x".repeat(60_000), { id });
    await world.advance(500);
    const first = world.store.kept.length;
    expect(first).toBeGreaterThan(0);
    expect(first).toBeLessThan(5);
    for (let round = 0; round < 20; round++) {
      for (const kept of world.store.kept.splice(0)) kept.commit();
      await world.advance(200);
    }
    expect(p.take().length).toBe(20);
  });
});
