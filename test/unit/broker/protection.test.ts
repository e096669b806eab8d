import { describe, expect, test } from "vitest";
import { flappingSettingsDefault } from "../../../src/broker/limits/flapping.ts";
import { BrokerWorld } from "../../support/broker-world.ts";
import { publishing, type RawMqtt } from "../../support/raw-mqtt.ts";

const durable = { properties: { sessionExpiryS: 3600 } };

describe("rates", () => {
  test("a client that is too fast is not read for a while, loses nothing and is not timed out", async () => {
    const world = await BrokerWorld.start({ limits: { messagesPerS: 10 } });
    const p = await world.connect("p", { keepAliveS: 2 });
    const other = await world.connect("other");
    for (let id = 1; id <= 60; id++) p.publish("t", `${id}`, { id });
    await world.advance(900);
    const early = p.take().length;
    expect(early).toBeLessThanOrEqual(60);
    p.publish("t", "late", { id: 61 });
    other.publish("t", "x", { id: 1 });
    await world.advance(100);
    expect(other.take()).toEqual(["puback #1 0x10"]);
    expect(p.take().length).toBe(0);
    await world.advance(6000);
    expect(early + p.lines.length).toBe(61);
    expect(p.isClosed).toBe(false);
    expect(world.broker.counters.ratePauses).toBeGreaterThan(0);
  });

  test.each([
    [{ bytesPerSPerAddress: 10_000 }, ["one", "one"], true],
    [{ bytesPerSPerAddress: 10_000 }, ["one", "two"], false],
    [{ bytesPerS: 10_000 }, ["one", "two"], true],
    [{ messagesPerSPerAddress: 10 }, ["one", "one"], true],
    [{ messagesPerSPerAddress: 10 }, ["one", "two"], false],
    [{ messagesPerS: 10 }, ["one", "two"], true],
  ] as const)(
    "bytes and messages count by address, and in total: %j from %j",
    async (settings, hosts, isSlow) => {
      const world = await BrokerWorld.start({ settings });
      const clients: RawMqtt[] = [];
      for (const host of hosts) {
        const client = await world.dial(host);
        client.connect(`client ${clients.length}`);
        await world.advance();
        client.take();
        clients.push(client);
      }
      // Each alone would be done in half a second: a burst of a second is free.
      const acked = Array.from({ length: 15 }, (_, n) => `puback #${n + 1} 0x10`);
      for (const [n] of acked.entries()) {
        for (const client of clients) client.publish("t", "x".repeat(1000), { id: n + 1 });
        await world.advance(1);
      }
      await world.advance(1000);
      expect(clients.every(({ lines }) => lines.length === acked.length)).toBe(!isSlow);
      await world.advance(3000);
      expect(clients.map((client) => client.take())).toEqual([acked, acked]);
    },
  );

  test("new connections beyond their rate are closed, per address, listener and in total", async () => {
    for (const options of [
      { settings: { connectsPerS: 2 } },
      { settings: { connectsPerSPerAddress: 2 } },
      { limits: { connectsPerS: 2 } },
    ]) {
      const world = await BrokerWorld.start(options);
      const clients = [await world.dial(), await world.dial(), await world.dial()];
      await world.advance();
      expect(clients.map(({ isClosed }) => isClosed)).toEqual([false, false, true]);
      expect(world.broker.counters.connectionsTooFast).toBe(1);
      await world.advance(1000);
      const later = await world.dial();
      await world.advance();
      expect(later.isClosed).toBe(false);
    }
  });

  test("connections of a listener and of an address are bounded, and free their places", async () => {
    for (const options of [
      { settings: { connectionsPerAddressMax: 2 } },
      { limits: { connectionsMax: 2 } },
    ]) {
      const world = await BrokerWorld.start(options);
      const a = await world.connect("a");
      await world.connect("b");
      const c = await world.dial();
      await world.advance();
      expect(c.isClosed).toBe(true);
      a.disconnect();
      await world.advance(100);
      const d = await world.dial();
      await world.advance();
      expect(d.isClosed).toBe(false);
    }
  });
});

