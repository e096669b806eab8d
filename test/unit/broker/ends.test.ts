import { describe, expect, test } from "vitest";
import { BrokerWorld } from "../../support/broker-world.ts";
import { type ConnectFields, publishing } from "../../support/raw-mqtt.ts";
import type { MachineLives } from "../../support/store-lives.ts";

const durable = { properties: { sessionExpiryS: 3600 } };
const will = { topic: "will", payload: Buffer.from("gone"), qos: 1, retain: false, properties: {} };

async function withWatcher(options = {}) {
  const world = await BrokerWorld.start(options);
  const watcher = await world.connect("watcher");
  watcher.subscribe("#", { qos: 1 });
  await world.advance();
  watcher.take();
  return { world, watcher };
}

function withWill(fields: ConnectFields = {}): ConnectFields {
  return { ...fields, will: { ...will, qos: 1 } };
}

describe("how a connection ends decides about its will", () => {
  test.each([{}, durable])("DISCONNECT 0x00 deletes it: %j", async (fields) => {
    const { world, watcher } = await withWatcher();
    const c = await world.connect("c", withWill(fields));
    c.disconnect();
    await world.advance(100);
    expect([c.isClosed, watcher.take()]).toEqual([true, []]);
  });

  test.each([{}, durable])("DISCONNECT 0x04 publishes it: %j", async (fields) => {
    const { world, watcher } = await withWatcher();
    const c = await world.connect("c", withWill(fields));
    c.disconnect(0x04);
    await world.advance(100);
    expect(watcher.take()).toEqual(["publish will gone q1 #1"]);
  });

  test.each([{}, durable])("a broken link publishes it: %j", async (fields) => {
    const { world, watcher } = await withWatcher();
    const c = await world.connect("c", withWill(fields));
    c.drop();
    await world.advance(100);
    expect(watcher.take()).toEqual(["publish will gone q1 #1"]);
  });

  test("silence for one and a half times the keep alive publishes it", async () => {
    const { world, watcher } = await withWatcher();
    const c = await world.connect("c", { ...withWill(), keepAliveS: 10 });
    for (let round = 0; round < 5; round++) {
      await world.advance(9000);
      c.say({ type: "pingreq" });
    }
    await world.advance(14_900);
    expect(c.isClosed).toBe(false);
    await world.advance(200);
    expect([c.isClosed, c.lines.at(-1)]).toEqual([true, "disconnect 0x8d"]);
    expect(watcher.take()).toEqual(["publish will gone q1 #1"]);
  });

  test("R38: a packet that never completes does not count as a sign of life", async () => {
    const { world } = await withWatcher();
    const c = await world.connect("c", { keepAliveS: 10 });
    c.bytes(Buffer.from([0x30, 0x7f]));
    for (let round = 0; round < 4; round++) {
      await world.advance(4000);
      c.bytes(Buffer.from([0]));
    }
    await world.advance();
    expect(c.isClosed).toBe(true);
  });

  test("a protocol error publishes it", async () => {
    const { world, watcher } = await withWatcher();
    const c = await world.connect("c", withWill());
    c.bytes(Buffer.from([0xff, 0]));
    await world.advance(100);
    expect(watcher.take()).toEqual(["publish will gone q1 #1"]);
  });

  test("a will does not overtake what its client published before", async () => {
    const { world, watcher } = await withWatcher();
    const s = await world.connect("s", durable);
    s.subscribe("stored");
    const c = await world.connect("c", withWill());
    await world.advance();
    world.store.keepsAnswers = true;
    c.say(publishing("stored", "1", { id: 1 }), publishing("loose", "2", { qos: 0 }));
    await world.advance();
    c.drop();
    await world.advance(1000);
    expect(watcher.take()).toEqual([]);
    world.store.kept[0]!.commit();
    await world.advance();
    expect(watcher.take()).toEqual([
      "publish stored 1 q1 #1",
      "publish loose 2 q0",
      "publish will gone q1 #2",
    ]);
  });

  test("a will without the right to publish is refused at CONNECT", async () => {
    const access = { authorize: (action: string) => action !== "publish" };
    const { world, watcher } = await withWatcher({ access });
    const c = await world.dial();
    c.connect("c", withWill());
    await world.advance(100);
    expect([c.take(), c.isClosed, watcher.take()]).toEqual([["connack 0x87"], true, []]);
  });

  test("a will whose right was taken away meanwhile is dropped", async () => {
    let allowed = true;
    const access = { authorize: (action: string) => action !== "publish" || allowed };
    const { world, watcher } = await withWatcher({ access });
    const c = await world.connect("c", withWill(durable));
    allowed = false;
    c.drop();
    await world.advance(60_000);
    expect(watcher.take()).toEqual([]);
    expect(world.broker.counters.willsDenied).toBe(1);
  });

  test("a will that is stored reaches a durable session once, whatever its filters", async () => {
    const { world } = await withWatcher();
    const zero = await world.connect("zero", durable);
    zero.subscribe("will", { qos: 0 });
    const both = await world.connect("both", durable);
    both.subscribe("will", { qos: 0 }, 1).subscribe("+", { qos: 2 }, 2);
    await world.advance(100);
    zero.take();
    both.take();
    const c = await world.connect("c", withWill());
    c.drop();
    await world.advance(300);
    expect(zero.take()).toEqual(["publish will gone q0"]);
    expect(both.take()).toEqual(["publish will gone q1 #1"]);
  });

  test("a retained will is kept, its expiry counted from its publication", async () => {
    const { world, watcher } = await withWatcher();
    const retained = { ...will, qos: 1 as const, retain: true, properties: { messageExpiryS: 50 } };
    const c = await world.connect("c", { will: retained });
    await world.advance(40_000);
    c.drop();
    await world.advance(10_000);
    expect(watcher.take()).toEqual(["publish will gone q1 #1"]);
    const late = await world.connect("late");
    late.subscribe("will");
    await world.advance();
    const packet = late.packets.find((item) => item.type === "publish");
    expect(packet).toMatchObject({ retain: true, properties: { messageExpiryS: 40 } });
  });
});

