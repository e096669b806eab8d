import { describe, expect, test } from "vitest";
import { type LocalStore, ltsSettingsDefault } from "../../../src/store/index.ts";
import { parseTopicFilter } from "../../../src/topic/index.ts";
import { loseTheFifth, put, shardDir } from "../../support/lost-block.ts";
import { Reader } from "../../support/store-calls.ts";
import { StoreMachine } from "../../support/store-machine.ts";

const oneShard = (seed: number) => new StoreMachine({ seed, store: { shards: 1 } });

async function readAll(m: StoreMachine, store: LocalStore, from = 0): Promise<Reader> {
  const positions = new Map(store.logShards.map((shard) => [shard, from]));
  const reader = new Reader(store, ["#"], positions);
  await m.clock.runUntil(() => reader.subscriber.atTail);
  await m.clock.advance(10);
  return reader;
}

async function changeBlocks(
  m: StoreMachine,
  change: (value: Buffer, at: number) => Buffer | undefined,
): Promise<void> {
  const kv = await m.clock.complete(m.kv.open(`${shardDir(m)}/g00000001/blocks`));
  const cursor = kv.cursor({});
  const entries = await m.clock.complete(cursor.next(100));
  await cursor.close();
  const batch = kv.batch();
  for (const [at, [key, value]] of entries.entries()) {
    const changed = change(value, at);
    if (changed === undefined) batch.delete(key);
    else batch.put(key, changed);
  }
  await m.clock.complete(batch.write({ sync: true }));
  await m.clock.complete(kv.close());
}

function flipped(value: Buffer): Buffer {
  const copy = Buffer.from(value);
  copy[copy.length >> 1]! ^= 1;
  return copy;
}

describe("a block", () => {
  async function threeBlocks(m: StoreMachine): Promise<number[]> {
    const { store } = await m.boot();
    const times: number[] = [];
    for (let block = 0; block < 3; block++) {
      for (let n = 0; n < 5; n++) times.push(await put(m, store, "a/b", `${block}-${n}`));
      await m.clock.complete(store.checkpoint());
    }
    m.kill();
    return times;
  }

  test("that is damaged goes to the quarantine, its readers go on and are told how many", async () => {
    const m = oneShard(1);
    const times = await threeBlocks(m);
    await changeBlocks(m, (value, at) => (at === 1 ? flipped(value) : value));
    const { store } = await m.boot();
    const reader = await readAll(m, store);
    expect(reader.values).toEqual([0, 2].flatMap((b) => [0, 1, 2, 3, 4].map((n) => `${b}-${n}`)));
    const [report] = reader.missedReports;
    expect(report).toMatchObject({ count: 5, estimated: true, reason: "damaged" });
    expect(report!.fromUs).toBeLessThan(times[5]!);
    expect(report!.toUs).toBe(times[9]);
    const kept = await m.clock.complete(m.disk.list("data/quarantine"));
    expect(kept).toHaveLength(1);
    expect((await readAll(m, store)).missedReports).toHaveLength(1);
  });

  test("that is gone is reported, and a full volume does not stop its readers", async () => {
    const m = oneShard(2);
    await threeBlocks(m);
    await changeBlocks(m, (value, at) => (at === 0 ? undefined : flipped(value)));
    const { store } = await m.boot();
    m.disk.setCapacity(0);
    const reader = await readAll(m, store);
    expect(reader.values).toEqual([]);
    expect(reader.missedReports.map(({ count }) => count)).toEqual([5, 5, 5]);
  });

  test("that a filter does not touch is not read, nor reported", async () => {
    const m = oneShard(3);
    await threeBlocks(m);
    await changeBlocks(m, flipped);
    const { store } = await m.boot();
    const reader = new Reader(store, ["other/#"], new Map());
    await m.clock.advance(100);
    expect(reader.missedReports).toEqual([]);
  });
});

