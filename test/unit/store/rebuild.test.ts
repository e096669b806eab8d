import { describe, expect, test } from "vitest";
import type { LocalStore } from "../../../src/store/index.ts";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { StoreMachine, turnLogOver } from "../../support/store-machine.ts";

const oneShard = (seed: number) => new StoreMachine({ seed, store: { shards: 1 } });
const messages = "data/db/messages/s0003";
const state = "data/db/state/s0002";

async function put(m: StoreMachine, store: LocalStore, value: string, sizeBytes = 3_000) {
  const frame = Buffer.from(value.padEnd(sizeBytes, "."));
  const topic = `t/${value.length % 3}/${value.slice(-1)}`;
  await m.clock.complete(append(store, appendRequest(topic, "", { frame })));
}

async function readAll(m: StoreMachine, store: LocalStore): Promise<Reader> {
  const reader = new Reader(store, ["#"], new Map());
  await m.clock.runUntil(() => reader.subscriber.atTail);
  await m.clock.advance(10);
  return reader;
}

const names = (reader: Reader): string[] => reader.values.map((value) => value.replace(/\.+$/, ""));

const rebuilt = (m: StoreMachine) =>
  m.events.filter(({ event }) => event === "store.shard_store_rebuilt");

/** Three generations, part of the last one only in the log, whose beginning has gone. */
async function threeGenerations(m: StoreMachine, sizeBytes = 3_000): Promise<string[]> {
  const { store } = await m.boot();
  const values: string[] = [];
  const some = async (count: number): Promise<void> => {
    for (let n = 0; n < count; n++) {
      const value = `v${values.length}`;
      await put(m, store, value, sizeBytes);
      values.push(value);
    }
  };
  await some(30);
  await m.clock.complete(store.rotate());
  await some(30);
  await m.clock.complete(store.rotate());
  await some(20);
  await m.clock.complete(store.checkpoint());
  await some(5);
  return values;
}

async function loseBoth(m: StoreMachine, dir: string, how: "gone" | "rotten"): Promise<void> {
  if (how === "rotten") {
    m.kv.damage(`${dir}/store`);
    m.disk.flipBit(`${dir}/store.copy`, 77);
    return;
  }
  await m.clock.complete(m.kv.destroy(`${dir}/store`));
  await m.clock.complete(m.disk.attach().remove(`${dir}/store.copy`));
}

