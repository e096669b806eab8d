import { expect, test } from "vitest";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { StoreMachine } from "../../support/store-machine.ts";

test("one pass of reads serves a thousand readers of one stream", async () => {
  const m = new StoreMachine({ seed: 6, store: { shards: 1 } });
  const { store } = await m.boot();
  const count = 640;
  for (let n = 0; n < count; n += 320) {
    const part = Array.from({ length: 320 }, (_, at) => appendRequest("a", `${n + at}`));
    await m.clock.complete(Promise.all(part.map((each) => append(store, each))));
  }
  await m.clock.complete(store.rotate());
  const blocks = store.operator.generations(store.logShards[0]!)[0]!.ttvs / 256;
  const readers = Array.from({ length: 1_000 }, () => new Reader(store, ["#"], new Map()));
  await m.clock.advance(5_000);
  for (const reader of readers) expect(reader.received).toHaveLength(count);
  const { blocksRead, blocksShared } = store.blockCache.counters;
  expect(blocksRead).toBeLessThanOrEqual(blocks + 1);
  expect(blocksShared).toBeGreaterThan(900 * blocks);
});

test("readers that come while others read, write and hand over miss nothing and get nothing twice", async () => {
  for (let seed = 1; seed <= 30; seed++) {
    const m = new StoreMachine({ seed, store: { shards: 1, blockCacheBytesMax: 16 * 1024 } });
    const { store } = await m.boot();
    const random = m.random.split("schedule");
    const readers: Reader[] = [];
    let sent = 0;
    for (let step = 0; step < 60; step++) {
      const dice = random.below(10);
      if (dice < 6) void append(store, appendRequest(`a/${random.below(3)}`, `${sent++}`));
      else if (dice < 7)
        readers.push(new Reader(store, ["a/#"], new Map(), { room: random.below(9) }));
      else if (dice < 8) store.rotate().catch(() => undefined);
      else for (const reader of readers) reader.room += random.below(4);
      for (const reader of readers) reader.subscriber.wake();
      if (random.chance(0.5)) await m.clock.advance(random.below(30) / 10);
    }
    for (const reader of readers) {
      reader.room = 1_000_000;
      reader.subscriber.wake();
    }
    await m.clock.advance(3_000);
    const all = Array.from({ length: sent }, (_, n) => `${n}`);
    for (const reader of readers) expect(reader.values).toEqual(all);
  }
});

test("a reader that comes while those who appended hear of it gets what they appended once", async () => {
  const m = new StoreMachine({ seed: 8, store: { shards: 1 } });
  const { store } = await m.boot();
  const early = new Reader(store, ["a"], new Map());
  await m.clock.runUntil(() => early.subscriber.atTail);
  const late: Reader[] = [];
  for (let n = 0; n < 3; n++) {
    // It reads what is applied at once, before the readers at the tail are offered it.
    store.append(appendRequest("a", `${n}`), () => late.push(new Reader(store, ["a"], new Map())));
  }
  await m.clock.advance(1_000);
  expect(late).toHaveLength(3);
  for (const reader of [early, ...late]) expect(reader.values).toEqual(["0", "1", "2"]);
});

test("a filter that is added while those who appended hear of it begins behind what they appended", async () => {
  const m = new StoreMachine({ seed: 9, store: { shards: 1 } });
  const { store } = await m.boot();
  const early = new Reader(store, ["a"], new Map());
  const other = new Reader(store, ["b"], new Map());
  await m.clock.runUntil(() => early.subscriber.atTail && other.subscriber.atTail);
  store.append(appendRequest("a", "before"), () => {
    const filter = { filter: "a", start: store.tail(), durable: true, context: "a" };
    other.subscriber.setFilter(filter);
  });
  await m.clock.advance(1_000);
  await m.clock.complete(append(store, appendRequest("a", "behind")));
  await m.clock.advance(1_000);
  expect(early.values).toEqual(["before", "behind"]);
  expect(other.values).toEqual(["behind"]);
});

test("readers are counted by pool, with their lag, and as stuck after a minute without room", async () => {
  const m = new StoreMachine({ seed: 7, store: { shards: 1 } });
  const { store } = await m.boot();
  await m.clock.complete(append(store, appendRequest("a", "first")));
  const quick = new Reader(store, ["a"], new Map());
  const slow = new Reader(store, ["a"], new Map(), { room: 0 });
  await m.clock.runUntil(() => quick.subscriber.atTail);
  await m.clock.advance(10_000);
  await m.clock.complete(append(store, appendRequest("a", "later")));
  expect(store.pools()).toMatchObject({ tail: 1, behind: 1, stuck: 0 });
  expect(store.pools().lagUsMax).toBeGreaterThan(10_000_000);
  await m.clock.advance(60_000);
  slow.subscriber.wake();
  expect(store.pools()).toMatchObject({ tail: 1, behind: 1, stuck: 1 });
  slow.room = 10;
  slow.subscriber.wake();
  await m.clock.runUntil(() => slow.subscriber.atTail);
  expect(store.pools()).toEqual({ tail: 2, behind: 0, stuck: 0, lagUsMax: 0 });
  expect(store.counters.handOvers).toBeGreaterThanOrEqual(2);
});
