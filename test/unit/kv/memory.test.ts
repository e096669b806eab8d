import { describe, expect, test } from "vitest";
import { SeededRandom, SimClock, systemClock } from "../../../src/base/index.ts";
import { kvContract } from "../../../src/contracts/index.ts";
import { type Kv, type KvRange, MemoryDriver } from "../../../src/kv/index.ts";
import { testContract } from "../../support/contract-tests.ts";

testContract(
  "memory twin",
  kvContract(async () => {
    const { clock, driver } = machine(1);
    return {
      driver,
      path: "data/store",
      run: (promise) => clock.complete(promise),
      close: () => Promise.resolve(),
    };
  }),
);

testContract(
  "memory without a model",
  kvContract(async () => ({
    driver: new MemoryDriver({ clock: systemClock }),
    path: "data/store",
    run: (promise) => promise,
    close: () => Promise.resolve(),
  })),
);

test("what a dead process still runs leaves the store of the next one alone", async () => {
  const { clock, driver } = machine(3, [1000, 1000]);
  const open = () => clock.complete(driver.open("store", { writeBufferBytes: 1 }));
  const old = await open();
  await clock.complete(put(old, 1));
  driver.kill();
  // Its log is full: this write would switch it, and the switch would never end.
  put(old, 2).catch(() => undefined);
  await clock.advance(0);
  const next = await open();
  for (let at = 3; at < 6; at++) await clock.complete(put(next, at));
  await clock.complete(next.close());
  expect(await clock.complete(keysLeft(driver))).toEqual([1, 3, 4, 5]);
});

test("what a dead process opens stays closed to nobody", async () => {
  const { clock, driver } = machine(4);
  const dead = driver.attach();
  driver.kill();
  let isOpen = false;
  void dead.open("store").then(() => {
    isOpen = true;
  });
  await clock.advance(1000);
  const next = await clock.complete(driver.attach().open("store"));
  await clock.complete(next.close());
  expect(isOpen).toBe(false);
});