describe("a shard store that is lost together with its copy", () => {
  test.each(["gone", "rotten"] as const)("%s: slabs and log have every message", async (how) => {
    for (const end of ["kill", "crash"] as const) {
      const m = oneShard(1);
      const values = await threeGenerations(m);
      m[end]();
      await loseBoth(m, messages, how);
      let { store } = await m.boot();
      const first = await readAll(m, store);
      expect(names(first)).toEqual(values);
      expect(first.missedReports).toEqual([]);
      expect(rebuilt(m)).toHaveLength(how === "gone" ? 1 : rebuilt(m).length);
      await put(m, store, "after");
      await m.clock.complete(store.rotate());
      await put(m, store, "last");
      m.crash();
      ({ store } = await m.boot());
      expect(names(await readAll(m, store))).toEqual([...values, "after", "last"]);
      const verified = await m.clock.complete(store.operator.verify());
      expect(verified.findings).toEqual([]);
    }
  });

  test("also where the log has nothing of the shard any more", async () => {
    const m = oneShard(2);
    const values = await threeGenerations(m);
    // Another shard fills the log until what it had of this one has gone.
    m.kill();
    let { store } = await m.boot();
    await m.clock.complete(store.checkpoint());
    await turnLogOver(m, store);
    m.kill();
    await loseBoth(m, messages, "gone");
    ({ store } = await m.boot());
    expect(names(await readAll(m, store))).toEqual(values);
    expect(rebuilt(m)).toHaveLength(1);
    await put(m, store, "after");
    m.crash();
    ({ store } = await m.boot());
    expect(names(await readAll(m, store))).toEqual([...values, "after"]);
  });

  // Lost are the record of the checkpoint and the row of the current generation, or, which is noticed
  // only with a store that does not open, one of the two or a row before.
  const ways = [
    ...(["damage", "hollow"] as const).map((how) => ({ how, lost: /^(63|6700000003)/ })),
    ...[/^63/, /^6700000003/, /^6700000002/, /^6e/].map((lost) => ({
      how: "damage" as const,
      lost,
    })),
  ];
  const cases = ways.flatMap((way) => [10, 3_000].map((sizeBytes) => ({ ...way, sizeBytes })));
  test.each(cases)("rows that nothing vouches for are void: %o", async (each) => {
    const { how, lost, sizeBytes } = each;
    const m = oneShard(5);
    // Of the small ones the log has all, from its first entry on.
    const values = await threeGenerations(m, sizeBytes);
    m.kill();
    const isKept = (key: Buffer): boolean => !lost.test(key.toString("hex"));
    m.kv[how](`${messages}/store`, isKept);
    await m.clock.complete(m.disk.attach().remove(`${messages}/store.copy`));
    const { store } = await m.boot();
    const reader = await readAll(m, store);
    expect(names(reader)).toEqual(values);
    expect(reader.missedReports).toEqual([]);
    const mended = m.events.filter(({ event }) => event === "store.shard_store_mended");
    expect(mended).toHaveLength(1);
    expect(rebuilt(m)).toHaveLength(sizeBytes === 10 ? 0 : 1);
    await put(m, store, "after");
    await m.clock.complete(store.rotate());
    m.crash();
    const again = (await m.boot()).store;
    expect(names(await readAll(m, again))).toEqual([...values, "after"]);
  });

  test("before its first checkpoint nothing is made up: the log has it all", async () => {
    const m = oneShard(3);
    const { store } = await m.boot();
    await put(m, store, "one", 10);
    m.crash();
    const again = (await m.boot()).store;
    expect(names(await readAll(m, again))).toEqual(["one"]);
    expect(rebuilt(m)).toEqual([]);
  });

  test("of a map shard: its rows are there, and the log is replayed over them", async () => {
    const m = oneShard(4);
    let { store } = await m.boot();
    const write = (key: string, value: string) => {
      const writes = [{ key, value: Buffer.from(value.padEnd(3_000, ".")) }];
      const written = new Promise<void>((resolve, reject) => {
        store.state("x").write(writes, [], (error) => (error ? reject(error) : resolve()));
      });
      return m.clock.complete(written);
    };
    const read = async (key: string) => {
      const found = await m.clock.complete(store.state("x").get(key));
      return found?.value?.toString().replace(/\.+$/, "");
    };
    for (let n = 0; n < 60; n++) await write(`k${n}`, "old");
    await m.clock.complete(store.checkpoint());
    await m.clock.advance(1_000);
    for (let n = 0; n < 10; n++) await write(`k${n}`, "new");
    m.kill();
    await loseBoth(m, state, "gone");
    for (let start = 0; start < 2; start++) {
      ({ store } = await m.boot());
      expect([await read("k3"), await read("k30"), await read("k59")]).toEqual([
        "new",
        "old",
        "old",
      ]);
      m.crash();
    }
    expect(rebuilt(m)).toHaveLength(1);
  });
});

describe("a log whose newest segment was removed", () => {
  test("tells readers of it, also when the start that found out ended before it could", async () => {
    const m = oneShard(5);
    const { store } = await m.boot();
    const values: string[] = [];
    for (let n = 0; n < 40; n++) {
      await put(m, store, `v${n}`);
      values.push(`v${n}`);
    }
    m.kill();
    const disk = m.disk.attach();
    const files = await m.clock.complete(disk.list("data/log"));
    const segments = files.map(({ name }) => name).filter((name) => name.endsWith(".wal"));
    expect(segments.length).toBeGreaterThan(1);
    await m.clock.complete(disk.remove(`data/log/${segments.sort().at(-1)}`));
    // The start that finds out ends at every step on its way to the first checkpoints.
    for (const step of ["checkpoint.captured", "checkpoint.prepared"]) {
      m.onPhase = (name) => {
        if (name === step) m.kill();
      };
      const booting = m.boot().catch(() => undefined);
      await m.clock.advance(60_000);
      await Promise.race([booting, Promise.resolve()]);
      m.onPhase = undefined;
      m.kill();
    }
    const again = (await m.boot()).store;
    const reader = await readAll(m, again);
    expect(names(reader)).toEqual(values.slice(0, reader.values.length));
    expect(reader.values.length).toBeLessThan(40);
    expect(reader.missedReports).toMatchObject([{ reason: "damaged" }]);
    const told = reader.missedReports.reduce((sum, { count }) => sum + count, 0);
    expect(told).toBeGreaterThanOrEqual(40 - reader.values.length);
  });
});
