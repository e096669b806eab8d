import { describe, expect, test } from "vitest";
import type { LocalStore, WorkProgress } from "../../../src/store/index.ts";
import { decodeBlockKey } from "../../../src/store/layout/index-row.ts";
import { append, appendRequest, Reader, type Received } from "../../support/store-calls.ts";
import { StoreMachine } from "../../support/store-machine.ts";

const machine = (seed = 4): StoreMachine => new StoreMachine({ seed, store: { shards: 1 } });
const shardOf = (store: LocalStore): number => store.logShards[0]!;

async function burst(m: StoreMachine, store: LocalStore, topics: readonly string[]): Promise<void> {
  for (let at = 0; at < topics.length; at += 500) {
    const part = topics.slice(at, at + 500);
    await m.clock.complete(
      Promise.all(part.map((topic) => append(store, appendRequest(topic, "x")))),
    );
  }
}

/** How many blocks on disk these are in. */
function blocksWith({ kv }: StoreMachine, received: readonly Received[]): number {
  const keys = new Map<string, number[]>();
  for (const path of kv.paths) {
    const generation = /messages\/.*\/g0*(\d+)\/blocks$/.exec(path)?.[1];
    if (generation === undefined) continue;
    for (const [key] of kv.peek(path)) {
      const { stream, lastTimeUs } = decodeBlockKey(key);
      const of = `${generation} ${stream}`;
      keys.set(of, [...(keys.get(of) ?? []), lastTimeUs]);
    }
  }
  const found = new Set<string>();
  for (const { ref, timeUs } of received) {
    const of = `${ref.generation} ${ref.stream}`;
    found.add(`${of} ${keys.get(of)?.find((lastUs) => lastUs >= timeUs)}`);
  }
  return found.size;
}

describe("explain", () => {
  /** `metrics/<host>/cpu/socket/<s>/core/<c>`, hosts in the outer loop of time. */
  const topics = Array.from({ length: 60 * 16 * 12 }, (_, n) => {
    const [core, socket, host] = [n % 12, Math.floor(n / 12) % 16, Math.floor(n / 192)];
    return `metrics/${host === 7 ? "my_host" : `host${host}`}/cpu/socket/${socket}/core/${core}`;
  });

  test("shows the learned streams, and that readers read few blocks beside those with matches", async () => {
    const m = machine();
    const { store } = await m.boot();
    await burst(m, store, topics);
    await m.clock.complete(store.rotate());
    await burst(m, store, topics);
    await m.clock.complete(store.checkpoint());
    for (const filter of ["metrics/my_host/cpu/#", "metrics/+/cpu/socket/1/core/+"]) {
      const told = await m.clock.complete(store.operator.explain(filter));
      expect(told.isComplete).toBe(true);
      const structures = new Set(told.streams.map(({ structure }) => structure));
      expect(structures).toContain("metrics/+/cpu/socket/+/core/+");
      const before = store.blockCache.counters.blocksRead;
      const reader = new Reader(store, [filter], new Map());
      await m.clock.advance(2_000);
      const read = store.blockCache.counters.blocksRead - before;
      const wanted = topics.filter((topic) =>
        filter.includes("my_host") ? topic.includes("my_host") : /socket\/1\/core/.test(topic),
      );
      expect(reader.received).toHaveLength(2 * wanted.length);
      expect(read).toBeLessThanOrEqual(told.blocksToRead);
      // At most twice the blocks that hold matches.
      expect(read).toBeLessThanOrEqual(2 * blocksWith(m, reader.received));
      const holding = new Set(reader.received.map(({ ref }) => `${ref.generation}/${ref.stream}`));
      expect(holding.size).toBeLessThanOrEqual(told.streams.length);
      if (filter.includes("my_host")) expect(told.blocksToRead).toBeLessThan(told.blocks / 5);
    }
  });

  test("says so when nothing can match, when it was cut short, and refuses a bad filter", async () => {
    const m = machine();
    const { store } = await m.boot();
    await burst(m, store, topics.slice(0, 1_000));
    await m.clock.complete(store.checkpoint());
    const nothing = await m.clock.complete(store.operator.explain("other/#"));
    expect(nothing).toMatchObject({ streams: [], blocks: 0, blocksToRead: 0 });
    expect(nothing.advice[0]).toContain("Nothing that is stored can match");
    const cut = await m.clock.complete(store.operator.explain("#", { rowsMax: 1 }));
    expect(cut.isComplete).toBe(false);
    await expect(m.clock.complete(store.operator.explain("a/#/b"))).rejects.toThrow();
    const missing = m.clock.complete(store.operator.explain("#", { database: "nothing" }));
    await expect(missing).rejects.toMatchObject({ code: "STORE_DATABASE_NOT_FOUND" });
  });
});

