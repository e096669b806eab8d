import { describe, expect, test } from "vitest";
import { BrokerWorld } from "../../support/broker-world.ts";
import { publishing } from "../../support/raw-mqtt.ts";

const durable = { properties: { sessionExpiryS: 36_000 } };

describe("delivery to clients", () => {
  test("R23: ids in use are skipped, and a full window pauses", async () => {
    for (const receiveMaximum of [1, 20, 65_535]) {
      const world = await BrokerWorld.start({ sessions: { inflightMax: 20 } });
      const s = await world.connect("s", {
        properties: { sessionExpiryS: 3600, receiveMaximum },
      });
      s.subscribe("t");
      const p = await world.connect("p");
      await world.advance(100);
      s.take();
      const ids = Array.from({ length: 40 }, (_, index) => index + 1);
      p.say(...ids.map((id) => publishing("t", `${id}`, { id })));
      await world.advance(300);
      expect(s.take().length).toBe(Math.min(receiveMaximum, 20));
      // The first stays unacked, all others are acked: the window moves past it.
      let acked = receiveMaximum === 1 ? 0 : 1;
      for (let round = 0; round < 60; round++) {
        const sent = s.packets.filter((packet) => packet.type === "publish");
        for (; acked < sent.length; acked++) {
          const packet = sent[acked]!;
          if (packet.type === "publish") s.ack("puback", packet.packetId);
        }
        await world.advance(60);
      }
      const packetIds = s.packets.flatMap((packet) =>
        packet.type === "publish" ? [packet.packetId] : [],
      );
      expect(packetIds.length).toBe(40);
      if (receiveMaximum > 1) expect(packetIds.lastIndexOf(packetIds[0]!)).toBe(0);
      expect(s.isClosed).toBe(false);
    }
  });

  test("R26: what was not acked comes again with DUP and its id on the next connection", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", durable);
    s.subscribe("t", { qos: 2 });
    const p = await world.connect("p");
    await world.advance();
    p.publish("t", "one", { qos: 1, id: 1 }).publish("t", "two", { qos: 2, id: 2 });
    await world.advance(300);
    expect(s.take()).toEqual(["suback #1 0x02", "publish t one q1 #1", "publish t two q2 #2"]);
    s.drop();
    await world.advance(100);
    const again = await world.connect("s", durable);
    await world.advance(300);
    expect(again.take()).toEqual([
      "connack 0x00 present",
      "publish t one q1 #1 dup",
      "publish t two q2 #2 dup",
    ]);
  });

  test("R27: an owed PUBREL is the first packet after CONNACK", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", durable);
    s.subscribe("t", { qos: 2 });
    const p = await world.connect("p");
    await world.advance();
    p.publish("t", "x", { qos: 2, id: 1 });
    await world.advance(300);
    s.ack("pubrec", 1);
    await world.advance(300);
    expect(s.take().slice(1)).toEqual(["publish t x q2 #1", "pubrel #1"]);
    s.drop();
    await world.advance();
    const again = await world.connect("s", durable);
    await world.advance(300);
    expect(again.take()).toEqual(["connack 0x00 present", "pubrel #1"]);
  });

  test.each([4, 5] as const)(
    "R28: nothing is sent again while connected, level %i",
    async (level) => {
      const world = await BrokerWorld.start();
      const s = await world.connect("s", { level, ...durable });
      s.subscribe("t", { qos: 1 });
      const p = await world.connect("p");
      await world.advance();
      p.publish("t", "x");
      await world.advance(300);
      expect(s.take().at(-1)).toBe("publish t x q1 #1");
      await world.advance(120_000);
      expect(s.take()).toEqual([]);
    },
  );

  test("R81: one missing PUBACK blocks one slot, and QoS 0 not at all", async () => {
    for (const fields of [{}, durable]) {
      const world = await BrokerWorld.start({ sessions: { inflightMax: 20 } });
      const s = await world.connect("s", fields);
      s.subscribe("#", { qos: 1 });
      const p = await world.connect("p");
      await world.advance(100);
      let acked = 1;
      for (let batch = 0; batch < 10; batch++) {
        const ids = Array.from({ length: 10 }, (_, index) => batch * 10 + index + 1);
        p.say(...ids.map((id) => publishing("t", `${id}`, { id })));
        p.publish("zero", `z${batch}`, { qos: 0 });
        for (let round = 0; round < 6; round++) {
          await world.advance(60);
          const sent = s.packets.filter((packet) => packet.type === "publish" && packet.qos === 1);
          for (; acked < sent.length; acked++) {
            const packet = sent[acked]!;
            if (packet.type === "publish") s.ack("puback", packet.packetId);
          }
        }
      }
      const lines = s.take().filter((line) => line.startsWith("publish"));
      expect(lines.filter((line) => line.startsWith("publish t")).length).toBe(100);
      if (fields === durable) continue;
      expect(lines.filter((line) => line.startsWith("publish zero")).length).toBe(10);
    }
  });

  test("R30: a message above the client's Maximum Packet Size counts as delivered", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", {
      properties: { sessionExpiryS: 3600, maximumPacketSize: 200 },
    });
    s.subscribe("t", { qos: 2 });
    const p = await world.connect("p");
    await world.advance();
    p.say(
      publishing("t", "a", { id: 1 }),
      publishing("t", "x".repeat(5000), { id: 2 }),
      publishing("t", "b", { qos: 2, id: 3 }),
    );
    await world.advance(300);
    const lines = s.take().slice(1);
    expect(lines.map((line) => line.split(" ").slice(0, 4).join(" "))).toEqual([
      "publish t a q1",
      "publish t b q2",
    ]);
    expect(world.broker.counters.deliveriesTooLarge).toBe(1);
  });

  test("topic aliases are used from the first PUBLISH when the client allows them", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", { properties: { topicAliasMaximum: 1 } });
    s.subscribe("#", { qos: 0 });
    const p = await world.connect("p");
    await world.advance();
    for (const topic of ["a", "b", "a"]) p.publish(topic, "x", { qos: 0 });
    await world.advance();
    const sent = s.packets.flatMap((packet) =>
      packet.type === "publish" ? [[packet.topic, packet.properties.topicAlias]] : [],
    );
    expect(sent).toEqual([
      ["a", 1],
      ["b", undefined],
      ["", 1],
    ]);
  });

  test("a topic that came by alias is stored and sent in full", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", durable);
    s.subscribe("a/#");
    const p = await world.connect("p");
    await world.advance();
    p.publish("a/b", "1", { id: 1, properties: { topicAlias: 3 } });
    p.publish("", "2", { id: 2, properties: { topicAlias: 3 } });
    await world.advance(300);
    expect(s.take().slice(1)).toEqual(["publish a/b 1 q1 #1", "publish a/b 2 q1 #2"]);
    const q = await world.connect("q");
    q.publish("", "3", { id: 1, properties: { topicAlias: 3 } });
    await world.advance();
    expect(q.take()).toEqual(["disconnect 0x82"]);
  });
});

