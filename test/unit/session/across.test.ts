// Client ids and claims of sessions at several nodes (docs/decisions/093).

import { beforeEach, describe, expect, test } from "vitest";
import { SimClock } from "../../../src/base/index.ts";
import { decodeClaim } from "../../../src/session/core/records.ts";
import { sessionKeys } from "../../../src/session/keys.ts";
import { SessionNodesWorld } from "../../support/session-nodes.ts";
import { will } from "../../support/session-world.ts";

let world: SessionNodesWorld;
let clock: SimClock;
beforeEach(async () => {
  clock = new SimClock();
  world = await SessionNodesWorld.start(clock, 3);
});

const keys = sessionKeys("s");

async function ownerNode(): Promise<number | undefined> {
  const entry = await world.row(keys.claim);
  return entry === undefined ? undefined : decodeClaim(entry.value).owner?.node;
}

describe("a takeover between nodes", () => {
  test("the claim names the node, and the former connection ends with 0x8E", async () => {
    const one = await world.node(1).client("s").connect();
    expect(await ownerNode()).toBe(1);
    const two = await world.node(2).client("s").connect();
    expect(await ownerNode()).toBe(2);
    expect(two.sessionPresent).toBe(true);
    expect(one.take()).toEqual(["end 0x8e"]);
    expect(world.node(1).sessions.counts().connected).toBe(0);
  });

  test("the owner writes its exact state first: nothing is in doubt", async () => {
    const one = await world.node(1).client("s").connect();
    await one.subscribe("a");
    await world.node(2).client("s").connect();
    expect(world.node(2).sessions.counters.takeoversUnanswered).toBe(0);
    expect(world.node(1).sessions.counters.sessionsTakenOver).toBe(1);
  });

  test("an owner that does not answer is passed over, and what it writes is refused", async () => {
    const one = await world.node(1).client("s").connect();
    world.node(1).cut();
    const two = await world.node(2).client("s").connect();
    expect(two.sessionPresent).toBe(true);
    expect(one.take()).toEqual([]);
    const late = one.subscribeLater("late");
    world.node(1).heal();
    expect((await clock.complete(late))[0]?.reasonCode).toBeGreaterThanOrEqual(0x80);
    await clock.advance(100);
    expect(one.take()).toContain("end 0x8e");
    expect(world.keys().filter((key) => key.startsWith("sub/"))).toEqual([]);
    expect(await ownerNode()).toBe(2);
  });

  test("what an owner that does not answer was still acked is in the session that goes on", async () => {
    for (let afterMs = 0; afterMs < 12; afterMs++) {
      const id = `s${afterMs}`;
      const one = await world.node(1).client(id).connect();
      world.node(1).isMute = true;
      const two = world.node(2).client(id);
      const coming = two.connectLater();
      await clock.advance(world.settings.takeoverWaitMs + afterMs - 4);
      const results = await clock.complete(one.subscribeLater("late").catch(() => []));
      await clock.complete(coming);
      world.node(1).isMute = false;
      const isAcked = (results[0]?.reasonCode ?? 0x80) < 0x80;
      const has = [...(two.session?.subscriptions() ?? [])].length === 1;
      expect(has, `${afterMs} ms later`).toBe(isAcked);
    }
  });

  test("a former owner that writes nothing hears of the other claim from its row", async () => {
    const one = await world.node(1).client("s").connect();
    world.node(1).cut();
    await world.node(2).client("s").connect();
    world.node(1).heal();
    await clock.advance(100);
    expect(one.take()).toEqual(["end 0x8e"]);
  });

  test("of two that come at once one is served, and the other is told so", async () => {
    for (const round of [0, 1, 2, 3]) {
      const one = world.node(1).client("s");
      const two = world.node(2).client("s");
      const coming = [one.connectLater(), two.connectLater()];
      if (round % 2 === 1) coming.reverse();
      await clock.complete(Promise.allSettled(coming));
      await clock.advance(1_000);
      const connected = [1, 2].map((node) => world.node(node).sessions.counts().connected);
      expect(connected[0]! + connected[1]!, `round ${round}`).toBe(1);
      expect(await ownerNode()).toBe(connected[0] === 1 ? 1 : 2);
    }
  });

  test("another user is refused, and nothing changes for whoever is connected", async () => {
    const one = await world.node(1).client("s").connect({ user: "ann" });
    const refused = world.node(2).client("s").connect({ user: "bob" });
    await expect(refused).rejects.toMatchObject({ code: "SESSION_USER_MISMATCH" });
    expect(one.take()).toEqual([]);
    expect(await ownerNode()).toBe(1);
    await one.disconnect();
    const again = world.node(2).client("s").connect({ user: "bob" });
    await expect(again).rejects.toMatchObject({ code: "SESSION_USER_MISMATCH" });
  });

  test("a session whose taker is gone before its claim is closed as a lost one", async () => {
    const bye = will("w", "bye");
    await world.node(1).client("s").connect({ will: bye });
    const coming = world.node(2).client("s").connectLater({ will: bye });
    coming.catch(() => undefined);
    // Asked for, and then nothing.
    await clock.runUntil(() => world.node(1).sessions.counts().connected === 0);
    world.node(2).kill();
    await clock.advance(60_000);
    expect(world.wills).toEqual(["s w bye"]);
    expect(world.keys().filter((key) => key.startsWith("due/"))).toHaveLength(1);
  });
});

