// Expiry-0 sessions: direct fan-out, nothing kept.

import { describe, expect, test } from "vitest";
import { World } from "../../support/session-world.ts";

describe("an expiry-0 session", () => {
  test("gets stored and unstored messages by fan-out, once", async () => {
    const world = await World.start();
    const keeper = await world.client("keeper").connect();
    await keeper.subscribe("kept");
    const s = await world.client("s").connect({ expiryS: 0 });
    await s.subscribe("#", { qos: 2 });
    await world.publish("p", "kept", "a", { qos: 1 });
    await world.publish("p", "loose", "b", { qos: 2 });
    await world.publish("p", "loose", "c", { qos: 0 });
    expect(s.take()).toEqual([
      "suback 2",
      "publish 1 q1 kept a",
      "publish 2 q2 loose b",
      "publish q0 loose c",
    ]);
    expect(s.session!.claim).toBeUndefined();
  });

  test("writes nothing and leaves nothing", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ expiryS: 0 });
    await s.subscribe("t", { qos: 2 });
    await world.publish("p", "t", "m", { qos: 2 });
    expect(s.pubrec(1)).toBeUndefined();
    expect(s.take()).toEqual(["suback 2", "publish 1 q2 t m", "pubrel 1"]);
    expect(s.pubcomp(1)).toBeUndefined();
    await s.drop();
    await world.advance(1000);
    expect(world.store.writeCount).toBe(0);
    expect(world.fanOut.targets.size).toBe(0);
    expect(world.sessions.counts()).toEqual({ durable: 0, connected: 0 });
  });

  test("keeps to the window, in order, and lets QoS 0 pass at zero quota", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ expiryS: 0, receiveMaximum: 1 });
    await s.subscribe("t", { qos: 1 });
    s.take();
    for (const n of [1, 2, 3]) await world.publish("p", "t", `m${n}`);
    await world.publish("p", "t", "zero", { qos: 0 });
    expect(s.take()).toEqual(["publish 1 q1 t m1", "publish q0 t zero"]);
    s.puback(1);
    s.puback(2);
    expect(s.take()).toEqual(["publish 2 q1 t m2", "publish 3 q1 t m3"]);
  });

  test("a waiting message that expires is dropped", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ expiryS: 0, receiveMaximum: 1 });
    await s.subscribe("t", { qos: 1 });
    s.take();
    await world.publish("p", "t", "first");
    await world.publish("p", "t", "short", { expiryS: 2 });
    await world.publish("p", "t", "long");
    await world.advance(3000);
    s.puback(1);
    expect(s.take()).toEqual(["publish 1 q1 t first", "publish 2 q1 t long"]);
  });

  test("a full queue ends it with 0x97; a full connection drops QoS 0 and counts it", async () => {
    const world = await World.start({ settings: { memoryQueueMax: 2 } });
    const s = await world.client("s").connect({ expiryS: 0, receiveMaximum: 1 });
    await s.subscribe("t", { qos: 1 });
    s.take();
    s.room = 1;
    await world.publish("p", "t", "one");
    await world.publish("p", "t", "zero", { qos: 0 });
    expect(world.sessions.counters.qos0Dropped).toBe(1);
    for (const n of [2, 3]) await world.publish("p", "t", `m${n}`);
    expect(s.take()).toEqual(["publish 1 q1 t one"]);
    await world.publish("p", "t", "m4");
    expect(s.take()).toEqual(["end 0x97"]);
    expect(world.sessions.counters.memoryQueueFull).toBe(1);
    expect(world.fanOut.targets.size).toBe(0);
  });

  test("a full connection makes QoS 1 wait until it drains", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ expiryS: 0 });
    await s.subscribe("t", { qos: 1 });
    s.take();
    s.room = 1;
    for (const n of [1, 2, 3]) await world.publish("p", "t", `m${n}`);
    expect(s.take()).toEqual(["publish 1 q1 t m1"]);
    s.drain();
    expect(s.take()).toEqual(["publish 2 q1 t m2", "publish 3 q1 t m3"]);
  });

  test("overlaps, No Local and UNSUBSCRIBE hold as for durable ones", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ expiryS: 0 });
    await s.subscribe("a/b", { qos: 0, identifier: 1 });
    await s.subscribe("a/#", { qos: 2, identifier: 2, noLocal: true });
    s.take();
    await world.publish("p", "a/b", "m", { qos: 2 });
    await world.publish("s", "a/b", "own", { qos: 2 });
    await world.publish("s", "a/c", "own", { qos: 2 });
    expect(s.take()).toEqual(["publish 1 q2 a/b m [1,2]", "publish q0 a/b own [1]"]);
    expect(await s.unsubscribe("a/#")).toBe(true);
    expect(await s.unsubscribe("a/#")).toBe(false);
    await world.publish("p", "a/c", "m");
    expect(s.take()).toEqual([]);
  });

  test("wrong acks are protocol errors", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ expiryS: 0 });
    await s.subscribe("t", { qos: 2 });
    await world.publish("p", "t", "m", { qos: 2 });
    expect(s.puback(1)).toBe(0x82);
    expect(s.pubcomp(1)).toBe(0x82);
  });
});