describe("power loss", () => {
  test("a synced batch survives, whatever became of the others", async () => {
    for (let seed = 0; seed < 60; seed++) {
      const { clock, driver } = machine(seed);
      await clock.complete(
        inStore(driver, async (kv) => {
          for (let at = 0; at < 10; at++) await put(kv, at);
          await put(kv, 10, { sync: true });
          for (let at = 11; at < 15; at++) await put(kv, at);
        }),
      );
      driver.crash();
      expect(await clock.complete(keysLeft(driver))).toContain(10);
    }
  });

  test("after sync() every batch written before it survives", async () => {
    for (let seed = 0; seed < 60; seed++) {
      const { clock, driver } = machine(seed);
      await clock.complete(
        inStore(driver, async (kv) => {
          for (let at = 0; at < 10; at++) await put(kv, at);
          await kv.sync();
          for (let at = 10; at < 15; at++) await put(kv, at);
        }),
      );
      driver.crash();
      const left = await clock.complete(keysLeft(driver));
      for (let at = 0; at < 10; at++) expect(left).toContain(at);
    }
  });

  test("a synced batch does not save unsynced ones of an older log file", async () => {
    let lostBefore = 0;
    for (let seed = 0; seed < 200; seed++) {
      const { clock, driver } = machine(seed, [1000, 1000]);
      await clock.complete(
        inStore(driver, async (kv) => {
          for (let at = 0; at < 5; at++) await put(kv, at);
          await put(kv, 5, { sync: true });
        }),
      );
      driver.crash();
      const left = await clock.complete(keysLeft(driver));
      expect(left).toContain(5);
      if (left.length < 6) lostBefore++;
    }
    expect(lostBefore).toBeGreaterThan(5);
  });

  test("batches of an old log are durable once it has become a table", async () => {
    for (let seed = 0; seed < 40; seed++) {
      const { clock, driver } = machine(seed, [1, 5]);
      const kv = await clock.complete(driver.open("store", { writeBufferBytes: 1 }));
      await clock.complete(put(kv, 0));
      await clock.complete(put(kv, 1));
      await clock.advance(100);
      driver.crash();
      expect(await clock.complete(keysLeft(driver))).toContain(0);
    }
  });

  test("unsynced batches are lost from the end, and sometimes leave a hole", async () => {
    const shapes = { whole: 0, prefix: 0, hole: 0 };
    for (let seed = 0; seed < 200; seed++) {
      const { clock, driver } = machine(seed);
      await clock.complete(
        inStore(driver, async (kv) => {
          for (let at = 0; at < 6; at++) await put(kv, at);
        }),
      );
      driver.crash();
      const left = await clock.complete(keysLeft(driver));
      const isPrefix = left.every((at, index) => at === index);
      shapes[left.length === 6 ? "whole" : isPrefix ? "prefix" : "hole"]++;
    }
    expect(Math.min(shapes.whole, shapes.prefix, shapes.hole)).toBeGreaterThan(5);
  });

  test("a batch survives whole or not at all", async () => {
    for (let seed = 0; seed < 60; seed++) {
      const { clock, driver } = machine(seed);
      const kv = await clock.complete(driver.open("store"));
      const batch = kv.batch();
      for (let at = 0; at < 10; at++) batch.put(keyOf(at), Buffer.alloc(100));
      void batch.write();
      await clock.advance((seed % 10) / 50);
      driver.crash();
      expect([0, 10]).toContain((await clock.complete(keysLeft(driver))).length);
    }
  });

  test("what a reopened store showed survives the next cut", async () => {
    for (let seed = 0; seed < 40; seed++) {
      const { clock, driver } = machine(seed);
      await clock.complete(
        inStore(driver, async (kv) => {
          for (let at = 0; at < 6; at++) await put(kv, at);
        }),
      );
      driver.crash();
      const shown = await clock.complete(keysLeft(driver));
      driver.crash();
      expect(await clock.complete(keysLeft(driver))).toEqual(shown);
    }
  });

  test("a removal caught half way leaves the store, nothing, or KV_CORRUPT", async () => {
    const outcomes = new Set<string>();
    for (let seed = 0; seed < 60; seed++) {
      const { clock, driver } = machine(seed);
      await clock.complete(
        inStore(driver, async (kv) => {
          await put(kv, 0, { sync: true });
          await kv.close();
        }),
      );
      void driver.destroy("store");
      await clock.advance((seed % 3) * 0.1);
      driver.crash();
      const opened = await clock.complete(
        keysLeft(driver).then(
          (left) => (left.length === 1 ? "there" : "gone"),
          (error) => error.code,
        ),
      );
      outcomes.add(opened);
      await clock.complete(driver.destroy("store").catch(() => undefined));
    }
    expect([...outcomes].sort()).toEqual(["KV_CORRUPT", "gone", "there"]);
  });
});

describe("process death", () => {
  test("unsynced batches survive, and the lock is free", async () => {
    const { clock, driver } = machine(2);
    const kv = await clock.complete(driver.open("store"));
    for (let at = 0; at < 6; at++) await clock.complete(put(kv, at));
    driver.kill();
    expect(await clock.complete(keysLeft(driver))).toEqual([0, 1, 2, 3, 4, 5]);
  });

  test("calls of the dead process never complete", async () => {
    const { clock, driver } = machine(3);
    const kv = await clock.complete(driver.open("store"));
    const completed: string[] = [];
    void put(kv, 0).then(() => completed.push("write"));
    void kv.get(keyOf(0)).then(() => completed.push("get"));
    driver.kill();
    void put(kv, 1).then(() => completed.push("late write"));
    void kv.close().then(() => completed.push("late close"));
    await clock.advance(1000);
    expect(completed).toEqual([]);
    expect(await clock.complete(keysLeft(driver))).not.toContain(1);
  });
});

