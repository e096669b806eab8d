import { describe, expect, test } from "vitest";
import type { LocalStore } from "../../../src/store/index.ts";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { type MachineOptions, StoreMachine } from "../../support/store-machine.ts";

const oneShard = (seed: number, store: MachineOptions["store"] = {}) =>
  new StoreMachine({ seed, store: { shards: 1, ...store } });

async function put(m: StoreMachine, store: LocalStore, topic: string, value = topic) {
  const outcome = await m.clock.complete(append(store, appendRequest(topic, value)));
  return outcome.kind === "stored" ? outcome.timeUs : 0;
}

async function fill(m: StoreMachine, store: LocalStore, generations: number): Promise<number[]> {
  const lastUs: number[] = [];
  for (let g = 1; g <= generations; g++) {
    for (let n = 0; n < 3; n++) lastUs[g] = await put(m, store, `t/${n}`, `${g}-${n}`);
    await m.clock.complete(store.rotate());
  }
  return lastUs;
}

const atTail = (m: StoreMachine, reader: Reader): Promise<void> =>
  m.clock.runUntil(() => reader.subscriber.atTail);

test("a generation that the last checkpoint covers is sealed at the next start, idle or not", async () => {
  const m = oneShard(8);
  const first = await m.boot();
  await fill(m, first.store, 1);
  await m.clock.complete(first.store.checkpoint());
  m.kill();
  const { store } = await m.boot();
  const [shard] = store.operator.shards("messages");
  const generations = store.operator.generations(shard?.number ?? 0);
  expect(generations.map(({ state }) => state)).toEqual(["sealed", "current"]);
});

describe("open slabs", () => {
  test("above the limit the least used rests, and opens again for its next reader", async () => {
    const m = oneShard(1, { openSlabsMax: 2 });
    const { store } = await m.boot();
    await fill(m, store, 6);
    for (let round = 0; round < 2; round++) {
      const reader = new Reader(store, ["#"], new Map());
      await atTail(m, reader);
      expect(reader.values).toHaveLength(18);
      expect(store.openSlabs.count).toBeLessThanOrEqual(2);
    }
    expect(store.openSlabs.counters.slabsRested).toBeGreaterThan(4);
  });

  test("what resting slabs have learned is forgotten above its limit, and read again", async () => {
    const m = oneShard(5, { openSlabsMax: 1, restingTriesBytesMax: 1 });
    const { store } = await m.boot();
    await fill(m, store, 6);
    for (let round = 0; round < 2; round++) {
      const reader = new Reader(store, ["t/+"], new Map());
      await atTail(m, reader);
      expect(reader.values).toHaveLength(18);
      const found = await m.clock.complete(store.fetch(reader.refs));
      expect(found.map((ttv) => ttv?.frame.toString())).toEqual(reader.values);
    }
    expect(store.openSlabs.counters.triesForgotten).toBeGreaterThan(8);
    expect((await m.clock.complete(store.operator.verify())).findings).toEqual([]);
    expect((await m.clock.complete(store.operator.explain("t/1"))).streams).toHaveLength(6);
  });

  test("many readers over more slabs than may be open all come through", async () => {
    const m = oneShard(2, { openSlabsMax: 1, blockCacheBytesMax: 1 });
    const { store } = await m.boot();
    const lastUs = await fill(m, store, 5);
    const readers = [0, 1, 2, 3, 4].map((g) => {
      const from = new Map(store.logShards.map((shard) => [shard, lastUs[g] ?? 0]));
      return new Reader(store, ["#"], from);
    });
    for (const [g, reader] of readers.entries()) {
      await atTail(m, reader);
      expect(reader.values).toHaveLength(3 * (5 - g));
    }
  });

  test("a stored TTV is found by its reference, in memory, on disk, in a resting slab", async () => {
    const m = oneShard(3, { openSlabsMax: 1 });
    const { store } = await m.boot();
    await fill(m, store, 3);
    await put(m, store, "t/new", "open");
    const reader = new Reader(store, ["#"], new Map());
    await atTail(m, reader);
    const refs = [0, 4, 8, 9].map((at) => reader.refs[at]!);
    const found = await m.clock.complete(store.fetch(refs));
    expect(found.map((ttv) => ttv?.frame.toString())).toEqual(["1-0", "2-1", "3-2", "open"]);
    const gone = { ...refs[0]!, timeUs: refs[0]!.timeUs - 1 };
    const wrong = [gone, { ...refs[2]!, shard: 99 }];
    expect(await m.clock.complete(store.fetch(wrong))).toEqual([undefined, undefined]);
    // Generations and streams may have other numbers after a loss: the time finds it.
    const moved = { ...refs[1]!, generation: 77, stream: 5 };
    const [elsewhere] = await m.clock.complete(store.fetch([moved]));
    expect(elsewhere?.frame.toString()).toBe("2-1");
  });
});

