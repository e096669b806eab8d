import { describe, expect, test } from "vitest";
import type { LocalStore } from "../../../src/store/index.ts";
import { mapCopySizesDefault } from "../../../src/store/map/map-copy.ts";
import { StoreMachine } from "../../support/store-machine.ts";

const dir = "data/db/state/s0002";
/** A tenth of a megabyte stands for gigabytes. */
const small = { wholeBytesMax: 4_000, partBytes: 2_000, bytesMax: 100_000 };

const machine = (seed: number) =>
  new StoreMachine({ seed, store: { shards: 1, stateShards: 1, mapCopySizes: small } });

function write(m: StoreMachine, store: LocalStore, key: string, value: string | undefined) {
  const writes = [{ key, value: value === undefined ? undefined : Buffer.from(value) }];
  const written = new Promise<void>((resolve, reject) => {
    store.state(key).write(writes, [], (error) => (error ? reject(error) : resolve()));
  });
  return m.clock.complete(written);
}

async function all(m: StoreMachine, store: LocalStore): Promise<Record<string, string>> {
  const entries = await m.clock.complete(store.stateShards[0]!.list("k", { countMax: 1_000 }));
  return Object.fromEntries(entries.map(({ key, value }) => [key, value.toString()]));
}

const copies = async (m: StoreMachine): Promise<string[]> => {
  const entries = await m.clock.complete(m.disk.attach().list(dir));
  return entries.map(({ name }) => name).filter((name) => name.startsWith("map.copy"));
};

/** Rows far above what is copied as one file; then some change, go and come, over three checkpoints. */
async function fill(m: StoreMachine): Promise<Record<string, string>> {
  const { store } = await m.boot();
  for (let n = 0; n < 100; n++) await write(m, store, `k/${n}`, `first ${n}`.padEnd(200, "."));
  await m.clock.complete(store.checkpoint());
  for (let round = 0; round < 3; round++) {
    await write(m, store, `k/${round}`, `changed ${round}`);
    await write(m, store, `k/${10 + round}`, undefined);
    await write(m, store, `k/new${round}`, "new");
    await m.clock.complete(store.checkpoint());
  }
  // The log lets go of what is checkpointed: only the copies have it then.
  for (let n = 0; n < 40; n++) await write(m, store, `other/${n}`, "x".repeat(3_000));
  for (let n = 0; n < 40; n++) await write(m, store, `other/${n}`, undefined);
  await m.clock.complete(store.checkpoint());
  await m.clock.advance(1_000);
  return all(m, store);
}

describe("the copy of many rows", () => {
  test("is in parts: all rows once, then what changed; older parts go", async () => {
    const m = machine(1);
    await fill(m);
    const names = await copies(m);
    expect(names.length).toBeGreaterThan(4);
    const groups = new Set(names.flatMap((name) => /-(\d+)-/.exec(name)?.[1] ?? []));
    expect(groups.size).toBe(1);
  });

  test("is written anew by a compaction: what was deleted is in no part of it", async () => {
    const m = machine(9);
    const { store } = await m.boot();
    for (let n = 0; n < 100; n++) await write(m, store, `k/${n}`, `first ${n}`.padEnd(200, "."));
    await m.clock.complete(store.checkpoint());
    for (let n = 0; n < 99; n++) await write(m, store, `k/${n}`, undefined);
    await m.clock.complete(store.checkpoint());
    expect((await copies(m)).length).toBeGreaterThan(4);
    await m.clock.complete(store.operator.compact());
    expect(await copies(m)).toEqual(["map.copy"]);
    m.kill();
    expect(await all(m, (await m.boot()).store)).toHaveProperty("k/99");
  });

  test.each(["damage", "hollow"] as const)("mends a store with %s wholly", async (how) => {
    const m = machine(2);
    const expected = await fill(m);
    m.kill();
    m.kv[how](`${dir}/map`);
    for (let start = 0; start < 2; start++) {
      const { store } = await m.boot();
      expect(await all(m, store)).toEqual(expected);
      m.crash();
    }
    const mended = m.events.filter(({ event }) => event === "store.map_mended");
    expect(mended.map(({ fields }) => fields?.isComplete)).toEqual([true]);
  });

  test("with a rotten part is no copy, and says so", async () => {
    const m = machine(3);
    await fill(m);
    m.kill();
    m.disk.flipBit(`${dir}/${(await copies(m)).find((name) => name.endsWith("-1"))}`, 300);
    m.kv.hollow(`${dir}/map`);
    await m.boot();
    const mended = m.events.filter(({ event }) => event === "store.map_mended");
    expect(mended.map(({ fields }) => fields?.isComplete)).toEqual([false]);
    expect(m.events.map(({ event }) => event)).toContain("store.copy_damaged");
  });

  test("cut short by a full volume stands as it was before, and is made whole later", async () => {
    const m = machine(4);
    const { store } = await m.boot();
    for (let n = 0; n < 100; n++) await write(m, store, `k/${n}`, "a".repeat(200));
    await m.clock.complete(store.checkpoint());
    await write(m, store, "k/1", "b");
    m.disk.inject({ on: "write", path: "map.copy", times: 1, fails: "ENOSPC" });
    await m.clock.complete(store.checkpoint());
    await write(m, store, "k/2", "c");
    await m.clock.complete(store.checkpoint());
    const expected = await all(m, store);
    m.kill();
    m.kv.hollow(`${dir}/map`);
    const again = (await m.boot()).store;
    expect(await all(m, again)).toEqual(expected);
  });

  test("above the limit there is none, and what was there goes", async () => {
    const m = machine(5);
    const { store } = await m.boot();
    for (let n = 0; n < 20; n++) await write(m, store, `k/${n}`, "a".repeat(500));
    await m.clock.complete(store.checkpoint());
    expect(await copies(m)).not.toEqual([]);
    for (let n = 0; n < 300; n++) await write(m, store, `k/${n}`, "a".repeat(500));
    await m.clock.complete(store.checkpoint());
    expect(await copies(m)).toEqual([]);
    expect(m.events.map(({ event }) => event)).toContain("store.map_too_large_to_copy");
  });

  test("begins at 16 MiB and ends at 1 GiB", () => {
    expect(mapCopySizesDefault).toMatchObject({ wholeBytesMax: 2 ** 24, bytesMax: 2 ** 30 });
  });
});