describe("slow readers", () => {
  test("QoS 0 beyond the outbound buffer is dropped and counted; the reader stays", async () => {
    const world = await BrokerWorld.start({ settings: { outboundBufferBytesMax: 100_000 } });
    const slow = await world.connect("slow");
    slow.subscribe("#", { qos: 0 });
    const quick = await world.connect("quick");
    quick.subscribe("#", { qos: 0 });
    const p = await world.connect("p");
    await world.advance();
    slow.take();
    quick.take();
    slow.transport.pause();
    for (let batch = 0; batch < 40; batch++) {
      p.publish("t", "x".repeat(20_000), { qos: 0 });
      await world.advance(60);
    }
    expect(quick.take().length).toBe(40);
    const dropped = world.broker.counters.deliveriesFull;
    expect(dropped).toBeGreaterThan(20);
    slow.transport.resume();
    await world.advance(1000);
    expect([slow.take().length, slow.isClosed]).toEqual([40 - dropped, false]);
    p.publish("t", "again", { qos: 0 });
    await world.advance();
    expect(slow.take()).toEqual(["publish t again q0"]);
  });

  test.each([
    ["in memory", {}],
    ["durable", durable],
  ])("QoS 1 waits and comes in order when there is room: %s", async (_name, fields) => {
    const world = await BrokerWorld.start({ settings: { outboundBufferBytesMax: 100_000 } });
    const slow = await world.connect("slow", fields);
    slow.subscribe("#", { qos: 1 });
    const p = await world.connect("p");
    await world.advance();
    slow.take();
    slow.autoAck = true;
    slow.transport.pause();
    for (let id = 1; id <= 40; id++) {
      p.publish("t", `${id} ${"x".repeat(20_000)}`, { qos: 1, id });
      await world.advance(60);
    }
    expect(p.take().length).toBe(40);
    slow.transport.resume();
    await world.advance(3000);
    const numbers = slow.packets.flatMap((packet) =>
      packet.type === "publish" ? [Number.parseInt(packet.payload.toString(), 10)] : [],
    );
    expect(numbers).toEqual(Array.from({ length: 40 }, (_, index) => index + 1));
  });

  test("a client that asks and never reads is not read any further", async () => {
    const world = await BrokerWorld.start({ settings: { outboundBufferBytesMax: 1000 } });
    const c = await world.connect("c");
    c.transport.pause();
    const pings = Buffer.concat(Array.from({ length: 20_000 }, () => Buffer.from([0xc0, 0])));
    for (let round = 0; round < 6; round++) {
      c.bytes(Buffer.from(pings));
      await world.advance(100);
    }
    expect(world.broker.counters.bytesReceived).toBeLessThan(150_000);
    c.transport.resume();
    await world.advance(5000);
    expect(c.lines.length).toBe(120_000);
    expect(c.isClosed).toBe(false);
  });

  test("what is said to a client in one turn leaves in one write", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", durable);
    s.subscribe("t");
    const p = await world.connect("p");
    await world.advance();
    const reads: number[] = [];
    world.store.keepsAnswers = true;
    p.say(...Array.from({ length: 100 }, (_, index) => publishing("t", "x", { id: index + 1 })));
    await world.advance();
    const before = world.broker.counters.bytesSent;
    const { write } = Object.getPrototypeOf(p.transport);
    Object.getPrototypeOf(p.transport).write = function (bytes: Uint8Array) {
      reads.push(bytes.length);
      write.call(this, bytes);
    };
    for (const kept of world.store.kept) kept.commit();
    await world.advance();
    Object.getPrototypeOf(p.transport).write = write;
    expect(reads).toEqual([400]);
    expect(world.broker.counters.bytesSent - before).toBe(400);
  });
});