describe("faults", () => {
  test.each([
    ["EIO", "KV_FAILED"],
    ["ENOSPC", "KV_DISK_FULL"],
  ] as const)(
    "%s ends all writing with %s until the store is opened again",
    async (errno, code) => {
      const { clock, driver } = machine(4);
      const kv = await clock.complete(driver.open("store"));
      await clock.complete(put(kv, 0));
      driver.inject({ on: "write", fails: errno });
      const error = await clock.complete(put(kv, 1).catch((thrown: unknown) => thrown));
      expect(error).toMatchObject({ code, details: { path: "store", errno } });
      await expect(clock.complete(put(kv, 2))).rejects.toBe(error);
      await expect(clock.complete(kv.sync())).rejects.toBe(error);
      await expect(clock.complete(kv.clear({}))).rejects.toBe(error);
      expect(await clock.complete(kv.get(keyOf(0)))).toBeDefined();
      await clock.complete(kv.close());
      const again = await clock.complete(driver.open("store"));
      await clock.complete(put(again, 3));
      expect(await clock.complete(again.get(keyOf(2)))).toBeUndefined();
    },
  );

  test("a failed flush in the background ends all writing too", async () => {
    const { clock, driver } = machine(5, [1, 2]);
    const kv = await clock.complete(driver.open("store", { writeBufferBytes: 1 }));
    driver.inject({ on: "flush", fails: "EIO" });
    await clock.complete(put(kv, 0));
    await clock.complete(put(kv, 1));
    await clock.advance(100);
    await expect(clock.complete(put(kv, 2))).rejects.toMatchObject({ code: "KV_FAILED" });
    await clock.complete(kv.close());
  });

  test("a sync that hangs holds back nobody but its caller", async () => {
    const { clock, driver } = machine(6);
    const kv = await clock.complete(driver.open("store"));
    driver.inject({ on: "sync", hangs: true });
    let isSynced = false;
    void kv.sync().then(() => {
      isSynced = true;
    });
    await clock.complete(put(kv, 0));
    await clock.advance(1000);
    expect(isSynced).toBe(false);
    driver.heal();
    await clock.advance(1000);
    expect(isSynced).toBe(true);
  });

  test("a damaged store is refused until it is destroyed", async () => {
    const { clock, driver } = machine(7);
    await clock.complete(inStore(driver, (kv) => kv.close()));
    driver.damage("store");
    await expect(clock.complete(driver.open("store"))).rejects.toMatchObject({
      code: "KV_CORRUPT",
    });
    await clock.complete(driver.destroy("store"));
    await clock.complete(driver.open("store"));
  });

  test("a hollow store does not hold a proof from before, but one that is taken later", async () => {
    const { clock, driver } = machine(8);
    const prove = async (): Promise<Uint8Array> => {
      const kv = await driver.open("store");
      await put(kv, 0);
      const proof = await kv.sync();
      await kv.close();
      return proof;
    };
    const before = await clock.complete(prove());
    driver.hollow("store");
    const after = await clock.complete(prove());
    await expect(clock.complete(driver.open("store", { proof: before }))).rejects.toMatchObject({
      code: "KV_CORRUPT",
    });
    await clock.complete(driver.open("store", { proof: after }));
  });
});

test("the same seed loses the same batches", async () => {
  const run = async (seed: number): Promise<string> => {
    const { clock, driver } = machine(seed);
    const lost: string[] = [];
    for (let round = 0; round < 6; round++) {
      await clock.complete(
        inStore(driver, async (kv) => {
          for (let at = 0; at < 8; at++) await put(kv, round * 10 + at);
        }),
      );
      driver.crash();
      lost.push((await clock.complete(keysLeft(driver))).join());
    }
    return lost.join("|");
  };
  expect(await run(21)).toBe(await run(21));
  expect(await run(21)).not.toBe(await run(22));
});

function machine(
  seed: number,
  flushMs?: readonly [number, number],
): { clock: SimClock; driver: MemoryDriver } {
  const random = new SeededRandom(seed);
  const clock = new SimClock({ random: random.split("clock") });
  return {
    clock,
    driver: new MemoryDriver({ clock, random, ...(flushMs === undefined ? {} : { flushMs }) }),
  };
}

async function inStore(driver: MemoryDriver, program: (kv: Kv) => Promise<void>): Promise<void> {
  await program(await driver.open("store", { writeBufferBytes: 400 }));
}

function keyOf(at: number): Buffer {
  return Buffer.from(String(at).padStart(6, "0"));
}

function put(kv: Kv, at: number, options?: { sync: boolean }): Promise<void> {
  return kv.batch().put(keyOf(at), Buffer.alloc(50, at)).write(options);
}

/** Opens, reads all keys as numbers and closes. */
async function keysLeft(driver: MemoryDriver, range: KvRange = {}): Promise<number[]> {
  const kv = await driver.open("store");
  const cursor = kv.cursor(range);
  const entries = await cursor.next(1000);
  await cursor.close();
  await kv.close();
  return entries.map(([key]) => Number(key.toString()));
}