describe("dropping", () => {
  test("a reader in the middle of what is dropped goes on behind it and is told", async () => {
    const m = oneShard(4, { blockCacheBytesMax: 1 });
    const { store } = await m.boot();
    const lastUs = await fill(m, store, 3);
    const reader = new Reader(store, ["#"], new Map(), { room: 1 });
    await m.clock.advance(50);
    expect(reader.values).toEqual(["1-0"]);
    await m.clock.complete(store.dropUntil(lastUs[3]!));
    reader.room = 100;
    reader.subscriber.wake();
    await atTail(m, reader);
    const told = reader.missedReports.reduce((sum, { count }) => sum + count, 0);
    expect(reader.values.length + told).toBeGreaterThanOrEqual(6);
    expect(reader.values.at(-1)).toBe("3-2");
    expect(m.kv.paths.some((path) => path.includes("g00000001"))).toBe(false);
  });

  test("what no filter began before is not reported", async () => {
    const m = oneShard(5);
    const { store } = await m.boot();
    const lastUs = await fill(m, store, 3);
    await m.clock.complete(store.dropUntil(lastUs[2]!));
    const start = new Map(store.logShards.map((shard) => [shard, lastUs[2]!]));
    const reader = new Reader(store, ["#"], new Map(), { start });
    await atTail(m, reader);
    expect(reader.values).toEqual(["3-0", "3-1", "3-2"]);
    expect(reader.missedReports).toEqual([]);
  });

  test("a drop that meets a checkpoint under way is durable when it resolves", async () => {
    const m = oneShard(6);
    const { store } = await m.boot();
    const lastUs = await fill(m, store, 2);
    await put(m, store, "t/0", "x");
    let drop: Promise<void> | undefined;
    m.onPhase = (name) => {
      if (name === "checkpoint.captured") drop ??= store.dropUntil(lastUs[2]!);
    };
    await m.clock.complete(store.checkpoint());
    await m.clock.complete(drop!);
    await m.clock.advance(50);
    // Its folder goes only after a checkpoint without it.
    expect(m.kv.paths.some((path) => path.includes("g00000001"))).toBe(false);
    m.crash();
    m.onPhase = undefined;
    const next = await m.boot();
    const reader = new Reader(next.store, ["#"], new Map());
    await atTail(m, reader);
    expect(reader.values).toEqual(["2-0", "2-1", "2-2", "x"]);
    expect(reader.missedReports).toMatchObject([{ count: 3, reason: "expired" }]);
  });

  test("the current generation stays, and dropping twice is dropping once", async () => {
    const m = oneShard(7);
    const { store } = await m.boot();
    const lastUs = await fill(m, store, 1);
    await put(m, store, "t/0", "current");
    const both = [store.dropUntil(lastUs[1]! * 2), store.dropUntil(lastUs[1]! * 2)];
    await m.clock.complete(Promise.all(both));
    const reader = new Reader(store, ["#"], new Map());
    await atTail(m, reader);
    expect(reader.values).toEqual(["current"]);
    expect(reader.missedReports).toMatchObject([{ count: 3, reason: "expired" }]);
  });
});

