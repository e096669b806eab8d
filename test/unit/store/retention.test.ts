import { describe, expect, test } from "vitest";
import type { LocalStore, ShardNumber } from "../../../src/store/index.ts";
import { amount } from "../../support/amount.ts";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { type MachineOptions, type Process, StoreMachine } from "../../support/store-machine.ts";

/** What a generation covers. A wait of half of it after a start reaches its bound of 10 minutes. */
const spanMs = 22 * 60_000;
const monthMs = 30 * 24 * 3_600_000;

const machine = (store: MachineOptions["store"] = {}): StoreMachine =>
  new StoreMachine({
    seed: 1,
    store: { shards: 1, retention: { ageMs: 8 * spanMs, bytes: 0 }, ...store },
  });

const put = async (
  m: StoreMachine,
  store: LocalStore,
  topic: string,
  value = "x",
): Promise<void> => {
  await m.clock.complete(append(store, appendRequest(topic, value)));
};

const numbers = (store: LocalStore): number[] => generationsOf(store).map(({ number }) => number);

const generationsOf = (store: LocalStore) => store.operator.generations(shardOf(store));
const shardOf = (store: LocalStore): ShardNumber => store.logShards[0]!;

/** One message a span. */
async function spans(m: StoreMachine, store: LocalStore, count: number): Promise<void> {
  for (let n = 0; n < count; n++) {
    await put(m, store, "a/1");
    await m.clock.advance(spanMs);
  }
}

describe("a generation ends", () => {
  test("when it covers an eighth of the retention; an empty one never does", async () => {
    const m = machine();
    const { store } = await m.boot();
    await m.clock.advance(6 * spanMs);
    expect(numbers(store)).toEqual([1]);
    await put(m, store, "a");
    await m.clock.advance(spanMs + 120_000);
    expect(numbers(store)).toEqual([1, 2]);
    await m.clock.advance(6 * spanMs);
    expect(numbers(store)).toEqual([1, 2]);
  });

  test("at its size, without waiting for the next look", async () => {
    const m = machine({ generationBytesMax: 100_000 });
    const { store } = await m.boot();
    for (let n = 0; n < 300; n++) void append(store, appendRequest("a", "x".repeat(1_000)));
    await m.clock.advance(900);
    expect(numbers(store).length).toBeGreaterThanOrEqual(2);
    const [first] = generationsOf(store);
    expect(first?.logicalBytes).toBeGreaterThanOrEqual(100_000);
    expect(first?.logicalBytes).toBeLessThan(310_000);
  });
});

describe("retention", () => {
  test("by age drops the oldest when all of it is older, and keeps the rest", async () => {
    const m = machine();
    const { store } = await m.boot();
    await spans(m, store, amount(16, 40));
    const kept = generationsOf(store);
    // Two spans each: the message of the full span comes before the look that ends the generation.
    expect(kept.length).toBeGreaterThanOrEqual(4);
    expect(kept.length).toBeLessThanOrEqual(6);
    const reader = new Reader(store, ["#"], new Map());
    await m.clock.advance(100);
    expect(reader.values.length).toBeGreaterThanOrEqual(8);
    expect(reader.values.length).toBeLessThanOrEqual(11);
  });

  test("by bytes drops the oldest of all shards until the rest fits", async () => {
    const bytes = 200_000;
    const m = machine({ shards: 2, generationBytesMax: 20_000, retention: { ageMs: 0, bytes } });
    const { store } = await m.boot();
    for (let n = 0; n < 1_000; n++) {
      void append(store, appendRequest("a", "x".repeat(1_000), { publisher: `p${n % 16}` }));
      if (n % 20 === 0) await m.clock.advance(300);
    }
    await m.clock.advance(60_000);
    let logical = 0;
    for (const shard of store.logShards) {
      for (const each of store.operator.generations(shard)) logical += each.logicalBytes;
    }
    expect(logical).toBeLessThanOrEqual(bytes);
    expect(logical).toBeGreaterThan(bytes / 3);
  });

  test.each([3 * monthMs, -3 * monthMs])(
    "a wall clock that steps by %d ms takes one generation at most",
    async (stepMs) => {
      const m = machine();
      const { store } = await m.boot();
      await spans(m, store, 6);
      const before = numbers(store);
      expect(before.length).toBeGreaterThanOrEqual(4);
      m.clock.stepWall(stepMs * 1_000);
      await put(m, store, "a/1");
      await m.clock.advance(20_000);
      await put(m, store, "a/1");
      await m.clock.advance(60_000);
      const gone = before.filter((number) => !numbers(store).includes(number));
      expect(gone.length).toBeLessThanOrEqual(1);
      m.clock.stepWall(-stepMs * 1_000);
      await m.clock.advance(2 * spanMs);
      const left = before.filter((number) => numbers(store).includes(number));
      expect(left.length).toBeGreaterThanOrEqual(before.length - 3);
    },
  );

  test("a boot in 1970 drops nothing", async () => {
    const m = machine();
    const first = await m.boot();
    await spans(m, first.store, 4);
    await m.stop(first);
    m.clock.stepWall(-m.clock.wallUs());
    const { store } = await m.boot();
    const before = numbers(store);
    await put(m, store, "a/1");
    await m.clock.advance(6 * spanMs);
    for (const number of before) expect(numbers(store)).toContain(number);
  });

  test("what was dropped stays dropped after kill -9, and its folder goes", async () => {
    const m = machine();
    const { store } = await m.boot();
    await spans(m, store, amount(13, 20));
    const dropped = numbers(store)[0]! - 1;
    expect(dropped).toBeGreaterThan(0);
    m.crash();
    const next = await m.boot();
    expect(numbers(next.store)[0]).toBeGreaterThan(dropped);
    const folders = await m.clock.complete(m.disk.list("data/db/messages/s0003"));
    expect(folders.map(({ name }) => name)).not.toContain("g00000001");
  });
});

