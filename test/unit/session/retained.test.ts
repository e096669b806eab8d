import { describe, expect, test } from "vitest";
import { SeededRandom, SimClock } from "../../../src/base/index.ts";
import { encodeJob } from "../../../src/session/core/records.ts";
import { RetainedStore } from "../../../src/session/retained.ts";
import { FakeStore, storeError } from "../../support/fake-store.ts";
import { World } from "../../support/session-world.ts";

for (const expiryS of [0, 3600]) {
  describe(`retained messages to a session of expiry ${expiryS}`, () => {
    test("SUBACK first, then all matches with RETAIN, at the lower QoS, with the identifier", async () => {
      const world = await World.start();
      await world.publish("p", "a/0", "zero", { qos: 0, retain: true });
      await world.publish("p", "a/1", "one", { qos: 1, retain: true });
      await world.publish("p", "a/2", "two", { qos: 2, retain: true });
      await world.publish("p", "b", "no", { qos: 1, retain: true });
      const s = await world.client("s").connect({ expiryS });
      await s.subscribe("a/#", { qos: 1, identifier: 4 });
      await world.advance(50);
      const [suback, ...rest] = s.take();
      expect(suback).toBe("suback 1");
      expect(rest.map((line) => line.replace(/publish \d+ /, "publish ")).sort()).toEqual([
        "publish q0 retain a/0 zero [4]",
        "publish q1 retain a/1 one [4]",
        "publish q1 retain a/2 two [4]",
      ]);
    });

    test("the last one put counts; an empty payload removes it and is delivered live", async () => {
      const world = await World.start();
      await world.publish("p", "t", "old", { retain: true });
      await world.publish("p", "t", "new", { retain: true });
      const s = await world.client("s").connect({ expiryS });
      await s.subscribe("t");
      await world.advance(50);
      expect(s.take()).toEqual(["suback 1", "publish 1 q1 retain t new"]);
      await world.publish("p", "t", "", { retain: true });
      expect(s.take()).toEqual(["publish 2 q1 t "]);
      await s.subscribe("t");
      await world.advance(50);
      expect(s.take()).toEqual(["suback 1"]);
      expect(await world.clock.complete(world.sessions.retained.get("t"))).toBeUndefined();
    });

    test("Retain Handling: 0 always, 1 for a new filter, 2 never", async () => {
      const world = await World.start();
      await world.publish("p", "t", "m", { retain: true });
      const s = await world.client("s").connect({ expiryS });
      const counts = [];
      for (const retainHandling of [2, 1, 1, 0, 0] as const) {
        if (counts.length === 1) await s.unsubscribe("t");
        await s.subscribe("t", { retainHandling });
        await world.advance(50);
        counts.push(s.take().length - 1);
      }
      expect(counts).toEqual([0, 1, 0, 1, 1]);
    });

    test("one that cannot be read is passed over and counted, the others are sent", async () => {
      const world = await World.start();
      for (const topic of ["a/0", "a/1", "a/2"]) {
        await world.publish("p", topic, "m", { retain: true });
      }
      const writes = [{ key: "retained/a/1", value: Buffer.from([1, 2]) }];
      await world.clock.complete(
        new Promise<void>((done) => world.store.state("a/1").write(writes, [], () => done())),
      );
      const s = await world.client("s").connect({ expiryS });
      await s.subscribe("a/#");
      await world.advance(1_000);
      const topics = s.take().flatMap((line) => line.match(/a\/\d/) ?? []);
      expect(topics.sort()).toEqual(["a/0", "a/2"]);
      expect(world.sessions.counters.recordsCorrupt).toBe(1);
    });

    test("damage of the store is passed over: what stands before it and other shards are sent", async () => {
      const world = await World.start();
      const names = Array.from({ length: 40 }, (_, n) => `a/${pad(n)}`);
      for (const topic of names) await world.publish("p", topic, "m", { retain: true });
      const [first, second] = world.store.stateShards;
      const held = first!.keys().filter((key) => key.startsWith("retained/"));
      const bad = held[Math.floor(held.length / 2)]!;
      const match = first!.match.bind(first!);
      first!.match = async (prefix, filter, options) => {
        const found = await match(prefix, filter, options);
        if (found.entries.some(({ key }) => key >= bad)) throw storeError("KV_CORRUPT", "corrupt");
        return found;
      };
      const s = await world.client("s").connect({ expiryS });
      s.autoAck = true;
      await s.subscribe("a/#");
      await world.advance(1000);
      const reachable = held.filter((key) => key < bad);
      const others = second!.keys().filter((key) => key.startsWith("retained/"));
      const expected = [...reachable, ...others].map((key) => key.slice("retained/".length));
      expect(topicsOf(s.take()).sort()).toEqual(expected.sort());
      expect(world.sessions.counters.retainedShardsSkipped).toBe(1);
      expect(world.logged).toEqual(["session.retained_skipped"]);
      expect(jobKeys(world)).toEqual([]);
    });

    test("an expired one is not sent", async () => {
      const world = await World.start();
      await world.publish("p", "t", "m", { retain: true, expiryS: 5 });
      await world.advance(6000);
      const s = await world.client("s").connect({ expiryS });
      await s.subscribe("#");
      await world.advance(50);
      expect(s.take()).toEqual(["suback 1"]);
      const page = await world.clock.complete(world.sessions.retained.page("#", undefined, 10));
      expect(page.messages).toEqual([]);
    });

    test("R56, R57: all of 3,000 come, whatever the window and the page", async () => {
      const world = await World.start({ settings: { retainedPageMax: 70 } });
      await putMany(world, 3000);
      for (const qos of [0, 1, 2] as const) {
        const s = await world.client(`s${qos}`).connect({ expiryS, receiveMaximum: 10 });
        s.autoAck = true;
        await s.subscribe("r/#", { qos });
        await world.advance(20_000);
        const topics = s.take().filter((line) => line.startsWith("publish"));
        expect(topics).toHaveLength(3000);
        expect(new Set(topics.map((line) => line.split(" ").at(-2))).size).toBe(3000);
      }
    }, 60_000);

    test("a full connection paces them, QoS 0 too", async () => {
      const world = await World.start();
      await putMany(world, 30);
      const s = await world.client("s").connect({ expiryS });
      s.room = 10;
      await s.subscribe("r/#", { qos: 0 });
      await world.advance(100);
      expect(s.take()).toHaveLength(11);
      s.drain();
      await world.advance(100);
      expect(s.take()).toHaveLength(20);
      expect(world.sessions.counters.qos0Dropped).toBe(0);
    });

    test("live messages and retained ones share the slots", async () => {
      const world = await World.start({ store: { stateShards: 1 } });
      await putMany(world, 20);
      const s = await world.client("s").connect({ expiryS, receiveMaximum: 1 });
      await s.subscribe("r/#");
      await s.subscribe("live", { retainHandling: 2 });
      for (let n = 0; n < 20; n++) await world.publish("p", "live", `${n}`);
      s.autoAck = true;
      s.puback(1);
      await world.advance(2000);
      const kinds = s
        .take()
        .filter((line) => line.startsWith("publish"))
        .map((line) => (line.includes("retain") ? "r" : "l"))
        .join("");
      expect(kinds).toHaveLength(40);
      // Once both have something to send, neither gets two slots more than the other.
      expect([...kinds.slice(0, 24)].filter((kind) => kind === "l").length).toBeGreaterThan(9);
      expect([...kinds.slice(0, 24)].filter((kind) => kind === "r").length).toBeGreaterThan(9);
    });

    test("what is retained anew and was sent live meanwhile is not sent in its older form", async () => {
      const { s, world } = await pagedReader(expiryS);
      for (let n = 0; n < 20; n++) {
        await world.publish("p", `r/${pad(n)}`, "live", { retain: true });
      }
      const lines = await rest(world, s);
      expect(lines.filter((line) => line.endsWith(" live"))).toHaveLength(20);
      // After the live one no retained one of the topic.
      for (const topic of topics20) expect(ofTopic(lines, topic).at(-1)).toMatch(/q1 r\S+ live$/);
    });

    test("[3.3.1-9] a live message without RETAIN makes no retained one disappear", async () => {
      for (const qos of [0, 1] as const) {
        const { s, world } = await pagedReader(expiryS);
        for (const topic of topics20) await world.publish("p", topic, "live", { qos });
        const lines = await rest(world, s);
        for (const topic of topics20) {
          const kinds = ofTopic(lines, topic).map((line) =>
            / retain | live$/.exec(line)?.[0].trim(),
          );
          expect(kinds.sort(), topic).toEqual(["live", "retain"]);
        }
      }
    });

    test("a newer value that a full connection dropped live does not keep its retained one away", async () => {
      const world = await World.start();
      await putMany(world, 4);
      const s = await world.client("s").connect({ expiryS });
      s.room = 1;
      await s.subscribe("r/#", { qos: 0 });
      await world.advance(50);
      const [first] = topicsOf(s.take());
      const other = first === "r/0003" ? "r/0002" : "r/0003";
      await world.publish("p", other, "newer", { qos: 0, retain: true });
      expect(world.sessions.counters.qos0Dropped).toBe(1);
      s.drain();
      await world.advance(50);
      expect(topicsOf(s.take())).toContain(other);
    });

    test("what was sent live before a SUBSCRIBE takes nothing from what that one asks for", async () => {
      const { s, world } = await pagedReader(expiryS);
      await world.publish("p", "r/0019", "live", { retain: true });
      await s.subscribe("r/0019");
      const lines = await rest(world, s);
      const kinds = ofTopic(lines, "r/0019").map((line) => line.replace(/publish \d+ /, ""));
      expect(kinds).toEqual(["q1 r/0019 live", "q1 retain r/0019 live"]);
    });

    test("No Local leaves the client's own retained messages out", async () => {
      const world = await World.start();
      await world.publish("s", "own", "m", { retain: true });
      await world.publish("p", "other", "m", { retain: true });
      const s = await world.client("s").connect({ expiryS });
      await s.subscribe("#", { noLocal: true });
      await world.advance(50);
      expect(s.take()).toEqual(["suback 1", "publish 1 q1 retain other m"]);
    });

    test("UNSUBSCRIBE drops what is unsent", async () => {
      const world = await World.start();
      await putMany(world, 20);
      const s = await world.client("s").connect({ expiryS, receiveMaximum: 2 });
      await s.subscribe("r/#");
      await world.advance(50);
      expect(s.take()).toHaveLength(3);
      await s.unsubscribe("r/#");
      for (const id of [1, 2]) s.puback(id);
      await world.advance(50);
      expect(s.take()).toEqual([]);
    });
  });
}