describe("session expiry at DISCONNECT", () => {
  test("0 cannot be raised: 0x82", async () => {
    const { world } = await withWatcher();
    const c = await world.connect("c");
    c.disconnect(0, { sessionExpiryS: 10 });
    await world.advance();
    expect(c.take()).toEqual(["disconnect 0x82"]);
  });

  test("a durable session may be ended by 0, and be given another time", async () => {
    const { world } = await withWatcher();
    for (const [expiryS, present] of [
      [0, ""],
      [50, " present"],
    ] as const) {
      const c = await world.connect("c", durable);
      c.take();
      c.disconnect(0, { sessionExpiryS: expiryS });
      await world.advance(10_000);
      const again = await world.dial();
      again.connect("c", durable);
      await world.advance();
      expect(again.take()).toEqual([`connack 0x00${present}`]);
      again.disconnect();
      await world.advance();
    }
  });
});

describe("stopping", () => {
  test("MQTT 5 clients get 0x8B, others are closed, and wills are not sent", async () => {
    const { world } = await withWatcher();
    const five = await world.connect("five", withWill(durable));
    const four = await world.connect("four", { ...withWill(), level: 4 });
    five.subscribe("will");
    await world.advance();
    five.take();
    await world.clock.complete(world.broker.close());
    expect([five.take(), five.isClosed]).toEqual([["disconnect 0x8b"], true]);
    expect([four.take(), four.isClosed]).toEqual([[], true]);
    expect(world.broker.counts().connections).toBe(0);
    await expect(world.dial()).rejects.toThrow();
  });

  test("a client that comes back within the grace after a stop has no will published", async () => {
    const { world } = await withWatcher();
    const watcher = await world.connect("watcher2", durable);
    watcher.subscribe("will");
    await world.connect("back", withWill(durable));
    await world.connect("gone", withWill(durable));
    await world.advance(100);
    await world.restart();
    const again = await world.connect("watcher2", durable);
    await world.connect("back", withWill(durable));
    await world.advance(25_000);
    expect(again.take()).toEqual(["connack 0x00 present"]);
    await world.advance(10_000);
    expect(again.take()).toEqual(["publish will gone q1 #1"]);
  });

  test("clients are let go in paced batches", async () => {
    const { world } = await withWatcher({ settings: { closeBatchMax: 2, closePaceMs: 1100 } });
    const clients = [];
    for (let index = 0; index < 5; index++) clients.push(await world.connect(`c${index}`));
    const closed = world.broker.close();
    await world.advance(500);
    expect(clients.filter((client) => client.isClosed).length).toBe(1);
    await world.advance(1000);
    expect(clients.filter((client) => client.isClosed).length).toBe(3);
    await world.clock.complete(closed);
    expect(clients.filter((client) => client.isClosed).length).toBe(5);
    // How many are left is told each second, and no more once all have gone.
    const told = world.events("broker.draining");
    expect(told.map(({ clients: left }) => left)).toEqual([4, 2]);
    await world.advance(5000);
    expect(world.events("broker.draining")).toHaveLength(told.length);
  });

  test("a client that does not take its rest does not hold up the stop for ever", async () => {
    const { world } = await withWatcher();
    const stuck = await world.connect("stuck");
    stuck.subscribe("#");
    await world.advance();
    stuck.transport.pause();
    const p = await world.connect("p");
    for (let index = 0; index < 5; index++) p.publish("t", "x".repeat(60_000), { qos: 0 });
    await world.advance();
    await world.clock.complete(world.broker.close(), 20_000);
    expect(world.broker.counters.closesForced + world.broker.counts().connections).toBeGreaterThan(
      0,
    );
  });

  test("a volume that stays full does not hold up the stop for ever", async () => {
    const { world } = await withWatcher();
    const s = await world.connect("s", durable);
    s.subscribe("t", { qos: 1 });
    const p = await world.connect("p");
    await world.advance();
    const { disk } = (world.lives as MachineLives).machine;
    disk.setCapacity(2 ** 40 - disk.freeBytes + 1_000);
    for (let id = 1; id <= 10; id++) {
      p.publish("t", "x".repeat(30_000), { id });
      await world.advance();
    }
    expect(world.store.refusal?.code).toBe("STORE_DISK_FULL");
    // What is left of the log's last segment would still do for a few sessions.
    const value = Buffer.alloc(20_000);
    for (let n = 0; n < 4; n++) {
      world.store.state("x").write([{ key: "x", value }], [], () => undefined);
      await world.advance();
    }
    await world.clock.complete(world.broker.close(), 60_000);
    expect(world.logged.map(({ event }) => event)).toContain("broker.sessions_left_open");
  });

  test("a durable session, its backlog and a delayed will outlive a restart", async () => {
    const { world } = await withWatcher();
    const s = await world.connect("s", durable);
    s.subscribe("t");
    await world.advance();
    s.disconnect();
    await world.advance();
    const p = await world.connect("p");
    p.publish("t", "1", { id: 1 });
    await world.advance();
    await world.restart();
    const again = await world.connect("s", durable);
    await world.advance(100);
    expect(again.take()).toEqual(["connack 0x00 present", "publish t 1 q1 #1"]);
  });
});
