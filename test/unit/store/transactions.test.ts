import { describe, expect, test } from "vitest";
import type { MapShard } from "../../../src/store/index.ts";
import { StoreMachine } from "../../support/store-machine.ts";

async function boot(seed = 1): Promise<{ m: StoreMachine; shard: MapShard }> {
  const m = new StoreMachine({ seed });
  const { store } = await m.boot();
  return { m, shard: store.state("owner") };
}

const text = (value: string): Buffer => Buffer.from(value);

function write(
  shard: MapShard,
  key: string,
  value: string | undefined,
  guards: Parameters<MapShard["write"]>[1] = [],
): Promise<number> {
  const writes = [{ key, value: value === undefined ? undefined : text(value) }];
  return new Promise((resolve, reject) => {
    shard.write(writes, guards, (error, timeUs) => (error ? reject(error) : resolve(timeUs)));
  });
}

async function increment(shard: MapShard, key: string): Promise<void> {
  await shard.transact(async (tx) => {
    const entry = await tx.get(key);
    tx.put(key, text(String(entry === undefined ? 1 : Number(entry.value.toString()) + 1)));
  });
}

describe("transactions", () => {
  test("a hundred racing increments add a hundred", async () => {
    const { m, shard } = await boot();
    const all = Array.from({ length: 100 }, () => increment(shard, "n"));
    await m.clock.complete(Promise.all(all));
    const entry = await m.clock.complete(shard.get("n"));
    expect(entry?.value.toString()).toBe("100");
  });

  test("increments of different keys do not wait for each other", async () => {
    const { m, shard } = await boot();
    await m.clock.complete(
      Promise.all(Array.from({ length: 50 }, (_, n) => increment(shard, `k/${n}`))),
    );
    expect(await m.clock.complete(shard.list("k/", { countMax: 100 }))).toHaveLength(50);
  });

  test("a read branch conflicts with a new key in it", async () => {
    const { m, shard } = await boot();
    let runs = 0;
    const counting = shard.transact(async (tx) => {
      runs++;
      const found = await tx.list("k/", 10);
      if (runs === 1) await write(shard, "k/new", "x");
      tx.put("count", text(String(found.length)));
    });
    await m.clock.complete(counting);
    expect(runs).toBe(2);
    expect((await m.clock.complete(shard.get("count")))?.value.toString()).toBe("1");
  });

  test("reads do not see the transaction's own writes", async () => {
    const { m, shard } = await boot();
    const { value } = await m.clock.complete(
      shard.transact(async (tx) => {
        tx.put("a", text("1"));
        return tx.get("a");
      }),
    );
    expect(value).toBeUndefined();
  });

  test("a body that always conflicts is given up after eight attempts", async () => {
    const { m, shard } = await boot();
    let runs = 0;
    const losing = shard.transact(async (tx) => {
      runs++;
      await tx.get("a");
      await write(shard, "a", String(runs));
      tx.put("b", text("x"));
    });
    await expect(m.clock.complete(losing)).rejects.toMatchObject({ code: "STORE_TX_CONFLICT" });
    expect(runs).toBe(8);
  });

  test("a transaction that met many writes on their way reads again when all are applied", async () => {
    const { m, shard } = await boot();
    let runs = 0;
    const counting = shard.transact(async (tx) => {
      runs++;
      const entry = await tx.get("a");
      if (runs === 1) {
        for (let n = 0; n < 30; n++) {
          shard.write([{ key: "a", value: text(String(n)) }], [], () => undefined);
          await new Promise<void>((resolve) => m.clock.soon(resolve));
        }
      }
      tx.put("seen", entry?.value ?? text("none"));
    });
    await m.clock.complete(counting);
    expect(runs).toBe(2);
    expect((await m.clock.complete(shard.get("seen")))?.value.toString()).toBe("29");
  });

  test("preconditions are decided against what is proposed, also without a read", async () => {
    const { m, shard } = await boot();
    const create = (): Promise<unknown> =>
      shard.transact(async (tx) => {
        tx.assertAbsent("once");
        tx.put("once", text("x"));
      });
    const results = await m.clock.complete(Promise.allSettled([create(), create(), create()]));
    expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    const missing = shard.transact(async (tx) => tx.assertPresent("nothing"));
    await expect(m.clock.complete(missing)).rejects.toMatchObject({
      code: "STORE_PRECONDITION_FAILED",
    });
  });

  test("a precondition that relies on a write on its way is answered when that is durable", async () => {
    const { m, shard } = await boot();
    let isWritten = false;
    const writing = write(shard, "a", "1").then(() => {
      isWritten = true;
    });
    const checking = shard.transact(async (tx) => {
      tx.assertPresent("a");
      return isWritten;
    });
    const { timeUs, value } = await m.clock.complete(checking);
    expect([value, isWritten]).toEqual([false, true]);
    await writing;
    expect(timeUs).toBe((await m.clock.complete(shard.get("a")))?.timeUs);
  });

  test("a precondition that relies on a write that fails fails as well", async () => {
    const { m, shard } = await boot();
    m.disk.inject({ on: "fdatasync", path: "data/log", fails: "EIO" });
    const writing = write(shard, "a", "1");
    const checking = shard.transact(async (tx) => tx.assertPresent("a"));
    const results = await m.clock.complete(Promise.allSettled([writing, checking]));
    expect(results.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  });

  test("reads older than the window conflict", async () => {
    const { m, shard } = await boot();
    let runs = 0;
    const slow = shard.transact(async (tx) => {
      runs++;
      await tx.get("other");
      if (runs === 1) {
        await write(shard, "a", "1");
        await new Promise<void>((resolve) => m.clock.schedule(6_000, resolve));
        await write(shard, "a", "2");
      }
      tx.put("b", text("x"));
    });
    await m.clock.complete(slow);
    expect(runs).toBe(2);
  });
});

describe("guards", () => {
  test("a write goes ahead only while its guarded key is what it was", async () => {
    const { m, shard } = await boot();
    const firstUs = await m.clock.complete(write(shard, "s", "1"));
    const guard = [{ key: "s", timeUs: firstUs }];
    const secondUs = await m.clock.complete(write(shard, "s", "2", guard));
    await expect(m.clock.complete(write(shard, "s", "3", guard))).rejects.toMatchObject({
      code: "STORE_GUARD_FAILED",
    });
    await m.clock.complete(write(shard, "s", undefined, [{ key: "s", timeUs: secondUs }]));
    await m.clock.complete(write(shard, "s", "4", [{ key: "s", timeUs: undefined }]));
    expect((await m.clock.complete(shard.get("s")))?.value.toString()).toBe("4");
  });

  test("two writes of one turn are decided in the order of the calls", async () => {
    const { m, shard } = await boot();
    const absent = [{ key: "s", timeUs: undefined }];
    const both = Promise.allSettled([
      write(shard, "s", "1", absent),
      write(shard, "s", "2", absent),
    ]);
    const results = await m.clock.complete(both);
    expect(results.map(({ status }) => status)).toEqual(["fulfilled", "rejected"]);
  });

  test("a write without conditions passes guards that wait for the disk, not those on its key", async () => {
    const m = new StoreMachine({ seed: 7 });
    const first = (await m.boot()).store;
    const key = "s";
    const firstUs = await m.clock.complete(write(first.state("owner"), key, "1"));
    await m.clock.complete(first.checkpoint());
    m.kill();
    const shard = (await m.boot()).store.state("owner");
    const guards = [{ key, timeUs: firstUs }];
    const [guardedUs, otherUs, sameUs] = await m.clock.complete(
      Promise.all([
        write(shard, "x", "2", guards),
        write(shard, "retained/t", "3"),
        write(shard, key, "4"),
      ]),
    );
    expect(otherUs).toBeLessThan(guardedUs);
    expect(sameUs).toBeGreaterThan(guardedUs);
  });

  test("a checkpoint keeps no writes in memory: a transaction over it begins again", async () => {
    const m = new StoreMachine({ seed: 1 });
    const { store } = await m.boot();
    const shard = store.state("owner");
    let runs = 0;
    const over = shard.transact(async (tx) => {
      runs++;
      await tx.get("a");
      if (runs === 1) {
        await write(shard, "b", "1");
        await store.checkpoint();
      }
      tx.put("c", text("1"));
    });
    await m.clock.complete(over);
    expect(runs).toBe(2);
  });

  test("guards on keys that are deleted while another is read from disk are decided", async () => {
    for (let seed = 1; seed <= 20; seed++) {
      const m = new StoreMachine({ seed });
      const first = (await m.boot()).store;
      const old = ["x", "y", "z"];
      const timesUs = await m.clock.complete(
        Promise.all(old.map((key) => write(first.state("owner"), key, "1"))),
      );
      await m.clock.complete(first.checkpoint());
      m.kill();
      const shard = (await m.boot()).store.state("owner");
      const held = old.map((key, at) => ({ key, timeUs: timesUs[at] as number }));
      const gone = ["a", "b", "c"].map((key) => ({ key, timeUs: undefined }));
      const guards = held.flatMap((guard, at) => [gone[at] ?? guard, guard]);
      await m.clock.complete(
        Promise.all([
          ...gone.map(({ key }) => write(shard, key, undefined)),
          write(shard, "done", "1", guards),
        ]),
      );
    }
  });

  test("guards on more data than the cache holds are decided all the same", async () => {
    const { m, shard } = await boot();
    const guards: Array<{ key: string; timeUs: number }> = [];
    for (let n = 0; n < 5; n++) {
      const timeUs = await m.clock.complete(write(shard, `k/${n}`, "x".repeat(4 * 1024 * 1024)));
      guards.push({ key: `k/${n}`, timeUs });
    }
    await m.clock.complete(shard.list("k/", { countMax: 1 }));
    await m.clock.complete(write(shard, "done", "1", guards));
  });
});

describe("limits", () => {
  test("a key that cannot be stored is refused, and harms nobody else", async () => {
    const { m, shard } = await boot();
    for (const key of ["x".repeat(70_000), "a\0b"]) {
      await expect(m.clock.complete(write(shard, key, "1"))).rejects.toMatchObject({
        code: "STORE_KEY_INVALID",
      });
    }
    await m.clock.complete(write(shard, "a", "1"));
  });

  test("a write above the largest entry is refused before it is decided", async () => {
    const { m, shard } = await boot();
    const large = write(shard, "a", "x".repeat(9 * 1024 * 1024));
    await expect(m.clock.complete(large)).rejects.toMatchObject({ code: "STORE_ENTRY_TOO_LARGE" });
  });

  test("a transaction reads at most 10,000 keys and prefixes: all of them are kept for its judgement", async () => {
    const { m, shard } = await boot();
    const many = shard.transact(async (tx) => {
      for (let n = 0; n < 10_000; n++) tx.assertAbsent(`k/${n}`);
      await tx.get("one more");
    });
    await expect(m.clock.complete(many)).rejects.toMatchObject({ code: "STORE_LIMIT_REACHED" });
  });

  test("a transaction has at most 1,000 operations and 1 MiB, or one operation", async () => {
    const { m, shard } = await boot();
    const many = shard.transact(async (tx) => {
      for (let n = 0; n <= 1_000; n++) tx.put(`k/${n}`, text("x"));
    });
    await expect(m.clock.complete(many)).rejects.toMatchObject({ code: "STORE_LIMIT_REACHED" });
    const large = shard.transact(async (tx) => {
      tx.put("a", text("x".repeat(700_000)));
      tx.put("b", text("x".repeat(700_000)));
    });
    await expect(m.clock.complete(large)).rejects.toMatchObject({ code: "STORE_LIMIT_REACHED" });
    const one = shard.transact(async (tx) => tx.put("a", text("x".repeat(2_000_000))));
    await m.clock.complete(one);
  });
});

test("a map shard whose log has failed answers everybody", async () => {
  const { m, shard } = await boot();
  m.disk.inject({ on: "fdatasync", path: "data/log", fails: "EIO" });
  const all = [write(shard, "a", "1"), increment(shard, "n"), increment(shard, "n")];
  const results = await m.clock.complete(Promise.allSettled(all));
  expect(results.map(({ status }) => status)).toEqual(["rejected", "rejected", "rejected"]);
  await expect(m.clock.complete(write(shard, "a", "2"))).rejects.toMatchObject({
    code: "STORE_FAILED",
  });
});