describe("retained messages to a durable session", () => {
  test("an older value from the backlog does not keep away what was retained after it", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ receiveMaximum: 1 });
    for (const filter of ["first", "t"]) await s.subscribe(filter, { retainHandling: 2 });
    await s.drop();
    s.take();
    await world.publish("p", "first", "in flight");
    await world.publish("p", "t", "older", { retain: true });
    // At QoS 0 nothing is stored for the session: only the retained copy holds it.
    await world.publish("p", "t", "newer", { qos: 0, retain: true });
    await s.connect({ receiveMaximum: 1 });
    await s.subscribe("t");
    s.autoAck = true;
    s.puback(1);
    await world.advance(500);
    const lines = ofTopic(s.take(), "t").map((line) => line.replace(/publish (\d+ )?/, ""));
    expect(lines).toEqual(["q1 t older", "q0 retain t newer"]);
  });

  test("what No Local leaves out of the backlog is not kept away from another filter's job", async () => {
    const world = await World.start();
    const s = await world.client("s").connect({ receiveMaximum: 1 });
    await s.subscribe("first", { retainHandling: 2 });
    await s.subscribe("t", { noLocal: true, retainHandling: 2 });
    await world.publish("p", "first", "in flight");
    await world.publish("p", "t", "older", { qos: 1, retain: true });
    await world.publish("s", "t", "newer", { qos: 1, retain: true });
    await s.subscribe("+");
    s.autoAck = true;
    s.puback(1);
    await world.advance(500);
    const lines = ofTopic(s.take(), "t").map((line) => line.replace(/publish (\d+ )?/, ""));
    expect(lines).toEqual(["q1 t older", "q1 retain t newer"]);
  });

  test("what an UNSUBSCRIBE drops from the backlog is not kept away from another filter's job", async () => {
    const world = await World.start();
    await putMany(world, 20);
    const s = await world.client("s").connect({ receiveMaximum: 1 });
    await s.subscribe("r/0019", { retainHandling: 2 });
    for (const value of ["first", "older", "newer"]) {
      await world.publish("p", "r/0019", value, { qos: 1, retain: true });
    }
    await s.subscribe("r/#");
    const got: string[] = [];
    while (!got.some((line) => line.endsWith("older"))) {
      got.push(...s.take().filter((line) => line.startsWith("publish")));
      if (!got.at(-1)!.endsWith("older")) s.puback(Number(idOf(got.at(-1)!)));
      await world.advance(50);
    }
    await s.unsubscribe("r/0019");
    s.autoAck = true;
    s.puback(Number(idOf(got.at(-1)!)));
    await world.advance(2000);
    const lines = [...got, ...s.take()];
    expect(ofTopic(lines, "r/0019").map((line) => line.split(" ").at(-1))).toEqual([
      "first",
      "older",
      "newer",
    ]);
  });

  for (const qos of [1, 2] as const) {
    test(`after a crash all come; QoS ${qos}: what came before carries DUP, QoS 2 comes once`, async () => {
      const world = await World.start({ settings: { retainedPageMax: 7 } });
      await putMany(world, 60, qos);
      const s = await world.client("s").connect({ receiveMaximum: 4 });
      s.autoAck = true;
      await s.subscribe("r/#", { qos });
      await world.clock.runUntil(() => s.peek().length > 25);
      await world.crash();
      const linesBefore = s.take();
      const before = topicsOf(linesBefore);
      await s.connect({ receiveMaximum: 4 });
      await world.advance(5000);
      const lines = s.take().filter((line) => line.startsWith("publish"));
      expect(new Set([...before, ...topicsOf(lines)]).size).toBe(60);
      for (const line of lines) {
        if (before.includes(topicsOf([line])[0]!)) expect(line).toContain(" dup ");
      }
      if (qos === 2) {
        // The same exchange, so the client sees the same id.
        for (const line of lines) {
          const sent = linesBefore.find((other) => topicsOf([other])[0] === topicsOf([line])[0]);
          if (sent !== undefined) expect(idOf(line)).toBe(idOf(sent));
        }
      }
    });
  }

  test("one in flight beyond the stored position of its job is not sent a second time", async () => {
    const world = await World.start({ store: { stateShards: 1 } });
    await putMany(world, 5);
    const s = await world.client("s").connect({ receiveMaximum: 2 });
    await s.subscribe("r/#");
    await world.advance(100);
    expect(topicsOf(s.take())).toEqual(["r/0000", "r/0001"]);
    await s.drop();
    // As a checkpoint leaves it that a crash has cut after its in-flight records.
    const record = { filter: "r/#", after: undefined, doubtTopic: undefined, start: new Map() };
    const write = { key: "session/s/job/r%2f%23", value: encodeJob(record) };
    world.store.state("s").write([write], [], () => undefined);
    await world.advance(10);
    s.autoAck = true;
    await s.connect();
    await world.advance(500);
    expect(topicsOf(s.take())).toEqual(["r/0000", "r/0001", "r/0002", "r/0003", "r/0004"]);
  });

  test("R63: a resume without SUBSCRIBE starts no job", async () => {
    const world = await World.start();
    await world.publish("p", "t", "m", { retain: true });
    const s = await world.client("s").connect({ version: 4 });
    await s.subscribe("t");
    await world.advance(50);
    s.puback(1);
    expect(s.take()).toEqual(["suback 1", "publish 1 q1 retain t m"]);
    await s.drop();
    await s.connect({ version: 4 });
    await world.advance(100);
    expect(s.take()).toEqual([]);
    await s.subscribe("t");
    await world.advance(50);
    expect(s.take()).toEqual(["suback 1", "publish 2 q1 retain t m"]);
  });

  test("a retained message in flight is kept with the session, though a new one is put", async () => {
    const world = await World.start();
    await world.publish("p", "t", "old", { retain: true });
    const s = await world.client("s").connect();
    await s.subscribe("t");
    await world.advance(100);
    await s.drop();
    await world.publish("p", "t", "new", { retain: true });
    await world.crash();
    s.take();
    await s.connect();
    await world.advance(50);
    expect(s.take()).toEqual(["publish 1 q1 dup retain t old", expect.stringMatching(/q1 t new$/)]);
  });
});