describe("R43: two clients that fight over an id", () => {
  test("are told once a minute with the id, and slowed down; others are not concerned", async () => {
    const flapping = { ...flappingSettingsDefault, unhurriedMax: 8 };
    const world = await BrokerWorld.start({ settings: { flapping } });
    let connected = 0;
    const rounds = 30;
    for (let round = 0; round < rounds; round++) {
      const c = await world.dial();
      c.connect("twin", durable);
      await world.advance(100);
      if (c.lines[0]?.startsWith("connack 0x00")) connected++;
    }
    const lines = world.events("broker.client_flapping");
    expect(lines).toMatchObject([{ clientId: "twin", takeovers: 5 }]);
    expect(world.broker.counters.clientsFlapping).toBe(1);
    expect(connected).toBeLessThan(rounds / 2);
    const other = await world.dial();
    other.connect("other");
    await world.advance(60);
    expect(other.take()).toEqual(["connack 0x00"]);
  });
});

describe("overload", () => {
  test("sheds new connections first, then QoS 0; what is acked goes on", async () => {
    let memory = 0;
    const world = await BrokerWorld.start({
      settings: { overload: { lagMsMax: 1000, memoryBytesMax: 1000 } },
      memoryBytes: () => memory,
    });
    const s = await world.connect("s");
    s.subscribe("t", { qos: 1 });
    const p = await world.connect("p");
    await world.advance();
    memory = 1050;
    await world.advance(600);
    const shed = await world.dial();
    p.say(publishing("t", "0", { qos: 0 }), publishing("t", "1", { id: 1 }));
    await world.advance(100);
    expect(shed.isClosed).toBe(true);
    expect(s.take().slice(1)).toEqual(["publish t 0 q0", "publish t 1 q1 #1"]);
    memory = 1200;
    await world.advance(600);
    p.say(publishing("t", "0", { qos: 0 }), publishing("t", "2", { id: 2 }));
    await world.advance(100);
    expect(s.take()).toEqual(["publish t 2 q1 #2"]);
    expect(world.broker.counters).toMatchObject({ connectionsShed: 1, qos0Shed: 1 });
    memory = 0;
    await world.advance(2000);
    const back = await world.dial();
    await world.advance();
    expect(back.isClosed).toBe(false);
  });
});

describe("overload of the event loop", () => {
  test("late timers shed new connections; twice as late, QoS 0 goes; on time again, nothing does", async () => {
    let lagMs = 0;
    const world = await BrokerWorld.start({
      settings: { overload: { lagMsMax: 1000, memoryBytesMax: Infinity } },
      lagMs: () => lagMs,
    });
    const [s, p] = [await world.connect("s"), await world.connect("p")];
    s.subscribe("t", { qos: 1 });
    await world.advance(100);
    s.take();
    const isShed = async (): Promise<boolean> => {
      const client = await world.dial();
      await world.advance();
      return client.isClosed;
    };
    const say = async (id: number): Promise<string[]> => {
      p.say(publishing("t", "zero", { qos: 0 }), publishing("t", "one", { id }));
      await world.advance(100);
      return s.take().map((line) => line.split(" ")[2] ?? "");
    };
    lagMs = 1500;
    // One late look is a long step; the second says that it stays.
    await world.advance(2000);
    expect(await isShed()).toBe(false);
    await world.advance(2000);
    expect(await isShed()).toBe(true);
    expect(await say(1)).toEqual(["zero", "one"]);
    lagMs = 2500;
    await world.advance(8000);
    expect(await isShed()).toBe(true);
    expect(await say(2)).toEqual(["one"]);
    expect(world.events("broker.overload").map(({ level }) => level)).toEqual([1, 2]);
    expect(world.broker.counters).toMatchObject({ connectionsShed: 2, qos0Shed: 1 });
    lagMs = 0;
    await world.advance(8000);
    expect(await isShed()).toBe(false);
    expect(await say(3)).toEqual(["zero", "one"]);
  });
});