describe("verify", () => {
  test("reads every block of every generation and finds nothing where nothing is wrong", async () => {
    const m = machine();
    const { store } = await m.boot();
    const topics = Array.from({ length: 1_200 }, (_, n) => `a/${n % 5}`);
    await burst(m, store, topics);
    await m.clock.complete(store.rotate());
    await burst(m, store, topics);
    const steps: WorkProgress[] = [];
    const verifying = store.operator.verify({ onProgress: (step) => steps.push(step) });
    const report = await m.clock.complete(verifying);
    expect(report).toMatchObject({ slabs: 2, ttvs: 2_400, findings: [] });
    expect(steps.map(({ done, total }) => [done, total])).toEqual([
      [0, 2],
      [1, 2],
      [2, 2],
    ]);
    expect(store.blockCache.sizeBytes).toBe(0);
  });

  test("names shard, generation and stream of what is damaged", async () => {
    const m = machine();
    const { store } = await m.boot();
    await burst(
      m,
      store,
      Array.from({ length: 600 }, () => "a"),
    );
    await m.clock.complete(store.rotate());
    m.kv.inject({ on: "read", path: "g00000001/blocks", skip: 1, fails: "EIO" });
    await expect(m.clock.complete(store.operator.verify())).rejects.toThrow();
    m.kv.heal();
    expect((await m.clock.complete(store.operator.verify())).findings).toEqual([]);
  });

  test("ends between two slabs when it is cancelled", async () => {
    const m = machine();
    const { store } = await m.boot();
    await burst(m, store, ["a"]);
    await m.clock.complete(store.rotate());
    let looks = 0;
    const isCancelled = (): boolean => ++looks > 1;
    const verifying = m.clock.complete(store.operator.verify({ isCancelled }));
    await expect(verifying).rejects.toMatchObject({ code: "STORE_WORK_CANCELLED" });
  });
});

describe("the logical hash of a shard", () => {
  const topics = Array.from({ length: 700 }, (_, n) => `a/${n % 40}/b`);

  test("is the same after kill -9 and replay, after a checkpoint and after a clean start", async () => {
    const m = machine();
    const first = await m.boot();
    await burst(m, first.store, topics);
    await m.clock.complete(first.store.rotate());
    await burst(m, first.store, topics);
    await m.clock.complete(first.store.openWriter("w", "p"));
    await m.clock.complete(first.store.operator.hold("h"));
    const shard = shardOf(first.store);
    const hash = await m.clock.complete(first.store.operator.logicalHash(shard));
    m.kill();
    const second = await m.boot();
    expect(await m.clock.complete(second.store.operator.logicalHash(shard))).toBe(hash);
    await m.clock.complete(second.store.checkpoint());
    await m.clock.complete(second.store.operator.compact());
    expect(await m.clock.complete(second.store.operator.logicalHash(shard))).toBe(hash);
    await m.stop(second);
    const third = await m.boot();
    expect(await m.clock.complete(third.store.operator.logicalHash(shard))).toBe(hash);
  });

  test("differs by one TTV, one hold, one writer; of a map shard by one value", async () => {
    const m = machine();
    const { store } = await m.boot();
    const hashes = new Set<string>();
    const note = async (shard: number): Promise<void> => {
      hashes.add(await m.clock.complete(store.operator.logicalHash(shard)));
    };
    const shard = shardOf(store);
    await note(shard);
    await burst(m, store, ["a"]);
    await note(shard);
    await m.clock.complete(store.operator.hold("h"));
    await note(shard);
    await m.clock.complete(store.openWriter("w", "p"));
    await note(shard);
    expect(hashes.size).toBe(4);
    const state = store.state("c");
    for (const value of ["1", "2"]) {
      const write = state.transact(async (tx) => tx.put("k", Buffer.from(value)));
      await m.clock.complete(write);
      await note(state.number);
    }
    expect(hashes.size).toBe(6);
    const missing = m.clock.complete(store.operator.logicalHash(99));
    await expect(missing).rejects.toMatchObject({ code: "STORE_SHARD_NOT_FOUND" });
  });
});