test("a page is read once for all who come at the same time, and anew after a put", async () => {
  const world = await World.start({ settings: { retainedPageMax: 10 } });
  await putMany(world, 60);
  let reads = 0;
  for (const shard of world.store.stateShards) {
    const match = shard.match.bind(shard);
    shard.match = (prefix, filter, options) => {
      reads++;
      return match(prefix, filter, options);
    };
  }
  const clients = [];
  for (let n = 0; n < 20; n++) clients.push(await world.client(`c${n}`).connect({ expiryS: 0 }));
  for (const client of clients) client.autoAck = true;
  await world.clock.complete(Promise.all(clients.map((client) => client.subscribeLater("r/#"))));
  await world.advance(100);
  for (const client of clients) expect(new Set(topicsOf(client.take())).size).toBe(60);
  expect(reads).toBeLessThan(12);
  await world.publish("p", "r/0000", "newer", { retain: true });
  const late = await world.client("late").connect({ expiryS: 0 });
  await late.subscribe("r/#");
  await world.advance(100);
  const got = late.take().filter((line) => line.includes(" r/0000 "));
  expect(got.map((line) => line.split(" ").at(-1))).toEqual(["newer"]);
});

test("a page that is read while a put is on its way is not kept", async () => {
  const world = await World.start({ store: { commitMs: 50 } });
  await putMany(world, 3);
  const put = world.publishLater("p", "r/0000", "newer", { retain: true });
  expect((await readAll(world)).sort()).toEqual(["v0", "v1", "v2"]);
  await world.clock.complete(put);
  expect((await readAll(world)).sort()).toEqual(["newer", "v1", "v2"]);
});