describe("a reader that a drop overtook", () => {
  /** Three topics in streams of their own, three of each, in a generation that is dropped. */
  async function overtaken(m: StoreMachine): Promise<{ process: Process; untilUs: number }> {
    const process = await m.boot();
    for (const filter of ["a", "b", "c"]) process.store.interest.add(filter, new Map());
    for (let n = 0; n < 3; n++)
      for (const topic of ["a", "b", "d"]) await put(m, process.store, topic);
    await m.clock.complete(process.store.rotate());
    const untilUs = process.store.tail().get(shardOf(process.store))!;
    await m.clock.complete(process.store.dropUntil(untilUs));
    await put(m, process.store, "b", "later");
    return { process, untilUs };
  }

  const reports = async (m: StoreMachine, store: LocalStore, filters: string[]) => {
    const reader = new Reader(store, filters, new Map());
    await m.clock.advance(100);
    const told = reader.missedReports.map(({ count, estimated, reason }) => [
      count,
      estimated,
      reason,
    ]);
    return { told, values: reader.values };
  };

  test("is told how many of its messages went, exactly where its filters cover streams", async () => {
    const m = machine();
    const { process } = await overtaken(m);
    const { store } = process;
    expect(await reports(m, store, ["#"])).toEqual({
      told: [[9, false, "expired"]],
      values: ["later"],
    });
    expect(await reports(m, store, ["a", "b"])).toEqual({
      told: [[6, false, "expired"]],
      values: ["later"],
    });
  });

  test("is told nothing where nothing can have matched", async () => {
    const m = machine();
    const { process } = await overtaken(m);
    expect(await reports(m, process.store, ["c"])).toEqual({ told: [], values: [] });
    expect(await reports(m, process.store, ["x/#"])).toEqual({ told: [], values: [] });
  });

  test("is told the same after a start", async () => {
    const m = machine();
    await overtaken(m);
    m.crash();
    const { store } = await m.boot();
    expect(await reports(m, store, ["a", "b"])).toEqual({
      told: [[6, false, "expired"]],
      values: ["later"],
    });
  });
});

describe("a hold", () => {
  test("keeps what is later than it from retention and drops, until it is released", async () => {
    const m = machine();
    const { store } = await m.boot();
    await spans(m, store, 3);
    await m.clock.complete(store.operator.hold("audit"));
    const held = numbers(store)[0];
    await spans(m, store, amount(12, 20));
    expect(numbers(store)[0]).toBe(held);
    expect(generationsOf(store)[0]?.heldBy).toEqual(["audit"]);
    const tailUs = store.tail().get(shardOf(store))!;
    expect(await m.clock.complete(store.operator.dropUntil(tailUs))).toBe(0);
    m.crash();
    const next = await m.boot();
    expect(next.store.operator.holds()).toMatchObject([{ name: "audit", lostTtvs: 0 }]);
    await m.clock.advance(spanMs);
    expect(numbers(next.store)[0]).toBe(held);
    await m.clock.complete(next.store.operator.releaseHold("audit"));
    await m.clock.advance(amount(5, 20) * spanMs);
    expect(numbers(next.store)[0]).toBeGreaterThan(held!);
  });

  test("lets go what its holder is done with, and is told what went by force", async () => {
    const m = machine();
    const { store } = await m.boot();
    await spans(m, store, 6);
    const shard = shardOf(store);
    await m.clock.complete(store.operator.hold("audit"));
    const [first, second] = generationsOf(store);
    const afterUs = new Map([[shard, first!.toUs! - 1]]);
    await m.clock.complete(store.operator.hold("audit", { afterUs }));
    expect(await m.clock.complete(store.operator.dropUntil(second!.toUs!))).toBe(1);
    expect(numbers(store)[0]).toBe(second!.number);
    const force = { force: true };
    expect(await m.clock.complete(store.operator.dropUntil(second!.toUs!, force))).toBe(1);
    expect(store.operator.holds()).toMatchObject([{ name: "audit", lostTtvs: second!.ttvs }]);
    await expect(m.clock.complete(store.operator.releaseHold("other"))).rejects.toMatchObject({
      code: "STORE_HOLD_NOT_FOUND",
    });
  });
});
