import { describe, expect, test } from "vitest";
import type { LiveTarget } from "../../../../src/session/index.ts";
import type { Ttv } from "../../../../src/store/index.ts";
import { type RoutesNode, RoutesWorld, wanted } from "../../../support/routes-world.ts";

async function three(): Promise<readonly [RoutesWorld, RoutesNode, RoutesNode, RoutesNode]> {
  const world = new RoutesWorld();
  const nodes = [world.broker(1), world.broker(2), world.broker(3)] as const;
  await world.clock.advance(1_000);
  return [world, ...nodes];
}

describe("live routes", () => {
  test("one copy goes to each node that wants it, whoever and however many want it there", async () => {
    const [world, one, two, three_] = await three();
    const clients = ["a", "b", "c"].map((name) => two.client(name));
    for (const client of clients) {
      two.routes.live.set(client, wanted("t/#"));
      two.routes.live.set(client, wanted("t/x"));
    }
    await world.clock.advance(100);
    one.publish("t/x", "v");
    await world.clock.advance(100);
    expect(clients.map(({ got }) => got)).toEqual([["v"], ["v"], ["v"]]);
    expect([one.counters.routedSent, two.counters.routedReceived]).toEqual([1, 1]);
    expect(three_.counters.routedReceived).toBe(0);
  });

  test("a message arrives as it was published", async () => {
    const [world, one, two] = await three();
    let got: Ttv | undefined;
    let wasStored: boolean | undefined;
    const target: LiveTarget = {
      ...{ clientId: "c", takes: "all" },
      deliver: (message, _subscriptions, stored) => {
        got = message;
        wasStored = stored;
      },
    };
    two.routes.live.set(target, wanted("t"));
    await world.clock.advance(100);
    one.publish("t", "v", { qos: 2, stored: true });
    await world.clock.advance(100);
    expect(wasStored).toBe(true);
    expect(got).toEqual({
      ...{ topic: "t", timeUs: 5, publisher: "p1", form: "raw", qos: 2, retain: true },
      ...{ expiryUs: 6, expiryOffset: 7, frame: Buffer.from("v") },
    });
  });

  test("what is stored goes only where somebody without a cursor wants it", async () => {
    const [world, one, two, three_] = await three();
    const [durable, clean] = [two.client("durable", "unstored"), three_.client("clean")];
    two.routes.live.set(durable, wanted("t"));
    three_.routes.live.set(clean, wanted("t"));
    await world.clock.advance(100);
    one.publish("t", "stored", { stored: true });
    one.publish("t", "unstored", { qos: 0 });
    await world.clock.advance(100);
    expect(durable.got).toEqual(["unstored"]);
    expect(clean.got).toEqual(["stored", "unstored"]);
    expect(two.counters.routedReceived).toBe(1);
  });

  test("a filter is routed until its last subscriber has gone", async () => {
    const [world, one, two] = await three();
    const [a, b] = [two.client("a"), two.client("b")];
    const publish = async (value: string): Promise<void> => {
      await world.clock.advance(100);
      one.publish("t", value);
      await world.clock.advance(100);
    };
    two.routes.live.set(a, wanted("t"));
    two.routes.live.set(b, wanted("t"));
    two.routes.live.set(b, wanted("t"));
    await publish("both");
    two.routes.live.remove(a, "t");
    two.routes.live.remove(a, "t");
    await publish("b");
    two.routes.live.removeAll(b);
    await publish("nobody");
    expect([a.got, b.got]).toEqual([["both"], ["both", "b"]]);
    expect(two.counters.routedReceived).toBe(2);
  });

  test("the broker's own topics stay at their node", async () => {
    const [world, one, two] = await three();
    const client = two.client("a");
    two.routes.live.set(client, wanted("$SYS/#"));
    two.routes.live.set(client, wanted("#"));
    await world.clock.advance(100);
    one.publish("$SYS/x", "own");
    await world.clock.advance(100);
    expect(client.got).toEqual([]);
  });

  test("what is settled is known at every node that is reached, and a lost one holds up nobody", async () => {
    const [world, one, two] = await three();
    expect(two.routes.settled()).toBeUndefined();
    world.way(3, 2).lost = true; // its answers
    const client = two.client("a");
    two.routes.live.set(client, wanted("t"));
    let isSettled = false;
    two.routes.settled()?.then(() => {
      isSettled = true;
    });
    await world.clock.advance(1_000);
    expect(isSettled).toBe(false);
    await world.clock.advance(2_000); // silent for too long
    expect(isSettled).toBe(true);
    one.publish("t", "v");
    await world.clock.advance(100);
    expect(client.got).toEqual(["v"]);
  });

  test("a node that starts anew hears of all that is subscribed, and nothing of its own is left", async () => {
    const [world, one, two] = await three();
    const [mine, theirs] = [one.client("mine"), two.client("theirs")];
    one.routes.live.set(mine, wanted("t"));
    two.routes.live.set(theirs, wanted("t"));
    await world.clock.advance(100);
    world.end(2);
    const again = world.broker(2);
    await world.clock.advance(1_000);
    expect(again.routes.knows(1)).toBe(true);
    again.publish("t", "from two");
    one.publish("t", "from one");
    await world.clock.advance(100);
    expect(mine.got).toEqual(["from one", "from two"]);
    expect(again.counters.routedReceived).toBe(0);
  });

  test("many filters go in several words, and none of them is missed", async () => {
    const [world, one, two] = await three();
    const client = two.client("a");
    const topics = Array.from({ length: 700 }, (_, at) => `${"x".repeat(1_000)}${at}`);
    for (const topic of topics) two.routes.live.set(client, wanted(topic));
    await world.clock.advance(2_000);
    for (const topic of topics) one.publish(topic, topic);
    await world.clock.advance(100);
    expect(client.got).toEqual(topics);
  });

  test("a shared group with members at several nodes gets each message at one of them", async () => {
    const [world, one, two, three_] = await three();
    const name = "$share/g/t";
    const groups = [one, two, three_].map((node) => {
      const group = node.client(name, "dealt");
      node.routes.live.set(group, wanted("t"));
      return group;
    });
    const plain = two.client("plain");
    two.routes.live.set(plain, wanted("t"));
    await world.clock.advance(100);
    const values = Array.from({ length: 9 }, (_, at) => `v${at}`);
    for (const value of values) one.publish("t", value);
    await world.clock.advance(100);
    expect(groups.flatMap(({ got }) => got).sort()).toEqual(values);
    expect(groups.map(({ got }) => got.length)).toEqual([3, 3, 3]);
    expect(plain.got).toEqual(values);
    // One copy for the group and the client beside it.
    expect(two.counters.routedReceived).toBe(values.length);
    two.routes.live.removeAll(groups[1] as LiveTarget);
    three_.routes.live.removeAll(groups[2] as LiveTarget);
    await world.clock.advance(100);
    for (const value of values) one.publish("t", value);
    expect(groups[0]?.got.length).toBe(3 + 9);
  });

  test("when a node takes too little, QoS 0 is dropped, publishers wait, and the rest comes in order", async () => {
    const world = new RoutesWorld();
    const one = world.broker(1, {
      ...{ waitingBytesSoft: 2_000, waitingBytesMax: 4_000, batchBytes: 100 },
      channel: { windowBytesMax: 500 },
    });
    const two = world.broker(2);
    await world.clock.advance(1_000);
    const client = two.client("a");
    two.routes.live.set(client, wanted("t"));
    await world.clock.advance(100);
    const values = Array.from({ length: 60 }, (_, at) => `value ${at} ${"x".repeat(50)}`);
    for (const value of values) one.publish("t", value, { qos: one.routes.isCrowded ? 0 : 1 });
    expect(one.routes.isCrowded).toBe(true);
    const dropped = one.counters.routedQos0Dropped;
    expect(dropped).toBeGreaterThan(10);
    for (const value of values) one.publish("t", value);
    expect(one.counters.routedDropped).toBeGreaterThan(10);
    await world.clock.advance(5_000);
    expect(one.routes.isCrowded).toBe(false);
    expect(one.roomCount).toBe(1);
    const lost = one.counters.routedDropped + one.counters.routedQos0Dropped;
    expect(client.got.length).toBe(2 * values.length - lost);
    expect(client.got.slice(0, 60 - dropped)).toEqual(values.slice(0, 60 - dropped));
  });

  test("what waited for a node that is lost is counted, and nobody waits for it", async () => {
    const world = new RoutesWorld();
    const one = world.broker(1, {
      ...{ waitingBytesSoft: 2_000, batchBytes: 100 },
      channel: { windowBytesMax: 500 },
    });
    const two = world.broker(2);
    await world.clock.advance(1_000);
    two.routes.live.set(two.client("a"), wanted("t"));
    await world.clock.advance(100);
    world.way(1, 2).lost = true;
    for (let left = 100; left > 0; left--) one.publish("t", "x".repeat(50));
    expect(one.routes.isCrowded).toBe(true);
    await world.clock.advance(3_000);
    expect(one.routes.isCrowded).toBe(false);
    expect(one.counters.routedSent + one.counters.routedLost).toBe(100);
  });
});