async function readAll(world: World): Promise<string[]> {
  const payloads: string[] = [];
  for (let after: string | undefined, first = true; first || after !== undefined; first = false) {
    const page = await world.clock.complete(world.sessions.retained.page("r/#", after, 10));
    payloads.push(...page.messages.map(({ frame }) => frame.toString()));
    after = page.next;
  }
  return payloads;
}

test("a retained topic longer than a key is refused with a code", async () => {
  const world = await World.start();
  const topic = "x".repeat(65_400);
  await expect(world.publish("p", topic, "m", { retain: true })).rejects.toMatchObject({
    code: "SESSION_RETAINED_TOPIC_TOO_LONG",
  });
});

test("pages go over all shards, in any size, and leave nothing out", async () => {
  const world = await World.start({ store: { stateShards: 3 } });
  await putMany(world, 50);
  for (const countMax of [1, 7, 50, 1000]) {
    const topics: string[] = [];
    let after: string | undefined;
    do {
      const page = await world.clock.complete(world.sessions.retained.page("r/+", after, countMax));
      expect(page.messages.length).toBeLessThanOrEqual(countMax);
      topics.push(...page.messages.map((message) => message.topic));
      after = page.next;
    } while (after !== undefined);
    expect(topics.sort()).toEqual(Array.from({ length: 50 }, (_, n) => `r/${pad(n)}`));
  }
});