test("what was sent at another node is sent again, also where the replica is behind", async () => {
  const one = await world.node(1).client("s").connect();
  await one.subscribe("a");
  const behindUs = clock.wallUs();
  await clock.advance(10);
  await world.node(1).publish("a", "hello");
  expect(one.take()).toEqual(["suback 1", "publish 1 q1 a hello"]);
  world.node(2).logsUs = behindUs;
  const two = await world.node(2).client("s").connect();
  await clock.advance(100);
  expect(two.take()).toEqual(["publish 1 q1 dup a hello"]);
});

describe("sessions in memory", () => {
  const memory = { clean: true, expiryS: 0 };

  test("one ends when its client id connects to another node, and its will goes out", async () => {
    const one = await world
      .node(1)
      .client("s")
      .connect({ ...memory, will: will("w", "bye") });
    await world.node(2).client("s").connect(memory);
    expect(one.take()).toEqual(["end 0x8e"]);
    await clock.advance(100);
    expect(world.wills).toEqual(["s w bye"]);
  });

  test("of two that come at once one stays", async () => {
    for (const apartMs of [0, 0, 1, 2, 3]) {
      const one = world.node(2).client("s");
      const two = world.node(1).client("s");
      const coming = [one.connectLater(memory)];
      await clock.advance(apartMs);
      coming.push(two.connectLater(memory));
      await clock.complete(Promise.allSettled(coming));
      await clock.advance(100);
      const connected = [1, 2].map((node) => world.node(node).sessions.counts().connected);
      expect(connected[0]! + connected[1]!, `${apartMs} ms apart`).toBe(1);
    }
  });

  test("a clean start discards what is stored, whichever node it was at", async () => {
    const one = await world.node(1).client("s").connect();
    await world.node(2).client("s").connect(memory);
    expect(one.take()).toEqual(["end 0x8e"]);
    expect(world.keys()).toEqual([]);
  });

  test("two that were let in apart are one when their nodes reach each other: the later", async () => {
    world.node(1).cut();
    const one = await world.node(1).client("s").connect(memory);
    await clock.advance(10);
    const two = await world.node(2).client("s").connect(memory);
    world.node(1).heal();
    await clock.advance(1_000);
    expect(one.take()).toEqual(["end 0x8e"]);
    expect(two.take()).toEqual([]);
  });

  test("without a quorum one is let in where nothing is stored, and a stored one is refused", async () => {
    await (await world.node(1).client("s").connect()).disconnect();
    world.node(1).cut();
    await expect(world.node(1).client("s").connect(memory)).rejects.toMatchObject({
      kind: "retry",
    });
    await world.node(1).client("t").connect(memory);
    await expect(world.node(1).client("t").connect()).rejects.toMatchObject({ kind: "retry" });
  });
});

