import { describe, expect, test } from "vitest";
import { BrokerWorld } from "../../support/broker-world.ts";
import { publishing, subscribing } from "../../support/raw-mqtt.ts";

const durable = { properties: { sessionExpiryS: 3600 } };

describe("SUBSCRIBE", () => {
  test("each filter has its code, in order", async () => {
    const access = {
      authorize: (action: string, _client: unknown, topic: string) =>
        action !== "subscribe" || topic !== "secret",
    };
    const world = await BrokerWorld.start({
      access,
      mqtt: { topicLevelsMax: 4 },
      sessions: { subscriptionsMax: 2 },
    });
    const c = await world.connect("c", durable);
    const filters = [
      "a",
      "a/b#",
      "$share/g/secret",
      "secret",
      "$internal/x",
      "$internal/#",
      "1/2/3/4/5",
      "b/+",
      "c",
    ];
    c.say(subscribing(filters, { qos: 2 }, 7));
    await world.advance(100);
    expect(c.take()).toEqual(["suback #7 0x02 0x8f 0x87 0x87 0x87 0x87 0x8f 0x02 0x97"]);
    expect(world.broker.counters).toMatchObject({ subscribes: 2, subscribesRefused: 7 });
  });

  test("refusals are 0x80 to a 3.1.1 client", async () => {
    const world = await BrokerWorld.start();
    const c = await world.connect("c", { level: 4, cleanStart: true });
    c.say(subscribing(["$internal/#", "ok", "$share/g/$internal/#"], { qos: 1 }, 7));
    await world.advance();
    expect(c.take()).toEqual(["suback #7 0x80 0x01 0x80"]);
  });

  test("R125: of a shared subscription the filter inside needs the right", async () => {
    const access = {
      authorize: (action: string, _client: unknown, topic: string) =>
        action !== "subscribe" || topic !== "secret",
    };
    const world = await BrokerWorld.start({ access });
    const c = await world.connect("c");
    c.say(subscribing(["$share/g/secret", "$share/secret/b"], { qos: 1 }, 7));
    await world.advance();
    expect(c.take()).toEqual(["suback #7 0x87 0x01"]);
  });

  test("denySubscribeCode lets an operator say less", async () => {
    const world = await BrokerWorld.start({ settings: { denySubscribeCode: 0x80 } });
    const c = await world.connect("c");
    c.subscribe("$internal/#");
    await world.advance();
    expect(c.take()).toEqual(["suback #1 0x80"]);
  });

  test("SUBACK does not wait behind acks", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s", durable);
    s.subscribe("t");
    const c = await world.connect("c");
    await world.advance();
    world.store.keepsAnswers = true;
    c.say(publishing("t", "x", { id: 1 }), subscribing(["u"], {}, 2), { type: "pingreq" });
    await world.advance();
    expect(c.take().sort()).toEqual(["pingresp", "suback #2 0x01"]);
  });

  test("a commit that takes longer than subscribeWait fails its filters for good", async () => {
    const world = await BrokerWorld.start({ store: { commitMs: 11_000 } });
    const c = await world.dial();
    c.connect("c", durable);
    await world.advance(12_000);
    expect(c.take()).toEqual(["connack 0x00"]);
    c.say(subscribing(["a", "$share/g/t", "b"], { qos: 1 }, 3));
    await world.advance(10_500);
    expect(c.take()).toEqual(["suback #3 0x83 0x83 0x83"]);
    await world.advance(30_000);
    expect(world.store.interest.wants("a")).toBe(false);
    expect(world.store.interest.wants("t")).toBe(false);
    expect(world.broker.counters.subscribesLate).toBe(1);
  });

  test("a SUBSCRIBE that came too late does not take back what was asked for again", async () => {
    const world = await BrokerWorld.start({ store: { commitMs: 6_000 } });
    const c = await world.dial();
    c.connect("c", durable);
    await world.advance(7_000);
    const busy = await world.dial();
    busy.connect("busy", durable);
    await world.advance(100);
    c.say(subscribing(["a"], {}, 3));
    await world.advance(10_500);
    c.say(subscribing(["a"], {}, 4));
    await world.advance(60_000);
    expect(c.take()).toEqual(["connack 0x00", "suback #3 0x83", "suback #4 0x01"]);
    expect(world.store.interest.wants("a")).toBe(true);
  });

  test("a client with too many SUBSCRIBEs under way is not read until some are done", async () => {
    const world = await BrokerWorld.start({
      settings: { subscribesMax: 2 },
      store: { commitMs: 1000 },
    });
    const c = await world.dial();
    c.connect("c", durable);
    await world.advance(2100);
    c.take();
    c.subscribe("a", {}, 1).subscribe("b", {}, 2);
    await world.advance(20);
    c.say({ type: "pingreq" });
    await world.advance(500);
    expect(c.take()).toEqual([]);
    await world.advance(2500);
    expect(c.take().sort()).toEqual(["pingresp", "suback #1 0x01", "suback #2 0x01"]);
    expect(world.broker.counters.readPauses).toBe(1);
  });

  test("UNSUBACK says per filter whether there was a subscription", async () => {
    const world = await BrokerWorld.start();
    for (const fields of [{}, durable]) {
      const c = await world.connect("c", { ...fields, cleanStart: true });
      c.subscribe("a");
      await world.advance(100);
      const filters = ["b", "a", "$share/g/a", "x#"];
      c.say({ type: "unsubscribe", packetId: 2, filters, properties: {} });
      await world.advance(100);
      c.publish("a", "x", { id: 1 });
      await world.advance(100);
      expect(c.take()).toEqual([
        "suback #1 0x01",
        "unsuback #2 0x11 0x00 0x11 0x11",
        "puback #1 0x10",
      ]);
      c.disconnect();
      await world.advance();
    }
  });

  test("every matching identifier comes in the one copy", async () => {
    const world = await BrokerWorld.start();
    for (const fields of [{}, durable]) {
      const c = await world.connect("c", { ...fields, cleanStart: true });
      c.say(subscribing(["a/#"], { qos: 0 }, 1, { subscriptionIdentifiers: [5] }));
      c.say(subscribing(["a/+"], { qos: 2 }, 2, { subscriptionIdentifiers: [300] }));
      await world.advance(100);
      c.take();
      c.publish("a/b", "x", { qos: 1, id: 1 });
      await world.advance(100);
      expect(c.take()).toEqual(["puback #1", "publish a/b x q1 #1"]);
      const packet = c.packets.at(-1)!;
      const { subscriptionIdentifiers = [] } = "properties" in packet ? packet.properties : {};
      expect([...subscriptionIdentifiers].sort((a, b) => a - b)).toEqual([5, 300]);
      c.disconnect();
      await world.advance();
    }
  });

  test("R117: No Local, and Retain As Published", async () => {
    const world = await BrokerWorld.start();
    for (const [rap, fields] of [
      ["rap1", {}],
      ["rap2", durable],
    ] as const) {
      const c = await world.connect("c", { ...fields, cleanStart: true });
      c.subscribe("own", { noLocal: true }, 1).subscribe(rap, { retainAsPublished: true }, 2);
      await world.advance(100);
      c.take();
      c.publish("own", "x", { id: 1 }).publish(rap, "y", { id: 2, retain: true });
      await world.advance(100);
      const lines = c.take();
      expect(lines.filter((line) => line.startsWith("publish"))).toEqual([
        `publish ${rap} y q1 #1 retain`,
      ]);
      c.disconnect();
      await world.advance();
    }
  });
});