test("a compaction goes through every shard and sealed slab, and ends between two when cancelled", async () => {
  const m = machine();
  const { store } = await m.boot();
  await burst(m, store, ["a", "b"]);
  await m.clock.complete(store.rotate());
  const steps: WorkProgress[] = [];
  const onProgress = (step: WorkProgress): void => void steps.push(step);
  const report = await m.clock.complete(store.operator.compact({ onProgress }));
  const shards = store.operator.shards();
  expect(report).toMatchObject({ slabs: 1, shards: shards.length });
  const whats = shards.map(({ database, number }) => `${database} shard ${number}`);
  expect(steps.map(({ what }) => what)).toEqual([...whats, `${whats.at(-1)} generation 1`, "done"]);
  expect(steps.at(-1)).toMatchObject({ done: steps.length - 1, total: steps.length - 1 });
  for (const { checkpointIndex, appliedIndex } of shards)
    expect(checkpointIndex).toBe(appliedIndex);
  steps.length = 0;
  let looks = 0;
  const isCancelled = (): boolean => ++looks > 1;
  const compacting = store.operator.compact({ onProgress, isCancelled });
  await expect(m.clock.complete(compacting)).rejects.toMatchObject({
    code: "STORE_WORK_CANCELLED",
  });
  expect(steps).toHaveLength(1);
});

test("shards, generations, streams and groups are shown with what they hold", async () => {
  const m = machine();
  const { store } = await m.boot();
  await burst(
    m,
    store,
    Array.from({ length: 300 }, (_, n) => `a/${n % 3}`),
  );
  await m.clock.complete(store.rotate());
  await m.clock.advance(31_000);
  const shard = shardOf(store);
  const [sealed, current] = store.operator.generations(shard);
  expect(sealed).toMatchObject({
    number: 1,
    state: "sealed",
    ttvs: 300,
    logicalBytes: 300,
    streams: 3,
  });
  expect(sealed!.physicalBytes).toBeGreaterThan(300);
  expect(current).toMatchObject({ number: 2, state: "current", ttvs: 0, toUs: undefined });
  const streams = await store.operator.streams(shard, 1);
  expect(streams.map(({ structure, ttvs }) => [structure, ttvs])).toEqual([
    ["a/0", 100],
    ["a/1", 100],
    ["a/2", 100],
  ]);
  expect(store.operator.shards("messages")).toMatchObject([
    { number: shard, database: "messages", generations: 2, ttvs: 300, group: "default" },
  ]);
  const [group] = store.operator.groups();
  expect(group).toMatchObject({ name: "default", state: "open", logicalBytes: 300 });
  expect(group!.physicalBytes).toBeGreaterThan(sealed!.physicalBytes);
  await expect(store.operator.streams(shard, 9)).rejects.toMatchObject({
    code: "STORE_GENERATION_UNKNOWN",
  });
});