describe("R132: small devices", () => {
  const devices = [{ clientIds: ["esp-*"], packetBytesMax: 100, messagesPerS: 10 }];

  test("get nothing above their size, and retained messages at their pace, all of them", async () => {
    const world = await BrokerWorld.start({ settings: { devices } });
    const p = await world.connect("p");
    for (let n = 0; n < 40; n++) p.publish(`r/${n}`, "x", { id: n + 1, retain: true });
    p.publish("r/large", "x".repeat(200), { id: 50, retain: true });
    await world.advance(300);
    const big = await world.connect("big", { level: 4, cleanStart: true });
    const esp = await world.connect("esp-1", { level: 4, cleanStart: true });
    for (const client of [big, esp]) client.subscribe("r/#", { qos: 0 });
    await world.advance(200);
    expect(big.take().length).toBe(1 + 41);
    expect(esp.lines.length).toBeLessThan(20);
    await world.advance(4000);
    const got = esp.take().slice(1);
    expect(got.length).toBe(40);
    expect(got.some((line) => line.includes("large"))).toBe(false);
    expect(world.broker.counters.deliveriesTooLargeForDevice).toBe(1);
  });

  test("get QoS 1 messages at their pace, in order", async () => {
    const world = await BrokerWorld.start({ settings: { devices } });
    const esp = await world.connect("esp-1", durable);
    esp.autoAck = true;
    esp.subscribe("t");
    const p = await world.connect("p");
    await world.advance(100);
    for (let id = 1; id <= 30; id++) p.publish("t", `${id}`, { id });
    await world.advance(500);
    expect(esp.lines.filter((line) => line.startsWith("publish")).length).toBeLessThan(20);
    await world.advance(4000);
    const numbers = esp.lines.flatMap((line) => /^publish t (\d+)/.exec(line)?.[1] ?? []);
    expect(numbers).toEqual(Array.from({ length: 30 }, (_, at) => `${at + 1}`));
  });
});

describe("the broker's own topics", () => {
  test("come at SUBSCRIBE like retained messages, then every ten seconds, at QoS 0", async () => {
    const world = await BrokerWorld.start();
    const c = await world.connect("c");
    c.subscribe("$SYS/broker/clients/connected", { qos: 2 });
    await world.advance();
    expect(c.take()).toEqual([
      "suback #1 0x02",
      "publish $SYS/broker/clients/connected 1 q0 retain",
    ]);
    await world.connect("d");
    await world.advance(10_000);
    expect(c.take()).toEqual(["publish $SYS/broker/clients/connected 2 q0"]);
  });

  test("retain handling holds for them, and # does not match them", async () => {
    const world = await BrokerWorld.start();
    const c = await world.connect("c", durable);
    const topic = "$SYS/broker/uptime";
    c.subscribe(topic, { retainHandling: 2 }, 1).subscribe("#", {}, 2);
    await world.advance(100);
    expect(c.take()).toEqual(["suback #1 0x01", "suback #2 0x01"]);
    c.subscribe(topic, { retainHandling: 1 }, 3);
    await world.advance(100);
    expect(c.take()).toEqual(["suback #3 0x01"]);
    c.subscribe(topic, { retainHandling: 0 }, 4);
    await world.advance(100);
    expect(c.take()).toEqual(["suback #4 0x01", `publish ${topic} 0 seconds q0 retain`]);
  });

  test("$SYS/# and $flagstone/# give every figure; nothing of it is stored", async () => {
    const world = await BrokerWorld.start();
    const c = await world.connect("c", durable);
    c.subscribe("$SYS/#", {}, 1).subscribe("$flagstone/#", {}, 2);
    await world.advance(100);
    const topics = c.take().flatMap((line) => /^publish (\S+)/.exec(line)?.[1] ?? []);
    expect(topics).toContain("$SYS/broker/version");
    expect(topics).toContain("$SYS/broker/messages/received");
    expect(topics).toContain("$flagstone/counters/broker/publishesQos1");
    c.drop();
    await world.advance(60_000);
    const again = await world.connect("c", durable);
    expect(again.take()).toEqual(["connack 0x00 present"]);
    await world.advance(10_000);
    expect(again.lines.some((line) => line.includes("load/sockets/15min"))).toBe(true);
    expect(world.broker.counters.publishesStored).toBe(0);
  });
});