describe("a slab", () => {
  async function threeGenerations(m: StoreMachine, late = 0): Promise<number[]> {
    const { store } = await m.boot();
    const lastUs: number[] = [];
    for (let g = 1; g <= 3; g++) {
      for (let n = 0; n < 4; n++) lastUs[g] = await put(m, store, `t/${n}`, `${g}-${n}`);
      if (g < 3) await m.clock.complete(store.rotate());
      else await m.clock.complete(store.checkpoint());
    }
    for (let n = 0; n < late; n++) await put(m, store, `t/${n}`, `late-${n}`);
    m.kill();
    return lastUs;
  }

  const everything = [1, 2, 3].flatMap((g) => [0, 1, 2, 3].map((n) => `${g}-${n}`));
  const quarantined = (m: StoreMachine): string[] =>
    m.kv.paths.filter((path) => path.includes("quarantine"));

  test("that was sealed and lost its index is mended from its blocks", async () => {
    const m = oneShard(4);
    await threeGenerations(m);
    m.kv.damage(`${shardDir(m)}/g00000002/index`);
    for (let start = 0; start < 3; start++) {
      const { store } = await m.boot();
      const reader = await readAll(m, store);
      expect(reader.values).toEqual(everything);
      expect(reader.missedReports).toEqual([]);
      // The second start begins behind a checkpoint, the third behind a power cut.
      if (start === 1) await m.clock.advance(5_000);
      m.crash();
    }
    const mended = m.events.filter(({ event }) => event === "store.slab_mended");
    expect(mended[0]?.fields).toMatchObject({ topicsRebuilt: true, ttvsLost: 0 });
    expect(quarantined(m).length).toBeGreaterThan(0);
  });

  test("that was sealed and lost its blocks tells its readers of each", async () => {
    const m = oneShard(4);
    const lastUs = await threeGenerations(m);
    m.kv.damage(`${shardDir(m)}/g00000002/blocks`);
    for (let start = 0; start < 2; start++) {
      const { store } = await m.boot();
      const reader = await readAll(m, store);
      expect(reader.values.map((value) => value[0])).toEqual([..."11113333"]);
      expect(reader.missedReports.map(({ count }) => count)).toEqual([1, 1, 1, 1]);
      expect(reader.missedReports[0]!.fromUs).toBeGreaterThanOrEqual(lastUs[1]!);
      expect(reader.missedReports.at(-1)!.toUs).toBeLessThanOrEqual(lastUs[2]!);
      await m.clock.advance(5_000);
      m.crash();
    }
  });

  test("that was sealed and lost everything tells its readers how many are gone", async () => {
    const m = oneShard(4);
    const lastUs = await threeGenerations(m);
    for (const name of ["blocks", "index"]) m.kv.damage(`${shardDir(m)}/g00000002/${name}`);
    for (let start = 0; start < 2; start++) {
      const { store } = await m.boot();
      const reader = await readAll(m, store);
      expect(reader.values.map((value) => value[0])).toEqual([..."11113333"]);
      expect(reader.missedReports.reduce((sum, { count }) => sum + count, 0)).toBe(4);
      // Who has read all of it is told nothing.
      const later = await readAll(m, store, lastUs[2]! + 1_000_000);
      expect(later.missedReports).toEqual([]);
      await m.clock.advance(5_000);
      m.crash();
    }
  });

  test("that lost a block and the row that led to it tells each reader once of a span it lay in", async () => {
    const { m, times } = await loseTheFifth();
    const lostUs = times[4]!;
    for (let start = 0; start < 2; start++) {
      const { store } = await m.boot();
      const reader = await readAll(m, store);
      expect(reader.values).toHaveLength(31);
      expect(reader.missedReports).toMatchObject([{ count: 1, reason: "damaged" }]);
      expect(reader.missedReports[0]!.fromUs).toBeLessThan(lostUs);
      expect(reader.missedReports[0]!.toUs).toBeGreaterThanOrEqual(lostUs);
      // Whoever goes on in the middle of the span is told there or here, not twice.
      for (const room of [1, 3, 7, 10]) {
        const first = new Reader(store, ["#"], new Map(), { room });
        await m.clock.advance(100);
        first.subscriber.close();
        const shard = store.logShards[0]!;
        const rest = await readAll(m, store, first.subscriber.position(shard));
        expect([...first.values, ...rest.values]).toEqual(reader.values);
        const told = [...first.missedReports, ...rest.missedReports];
        expect(told.map(({ count }) => count)).toEqual([1]);
      }
      await m.clock.advance(5_000);
      m.crash();
    }
  });

  test("that lost what a reader passed tells it, also where its filter matches nothing behind", async () => {
    const { m, times } = await loseTheFifth(({ interest }) => interest.add("t/0", new Map()));
    for (let start = 0; start < 2; start++) {
      const opened = await m.clock.complete(m.open());
      opened.store.interest.add("t/0", new Map());
      await m.clock.complete(opened.store.start());
      const { store } = opened;
      const shard = store.logShards[0]!;
      // It ends with the last match in hand, before it comes to the end of what is gone.
      const first: Reader = new Reader(store, ["t/0"], new Map(), { room: 5 });
      first.onOffer = () => {
        if (first.room === 0) first.subscriber.close();
      };
      await m.clock.advance(100);
      expect(first.values).toEqual(["0", "2", "6", "8", "10"]);
      expect(first.missedReports).toEqual([]);
      const rest = new Reader(store, ["t/0"], new Map([[shard, times[10]!]]));
      await m.clock.runUntil(() => rest.subscriber.atTail);
      expect(rest.missedReports).toMatchObject([{ count: 1, reason: "damaged" }]);
      // A filter that has no part in what is gone hears nothing.
      const other = new Reader(store, ["u/#"], new Map());
      await m.clock.runUntil(() => other.subscriber.atTail);
      expect(other.missedReports).toEqual([]);
      // The second start begins behind a checkpoint, which says so too.
      await m.clock.advance(5_000);
      m.crash();
    }
  });

  test("that is written to is mended from the log, and loses no word of what is behind", async () => {
    for (const names of [["index"], ["blocks"], ["blocks", "index"]]) {
      for (const how of ["damage", "hollow"] as const) {
        const m = oneShard(5);
        await threeGenerations(m, 3);
        let store: LocalStore;
        for (const name of names) m.kv[how](`${shardDir(m)}/g00000003/${name}`);
        for (let start = 0; start < 2; start++) {
          ({ store } = await m.boot());
          const reader = await readAll(m, store);
          expect(reader.values).toEqual([...everything, "late-0", "late-1", "late-2"]);
          expect(reader.missedReports).toEqual([]);
          m.crash();
        }
        ({ store } = await m.boot());
        await put(m, store, "t/9", "new");
        await m.clock.complete(store.rotate());
        expect((await readAll(m, store)).values.at(-1)).toBe("new");
        expect(m.events.some(({ event }) => event === "store.slab_mended")).toBe(true);
      }
    }
  });

  test("that is written to and whose log has gone on counts what is lost, to the last one", async () => {
    const m = new StoreMachine({ seed: 9, store: { shards: 1 }, segmentBytes: 4096 });
    let { store } = await m.boot();
    const expected: string[] = [];
    for (let n = 0; n < 60; n++) {
      const value = `${n}-${"x".repeat(200)}`;
      await put(m, store, `t/${n % 3}`, value);
      expected.push(value);
      if (n % 10 === 9) await m.clock.complete(store.checkpoint());
    }
    await m.clock.advance(2_000);
    m.kill();
    // Of the blocks the oldest ones are left, of the index nothing.
    m.kv.hollow(`${shardDir(m)}/g00000001/index`);
    let kept = 0;
    m.kv.hollow(`${shardDir(m)}/g00000001/blocks`, () => kept++ < 6);
    for (let start = 0; start < 2; start++) {
      ({ store } = await m.boot());
      const reader = await readAll(m, store);
      const missed = reader.missedReports.reduce((sum, { count }) => sum + count, 0);
      expect(missed).toBeGreaterThan(0);
      expect(reader.values.length).toBeGreaterThanOrEqual(20);
      expect(reader.values.length + missed).toBe(60);
      expect(reader.values).toEqual(expected.filter((value) => reader.values.includes(value)));
      m.crash();
    }
    ({ store } = await m.boot());
    await put(m, store, "t/1", "after");
    expect((await readAll(m, store)).values.at(-1)).toBe("after");
  });
});