describe("rights", () => {
  test("clients can neither publish to the broker's own topics nor read them", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s");
    s.subscribe("#");
    const five = await world.connect("five");
    const four = await world.connect("four", { level: 4, cleanStart: true });
    await world.advance();
    for (const client of [five, four]) {
      client.say(
        publishing("$SYS/x", "a", { qos: 1, id: 1, retain: true }),
        publishing("$flagstone", "b", { qos: 2, id: 2 }),
        publishing("$sparkplug/x", "c", { qos: 0 }),
      );
    }
    await world.advance(100);
    expect(five.take()).toEqual(["puback #1 0x87", "pubrec #2 0x87"]);
    // 3.1.1 has no word for it: acked, dropped and logged.
    expect(four.take()).toEqual(["puback #1", "pubrec #2"]);
    expect(s.take()).toEqual(["suback #1 0x01"]);
    expect(world.broker.counters.publishesDenied).toBe(4);
    expect(world.events("broker.publish_denied")[0]).toMatchObject({ topic: "$SYS/x" });
  });

  test("$sparkplug and other open prefixes work", async () => {
    const world = await BrokerWorld.start();
    const c = await world.connect("c");
    c.subscribe("$sparkplug/#");
    await world.advance();
    c.publish("$sparkplug/certificates/a", "x", { qos: 0 });
    await world.advance();
    expect(c.take()).toEqual(["suback #1 0x01", "publish $sparkplug/certificates/a x q0"]);
  });

  test("a right that was taken away ends with the next delivery, from the backlog too", async () => {
    let allowed = true;
    const access = { authorize: (action: string) => action !== "receive" || allowed };
    const world = await BrokerWorld.start({ access });
    const s = await world.connect("s", durable);
    const live = await world.connect("live");
    s.subscribe("t");
    live.subscribe("t");
    await world.advance();
    s.drop();
    await world.advance();
    const p = await world.connect("p");
    p.publish("t", "1", { id: 1 });
    await world.advance();
    allowed = false;
    p.publish("t", "2", { id: 2 });
    const again = await world.connect("s", durable);
    await world.advance(100);
    allowed = true;
    p.publish("t", "3", { id: 3 });
    await world.advance(100);
    expect(live.take()).toEqual([
      "suback #1 0x01",
      "publish t 1 q1 #1",
      expect.stringMatching(/^publish t 3 q1 #\d$/),
    ]);
    expect(again.take()).toEqual([
      "connack 0x00 present",
      expect.stringMatching(/^publish t 3 q1 #\d$/),
    ]);
  });
});