test("pages of filters that nothing matches count against the cache with the length of the filter", async () => {
  const clock = new SimClock({ random: new SeededRandom(1) });
  const retained = new RetainedStore(new FakeStore(clock, { stateShards: 1 }), {
    nowUs: () => clock.wallUs(),
    onCorrupt: () => undefined,
    cacheBytesMax: 1024 * 1024,
  });
  const readAll = async (level: string): Promise<void> => {
    for (let n = 0; n < 5000; n++) {
      await clock.complete(retained.readPage(`${n}/${level}/+`, undefined, 10));
    }
  };
  await readAll("x");
  // About three to a kilobyte.
  expect(retained.pageCount).toBeGreaterThan(2000);
  expect(retained.pageCount).toBeLessThan(3000);
  await readAll("x".repeat(10_000));
  expect(retained.pageCount).toBeLessThan(60);
});

async function putMany(world: World, count: number, qos: 1 | 2 = 2): Promise<void> {
  const puts = Array.from({ length: count }, (_, n) =>
    world.publishLater("p", `r/${pad(n)}`, `v${n}`, { qos, retain: true }),
  );
  await world.clock.complete(Promise.all(puts));
  await world.advance(10);
}

const topics20 = Array.from({ length: 20 }, (_, n) => `r/${pad(n)}`);

/** A reader that has two of 20 retained messages in flight; a page of the others is read already. */
async function pagedReader(expiryS: number) {
  const world = await World.start({ settings: { retainedPageMax: 5 } });
  await putMany(world, 20);
  const s = await world.client("s").connect({ expiryS, receiveMaximum: 2 });
  await s.subscribe("r/#");
  return { world, s };
}

/** The PUBLISH packets that come once the reader acks. */
async function rest(world: World, s: Awaited<ReturnType<typeof pagedReader>>["s"]) {
  s.autoAck = true;
  for (const id of [1, 2]) s.puback(id);
  await world.advance(5000);
  return s.take().filter((line) => line.startsWith("publish"));
}

function ofTopic(lines: readonly string[], topic: string): string[] {
  return lines.filter((line) => line.includes(` ${topic} `));
}

function pad(n: number): string {
  return String(n).padStart(4, "0");
}

function topicsOf(lines: readonly string[]): string[] {
  return lines.filter((line) => line.startsWith("publish")).map((line) => line.split(" ").at(-2)!);
}

function idOf(line: string): string {
  return line.split(" ")[1]!;
}

function jobKeys(world: World): string[] {
  return world.store.stateShards.flatMap((shard) =>
    shard.keys().filter((key) => key.includes("/job/") || key.includes("/out/")),
  );
}