describe("rotation", () => {
  test("that comes when the store is closing opens nothing that would stay open", async () => {
    const m = oneShard(8);
    const { store, log } = await m.boot();
    await put(m, store, "a");
    const both = Promise.allSettled([store.close(), store.rotate()]);
    const [, rotated] = await m.clock.complete(both);
    expect(rotated).toMatchObject({ status: "rejected", reason: { code: "STORE_CLOSED" } });
    await m.clock.complete(log.close());
    // Nothing is locked: the same machine opens it again without the end of the process.
    expect((await m.boot()).store.logShards).toHaveLength(1);
  });

  test("appends of the same turn go to the generation that the log puts them in", async () => {
    const m = oneShard(8);
    const { store } = await m.boot();
    const all: Array<Promise<unknown>> = [];
    for (let n = 0; n < 30; n++) {
      all.push(append(store, appendRequest(`t/${n}/x`, `v${n}`)));
      if (n % 10 === 5) all.push(store.rotate());
      await m.clock.advance(0.05);
    }
    await m.clock.complete(Promise.all(all));
    m.crash();
    const next = await m.boot();
    const reader = new Reader(next.store, ["#"], new Map());
    await atTail(m, reader);
    expect(reader.values).toEqual(Array.from({ length: 30 }, (_, n) => `v${n}`));
  });
});

describe("starting", () => {
  test("costs the same however much is stored", async () => {
    const calls: number[] = [];
    for (const blocks of [2, 40]) {
      const m = oneShard(9);
      const { store } = await m.boot();
      for (let n = 0; n < blocks; n++) {
        const all = Array.from({ length: 256 }, () => append(store, appendRequest("t", "x")));
        await m.clock.complete(Promise.all(all));
      }
      await m.clock.complete(store.checkpoint());
      m.kill();
      let rows = 0;
      const { open } = m.kv;
      m.kv.open = async (path, options) => {
        const kv = await open.call(m.kv, path, options);
        const { cursor } = kv;
        kv.cursor = (range) => {
          const made = cursor.call(kv, range);
          const { next } = made;
          made.next = async (countMax) => {
            const entries = await next.call(made, countMax);
            rows += entries.length;
            return entries;
          };
          return made;
        };
        return kv;
      };
      await m.boot();
      calls.push(rows);
    }
    expect(calls[1]).toBe(calls[0]);
  });
});

test("folders of generations that no row names go at the start, with both their stores", async () => {
  const m = new StoreMachine({ seed: 31, store: { shards: 1 } });
  const { store } = await m.boot();
  await m.clock.complete(append(store, appendRequest("a", "x")));
  await m.clock.complete(store.rotate());
  m.kill();
  const dir = "data/db/messages/s0003";
  const [disk, kv] = [m.disk.attach(), m.kv.attach()];
  // Made and never noted; packed and never switched to; dropped and not removed yet.
  for (const name of ["g00000009", "g00000001p7", "g00000000"]) {
    await m.clock.complete(disk.makeDir(`${dir}/${name}`));
    for (const each of ["blocks", "index"]) {
      const orphan = await m.clock.complete(kv.open(`${dir}/${name}/${each}`));
      await m.clock.complete(orphan.close());
    }
  }
  const again = await m.boot();
  await m.clock.advance(1_000);
  const named = /g0000000[12]\/(blocks|index)$/;
  expect(m.kv.paths.filter((path) => path.includes("/g") && !named.test(path))).toEqual([]);
  const names = (await m.clock.complete(m.disk.attach().list(dir))).map(({ name }) => name);
  expect(names.filter((name) => name.startsWith("g")).join()).not.toMatch(/g00000009|p7|g00000000/);
  const reader = new Reader(again.store, ["#"], new Map());
  await m.clock.advance(1_000);
  expect(reader.values).toEqual(["x"]);
});
