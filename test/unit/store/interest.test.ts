import { expect, test } from "vitest";
import type { LocalStore } from "../../../src/store/index.ts";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { StoreMachine } from "../../support/store-machine.ts";

async function boot(m: StoreMachine, filters: readonly string[]): Promise<LocalStore> {
  const { store } = await m.clock.complete(m.open());
  for (const filter of filters) store.interest.add(filter, new Map());
  await m.clock.complete(store.start());
  return store;
}

async function put(m: StoreMachine, store: LocalStore, topic: string): Promise<number> {
  const outcome = await m.clock.complete(append(store, appendRequest(topic, "x")));
  return outcome.kind === "stored" ? outcome.timeUs : 0;
}

const lastMatch = (store: LocalStore, filter: string): number =>
  Math.max(...store.logShards.map((shard) => store.interest.lastMatchUs(filter, shard) ?? 0));

test("a topic is wanted while a filter that matches it is counted", async () => {
  const store = await boot(new StoreMachine({ seed: 1 }), ["a/#"]);
  store.interest.add("+/x", store.tail());
  store.interest.add("+/x", store.tail());
  expect([store.interest.wants("a/b"), store.interest.wants("b/x")]).toEqual([true, true]);
  store.interest.remove("+/x");
  expect(store.interest.wants("b/x")).toBe(true);
  store.interest.remove("+/x");
  expect([store.interest.wants("b/x"), store.interest.wants("$SYS/x")]).toEqual([false, false]);
  expect(() => store.interest.remove("+/x")).toThrow("was not counted");
});

test("the last match is known to the microsecond, and so after restarts", async () => {
  const m = new StoreMachine({ seed: 2 });
  let store = await boot(m, ["a/#", "b"]);
  const firstUs = await put(m, store, "a/1");
  await put(m, store, "c");
  expect(lastMatch(store, "a/#")).toBe(firstUs);
  await m.clock.complete(store.checkpoint());
  await put(m, store, "c");
  m.crash();
  store = await boot(m, ["a/#", "b"]);
  expect(lastMatch(store, "a/#")).toBe(firstUs);
  const secondUs = await put(m, store, "a/2");
  m.kill();
  store = await boot(m, ["a/#", "b"]);
  expect(lastMatch(store, "a/#")).toBe(secondUs);
});

test("a sparse session is at the tail without a read, a filter that matched is not", async () => {
  const m = new StoreMachine({ seed: 3 });
  let store = await boot(m, ["a/#", "b"]);
  const timeUs = await put(m, store, "a/1");
  for (let n = 0; n < 300; n++) await put(m, store, "c");
  await m.clock.complete(store.checkpoint());
  m.crash();
  store = await boot(m, ["a/#", "b"]);
  const done = new Map(store.logShards.map((shard) => [shard, timeUs]));
  const sparse = new Reader(store, ["a/#", "b"], done);
  expect(sparse.subscriber.atTail).toBe(true);
  expect(store.blockCache.counters.blocksRead).toBe(0);
  const behind = new Reader(store, ["a/#"], new Map());
  expect(behind.subscriber.atTail).toBe(false);
  await m.clock.advance(100);
  expect(behind.values).toEqual(["x"]);
});

test("a filter counted again after its row was removed is scanned for, never taken as unmatched", async () => {
  const m = new StoreMachine({ seed: 4 });
  let store = await boot(m, ["a"]);
  await put(m, store, "a");
  await m.clock.complete(store.checkpoint());
  store.interest.remove("a");
  await put(m, store, "b");
  await m.clock.complete(store.checkpoint());
  const lateUs = await put(m, store, "a");
  await m.clock.complete(store.checkpoint());
  m.kill();
  store = await boot(m, ["a"]);
  expect(lastMatch(store, "a")).toBeGreaterThanOrEqual(lateUs);
});

test("a filter counted again is known exactly after the next checkpoint", async () => {
  const m = new StoreMachine({ seed: 5, store: { shards: 1 } });
  let store = await boot(m, ["a"]);
  await put(m, store, "a");
  store.interest.remove("a");
  await m.clock.complete(store.checkpoint());
  store.interest.add("a", store.tail());
  const boundUs = lastMatch(store, "a");
  for (let n = 0; n < 2; n++) {
    await put(m, store, "b");
    await m.clock.complete(store.checkpoint());
  }
  m.kill();
  store = await boot(m, ["a"]);
  expect(lastMatch(store, "a")).toBe(boundUs);
});

test("many filters of one reader are judged as each is on each shard, expired ones as well", async () => {
  const m = new StoreMachine({ seed: 8 });
  const filters = ["a/#", "a/1", "a/+", "b", "c"];
  const store = await boot(m, filters);
  const times: number[] = [];
  for (const topic of ["a/1", "a/2", "b", "a/1"]) {
    times.push(await put(m, store, topic));
    const lasting = appendRequest(topic, "x");
    const expiryUs = m.clock.wallUs() + 1000 * times.length;
    const outcome = await m.clock.complete(append(store, { ...lasting, expiryUs }));
    times.push(outcome.kind === "stored" ? outcome.timeUs : 0);
  }
  const found = new Set<boolean>();
  for (const nowUs of [0, m.clock.wallUs(), m.clock.wallUs() + 10_000_000]) {
    for (const afterUs of [0, ...times]) {
      for (const skipped of [undefined, ...store.logShards]) {
        const after = new Map(store.logShards.map((shard) => [shard, afterUs]));
        if (skipped !== undefined) after.delete(skipped);
        for (const filter of filters) {
          const known = store.interest.timesOf(filter);
          if (known === undefined) throw new Error(`${filter} is counted`);
          const each = store.logShards.map((shard) => {
            const when = { afterUs: after.get(shard) ?? 0, nowUs };
            return store.interest.mayWait(filter, shard, when);
          });
          const waits = store.interest.anyWaits([known], after, nowUs);
          expect(waits, `${filter} behind ${afterUs}`).toBe(each.includes(true));
          found.add(waits);
        }
      }
    }
  }
  expect(found.size).toBe(2);
  expect(store.interest.anyWaits([undefined], new Map(), 0)).toBe(true);
  expect(store.interest.anyWaits([], new Map(), 0)).toBe(false);
  expect(store.interest.timesOf("d")).toBeUndefined();
});