describe("a claim whose fate is not known", () => {
  test("it is found when it has happened", async () => {
    world.node(1).fates = ["happens"];
    const one = await world.node(1).client("s").connect();
    expect(one.connected).toBe(true);
    expect(world.node(1).sessions.counters.claimsUnknown).toBe(1);
    await one.subscribe("a");
    expect(world.keys().filter((key) => key.startsWith("sub/"))).toHaveLength(1);
  });

  test("it is made again when it has not", async () => {
    await (await world.node(2).client("s").connect()).disconnect();
    world.node(1).fates = ["lost"];
    const one = await world.node(1).client("s").connect();
    expect(one.sessionPresent).toBe(true);
    await one.subscribe("a");
    expect(await ownerNode()).toBe(1);
  });

  test("without a quorum the connection is refused", async () => {
    const coming = world.node(1).client("s").connectLater();
    world.node(1).cut();
    await expect(clock.complete(coming)).rejects.toMatchObject({ kind: "retry" });
  });
});

describe("what each node knows of the sessions of all", () => {
  const list = async (node: number, query = {}) => {
    const { inspector } = world.node(node).sessions;
    const page = await clock.complete(inspector.list(query, { countMax: 10 }));
    return page.sessions.map((one) => `${one.clientId} ${one.state} ${one.node ?? "here"}`);
  };

  test("they are listed at every node, with the node that serves them", async () => {
    const one = await world.node(1).client("a").connect();
    await world.node(2).client("b").connect();
    expect(await list(1)).toEqual(["a connected here", "b connected 2"]);
    expect(await list(2)).toEqual(["a connected 1", "b connected here"]);
    expect(await list(3, { state: "offline" })).toEqual([]);
    await one.drop();
    expect(await list(3)).toEqual(["a offline here", "b connected 2"]);
    await world.node(3).client("a").connect();
    expect(await list(1)).toEqual(["a connected 3", "b connected 2"]);
    expect(world.nodes.map(({ sessions }) => sessions.counts().durable)).toEqual([2, 2, 2]);
  });

  test("one that has ended is listed nowhere", async () => {
    const one = await world.node(1).client("a").connect();
    await one.subscribe("t");
    await one.disconnect(0);
    await clock.advance(10);
    for (const node of [1, 2, 3]) expect(await list(node)).toEqual([]);
    expect(world.nodes.map(({ sessions }) => sessions.counts().durable)).toEqual([0, 0, 0]);
  });

  test("an operator ends, purges and unsubscribes them from any node", async () => {
    const one = await world.node(1).client("a").connect();
    await one.subscribe("t");
    const { inspector } = world.node(2).sessions;
    const query = { clientId: "a" };
    const request = { countMax: 10, dryRun: false };
    expect(await clock.complete(inspector.removeSubscription("a", "none"))).toBe(false);
    expect(await clock.complete(inspector.removeSubscription("a", "t"))).toBe(true);
    expect([...(one.session?.subscriptions() ?? [])]).toEqual([]);
    await clock.complete(inspector.purge(query, request));
    expect(one.connected).toBe(true);
    await clock.complete(inspector.end(query, request));
    expect(one.take()).toContain("end 0x98");
    await clock.advance(10);
    expect(world.keys()).toEqual([]);
  });

  test("what was gone through while a node was cut off is known when it is not any more", async () => {
    await world.node(1).client("a").connect();
    world.node(3).cut();
    await world.node(2).client("a").connect();
    await world.node(2).client("b").connect();
    world.node(3).heal();
    expect(await list(3)).toEqual(["a connected 2", "b connected 2"]);
  });
});

test("sessions of a user are counted over all nodes", async () => {
  world = await SessionNodesWorld.start(clock, 2, { sessionsPerUserMax: 2 });
  await world.node(1).client("a").connect({ user: "ann" });
  await world.node(2).client("b").connect({ user: "ann" });
  await expect(world.node(1).client("c").connect({ user: "ann" })).rejects.toMatchObject({
    code: "SESSION_USER_FULL",
  });
  await world.node(1).client("c").connect({ user: "bob" });
  expect((await world.node(1).client("b").connect({ user: "ann" })).sessionPresent).toBe(true);
});