describe("a running store", () => {
  const kinds = ["/blocks", "/index", "messages/s0003/store", "state/s0002/map"];
  test.each(kinds)("that finds %s damaged ends; the next start has everything", async (path) => {
    const m = oneShard(13);
    let { store } = await m.boot();
    await put(m, store, "a/1", "one");
    await m.clock.complete(store.checkpoint());
    await put(m, store, "a/2", "two");
    m.kv.inject({ on: path.endsWith("store") ? "sync" : "write", path, fails: "EBADMSG" });
    const write = [{ key: "k", value: Buffer.from("v") }];
    store.state("x").write(write, [], () => undefined);
    store.checkpoint().catch(() => undefined);
    await m.clock.runUntil(() => store.refusal?.code === "STORE_FAILED");
    m.kill();
    ({ store } = await m.boot());
    const reader = await readAll(m, store);
    expect(reader.values).toEqual(["one", "two"]);
    expect(reader.missedReports).toEqual([]);
    expect((await m.clock.complete(store.state("x").get("k")))?.value?.toString()).toBe("v");
    expect(m.events.map(({ event }) => event)).toContain("store.kv_mended");
  });

  test("that cannot read rows of a slab tells so before it goes on: a start may mend them", async () => {
    const m = oneShard(14);
    let { store } = await m.boot();
    const sent: string[] = [];
    for (let n = 0; n < 8; n++) {
      sent.push(`${n}`);
      await put(m, store, n % 2 === 0 ? "a/1" : "b/1", `${n}`);
      await m.clock.complete(store.checkpoint());
    }
    m.kill();
    ({ store } = await m.boot());
    m.kv.inject({ on: "read", path: "g00000001/index", fails: "EBADMSG", times: 1 });
    const first = new Reader(store, ["#"], new Map(), { room: 2 });
    await m.clock.advance(100);
    expect(first.values).toHaveLength(2);
    const positions = first.subscriber.positions();
    m.kill();
    ({ store } = await m.boot());
    const rest = new Reader(store, ["#"], positions);
    await m.clock.runUntil(() => rest.subscriber.atTail);
    const got = [...first.values, ...rest.values];
    const missed = first.missedReports.reduce((sum, { count }) => sum + count, 0);
    expect(m.events.map(({ event }) => event)).toContain("store.rows_lost");
    expect(new Set(got).size).toBe(got.length);
    expect(got.length).toBeLessThan(sent.length);
    expect(got.length + missed).toBeGreaterThanOrEqual(sent.length);
  });
});

