import { describe, expect, test } from "vitest";
import { type LocalStore, ltsSettingsDefault } from "../../../src/store/index.ts";
import { parseTopicFilter } from "../../../src/topic/index.ts";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { StoreMachine } from "../../support/store-machine.ts";

const oneShard = (seed: number) => new StoreMachine({ seed, store: { shards: 1 } });

async function put(m: StoreMachine, store: LocalStore, topic: string, value = topic) {
  const outcome = await m.clock.complete(append(store, appendRequest(topic, value)));
  return outcome.kind === "stored" ? outcome.timeUs : 0;
}

async function readAll(m: StoreMachine, store: LocalStore, from = 0): Promise<Reader> {
  const positions = new Map(store.logShards.map((shard) => [shard, from]));
  const reader = new Reader(store, ["#"], positions);
  await m.clock.runUntil(() => reader.subscriber.atTail);
  await m.clock.advance(10);
  return reader;
}

/** Path of the only messages shard's folder. */
const shardDir = (m: StoreMachine): string =>
  m.kv.paths.find((path) => path.includes("messages"))!.replace(/\/g\d+\/.*|\/store$/, "");

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
  async function threeGenerations(m: StoreMachine): Promise<number[]> {
    const { store } = await m.boot();
    const lastUs: number[] = [];
    for (let g = 1; g <= 3; g++) {
      for (let n = 0; n < 4; n++) lastUs[g] = await put(m, store, `t/${n}`, `${g}-${n}`);
      if (g < 3) await m.clock.complete(store.rotate());
      else await m.clock.complete(store.checkpoint());
    }
    m.kill();
    return lastUs;
  }

  test("that was sealed and cannot be opened is set aside; readers are told where it was", async () => {
    for (const name of ["blocks", "index"]) {
      const m = oneShard(4);
      const lastUs = await threeGenerations(m);
      m.kv.damage(`${shardDir(m)}/g00000002/${name}`);
      let { store } = await m.boot();
      const reader = await readAll(m, store);
      expect(reader.values.map((value) => value[0])).toEqual([..."11113333"]);
      const [report, ...more] = reader.missedReports;
      expect(more).toEqual([]);
      expect(report).toMatchObject({ count: 4, reason: "damaged" });
      expect(report!.fromUs).toBeGreaterThanOrEqual(lastUs[1]!);
      expect(report!.toUs).toBeGreaterThanOrEqual(lastUs[2]!);
      await m.clock.advance(5_000);
      expect(m.kv.paths.filter((path) => path.includes("quarantine"))).toHaveLength(2);
      m.crash();
      ({ store } = await m.boot());
      const again = await readAll(m, store);
      expect(again.values).toHaveLength(8);
      expect(again.missedReports).toHaveLength(1);
    }
  });

  test("that was written to loses what its checkpoint covers, not what the log has", async () => {
    const m = oneShard(5);
    await threeGenerations(m);
    let { store } = await m.boot();
    for (let n = 0; n < 3; n++) await put(m, store, `t/${n}`, `late-${n}`);
    m.kill();
    m.kv.damage(`${shardDir(m)}/g00000003/index`);
    for (let start = 0; start < 2; start++) {
      ({ store } = await m.boot());
      const reader = await readAll(m, store);
      const expected = ["1-0", "1-1", "1-2", "1-3", "2-0", "2-1", "2-2", "2-3"];
      expect(reader.values).toEqual([...expected, "late-0", "late-1", "late-2"]);
      expect(reader.missedReports).toMatchObject([{ count: 4, reason: "damaged" }]);
      m.crash();
    }
    ({ store } = await m.boot());
    await put(m, store, "t/9", "new");
    await m.clock.complete(store.rotate());
    expect((await readAll(m, store)).values.at(-1)).toBe("new");
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