describe("the shard store", () => {
  test.each(["store.copy", "store"])("%s is made anew from the other one", async (name) => {
    for (const how of ["damage", "hollow"] as const) {
      const m = oneShard(10);
      let { store } = await m.boot();
      await put(m, store, "a/1", "one");
      await m.clock.complete(store.rotate());
      await put(m, store, "a/2", "two");
      await m.clock.complete(store.checkpoint());
      await put(m, store, "a/3", "three");
      m.kill();
      if (name === "store") m.kv[how](`${shardDir(m)}/store`);
      else m.disk.flipBit(`${shardDir(m)}/store.copy`, 100);
      for (let start = 0; start < 3; start++) {
        ({ store } = await m.boot());
        const reader = await readAll(m, store);
        expect(reader.values).toEqual(["one", "two", "three"]);
        expect(reader.missedReports).toEqual([]);
        m.crash();
      }
      const event = name === "store" ? "store.shard_store_mended" : "store.copy_damaged";
      expect(m.events.filter((each) => each.event === event)).toHaveLength(1);
    }
  });

  const ways = ["map", "store"].flatMap((kv) => [`${kv} damage`, `${kv} hollow`]);
  test.each(ways)(
    "of a map shard, or its slab (%s): the log brings back what they held",
    async (way) => {
      const [kv, how] = way.split(" ") as ["map" | "store", "damage" | "hollow"];
      const m = oneShard(11);
      let { store } = await m.boot();
      const write = (key: string, value: string) => {
        const writes = [{ key, value: Buffer.from(value) }];
        const written = new Promise<void>((resolve, reject) => {
          const done = (error: Error | undefined) =>
            error === undefined ? resolve() : reject(error);
          store.state("x").write(writes, [], done);
        });
        return m.clock.complete(written);
      };
      const value = async (key: string) =>
        (await m.clock.complete(store.state("x").get(key)))?.value?.toString();
      await write("k/1", "one");
      await m.clock.complete(store.checkpoint());
      await write("k/2", "two");
      m.kill();
      m.kv[how](`data/db/state/s0002/${kv}`);
      for (let start = 0; start < 2; start++) {
        ({ store } = await m.boot());
        expect([await value("k/1"), await value("k/2")]).toEqual(["one", "two"]);
        m.crash();
      }
      const mended = m.events.filter(({ event }) => event === "store.map_mended");
      const complete = { database: "state", isComplete: true, fromIndex: 1 };
      expect(mended.map(({ fields }) => fields)).toMatchObject(kv === "map" ? [complete] : []);
    },
  );

  test.each(["whole", "damaged"])(
    "of a map shard whose log has gone on, with a copy that is %s",
    async (copy) => {
      const m = oneShard(12);
      for (let start = 0; start < 2; start++) {
        const { store } = await m.boot();
        await m.clock.complete(store.checkpoint());
        await m.clock.advance(3_000);
        m.kill();
      }
      m.kv.hollow("data/db/meta/s0001/map");
      if (copy === "damaged") m.disk.flipBit("data/db/meta/s0001/map.copy", 80);
      for (let start = 0; start < 2; start++) {
        await m.boot();
        m.crash();
      }
      const mended = m.events.filter(({ event }) => event === "store.map_mended");
      expect(mended.map(({ fields }) => fields?.isComplete)).toEqual([copy === "whole"]);
    },
  );

  test("that lost rows which its copy has gets them back, whatever its checkpoint says", async () => {
    const m = oneShard(14);
    let { store } = await m.boot();
    for (let g = 0; g < 3; g++) {
      await put(m, store, "a/b", `${g}`);
      await m.clock.complete(store.rotate());
    }
    m.kill();
    // The rows of the first two generations.
    m.kv.damage(`${shardDir(m)}/store`, (key) => key[0] !== 0x67 || key.readUInt32BE(1) > 2);
    for (let start = 0; start < 2; start++) {
      ({ store } = await m.boot());
      const reader = await readAll(m, store);
      expect(reader.values).toEqual(["0", "1", "2"]);
      expect(reader.missedReports).toEqual([]);
      m.crash();
    }
  });

  test("that lost rows and has no copy lets no messages be removed", async () => {
    const m = oneShard(15);
    let { store } = await m.boot();
    await put(m, store, "a/b", "0");
    await m.clock.complete(store.rotate());
    m.kill();
    m.kv.damage(`${shardDir(m)}/store`);
    m.disk.flipBit(`${shardDir(m)}/store.copy`, 80);
    ({ store } = await m.boot());
    await put(m, store, "a/b", "1");
    // The log still had the first one; what only the slab has can be got from the quarantine.
    expect((await readAll(m, store)).values).toEqual(["0", "1"]);
    expect(m.kv.paths.filter((path) => /quarantine.*g0000000\d-blocks/.test(path))).toHaveLength(2);
    expect(m.events.map(({ event }) => event)).toContain("store.slab_set_aside");
  });
});

describe("the log", () => {
  /** Flips a bit of the record that holds `text`. */
  async function rot(m: StoreMachine, text: string): Promise<void> {
    for (const { name } of await m.clock.complete(m.disk.list("data/log"))) {
      const path = `data/log/${name}`;
      const at = m.disk.peek(path).indexOf(text);
      if (at >= 0) return m.disk.flipBit(path, at * 8);
    }
    throw new Error(`${text} is not in the log`);
  }

  /** The fifth entry teaches a branch that those behind it build on. */
  const topicOf = (n: number): string => (n < 4 ? `t${n}/x` : `deep/${n}/x`);

  async function tenTopics(m: StoreMachine): Promise<number[]> {
    const { store } = await m.boot();
    const times: number[] = [];
    for (let n = 0; n < 10; n++) times.push(await put(m, store, topicOf(n), `v${n}.`));
    await m.clock.advance(3_000);
    return times;
  }

  test("that has rotted in the middle costs that entry: a new epoch, and readers are told", async () => {
    const m = oneShard(6);
    const times = await tenTopics(m);
    m.kill();
    await rot(m, "v4.");
    const { store } = await m.boot();
    const reader = await readAll(m, store);
    expect(reader.received.map(({ topic, value }) => `${topic} ${value}`)).toEqual(
      [0, 1, 2, 3, 5, 6, 7, 8, 9].map((n) => `${topicOf(n)} v${n}.`),
    );
    const span = { fromUs: times[3], toUs: times[5]! - 1, reason: "damaged" };
    expect(reader.missedReports).toMatchObject([span]);
    expect(reader.missedReports[0]!.count).toBeGreaterThanOrEqual(1);
    expect((await readAll(m, store, times[5])).missedReports).toEqual([]);
    expect((await readAll(m, store, times[4])).missedReports).toHaveLength(1);
    await put(m, store, "t4/x", "again");
    m.crash();
    const next = await m.boot();
    const late = await readAll(m, next.store);
    expect(late.values).toEqual([0, 1, 2, 3, 5, 6, 7, 8, 9].map((n) => `v${n}.`).concat("again"));
    expect(late.missedReports).toMatchObject([span]);
    await put(m, next.store, "t4/y", "after");
    expect(m.events.filter(({ event }) => event === "store.entries_lost")).toHaveLength(1);
  });

  test("that has rotted at its end costs the end; a position there is told and goes on", async () => {
    const m = oneShard(7);
    const times = await tenTopics(m);
    m.kill();
    await rot(m, "v9.");
    const { store } = await m.boot();
    const reader = await readAll(m, store, times[8]);
    expect(reader.values).toEqual([]);
    expect(reader.missedReports).toMatchObject([{ fromUs: times[8], reason: "damaged" }]);
    const [positionUs] = [...reader.subscriber.positions().values()];
    expect(positionUs).toBe(reader.missedReports[0]!.toUs);
    const laterUs = await put(m, store, "t9/x", "new");
    expect(laterUs).toBeGreaterThan(positionUs!);
    expect(reader.values).toEqual(["new"]);
    m.kill();
    await m.boot();
    expect(m.events.filter(({ event }) => event === "store.entries_lost")).toHaveLength(1);
  });

  test("that lost a rotation goes on in the generation before, with streams learned anew", async () => {
    const lts = { ...ltsSettingsDefault, patterns: [parseTopicFilter("rotation/+")] };
    const m = new StoreMachine({ seed: 8, store: { shards: 1, lts } });
    const { store } = await m.boot();
    await put(m, store, "a/1", "before");
    // The rotation stays in the log: its checkpoint never ends.
    m.kv.inject({ on: "sync", hangs: true, times: Number.POSITIVE_INFINITY });
    store.rotate().catch(() => undefined);
    await m.clock.runUntil(() => m.phases.has("generation.rotated"));
    for (let n = 0; n < 5; n++) await put(m, store, `b/${n}/c`, `behind-${n}`);
    await m.clock.advance(3_000);
    m.kill();
    m.kv.heal();
    await rot(m, "rotation");
    const next = await m.boot();
    const expected = ["before", ...[0, 1, 2, 3, 4].map((n) => `behind-${n}`)];
    expect((await readAll(m, next.store)).values).toEqual(expected);
    await m.clock.complete(next.store.rotate());
    await put(m, next.store, "a/1", "last");
    m.crash();
    const last = await m.boot();
    expect((await readAll(m, last.store)).values).toEqual([...expected, "last"]);
  });
});
