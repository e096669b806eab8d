import { expect, test } from "vitest";
import { KvBench } from "../../support/store-parts.ts";

const key = Buffer.from("k");
const value = Buffer.from("v");

test("a batch that fails is written again after the store was opened again", async () => {
  for (const fails of ["EIO", "ENOSPC"] as const) {
    const bench = new KvBench(1);
    const kv = await bench.openKv();
    bench.driver.inject({ on: "write", fails, times: 3 });
    bench.driver.inject({ on: "open", fails: "ENOSPC", times: 2 });
    let fills = 0;
    await bench.run(
      kv.write((batch) => {
        fills++;
        batch.put(key, value);
      }),
    );
    expect(fills).toBe(4);
    expect(await bench.run(kv.get(key))).toEqual(value);
    expect(bench.clock.elapsedMs()).toBeLessThan(10_000);
  }
});

test("two writers that meet one failure open the store again once and keep their order", async () => {
  const bench = new KvBench(2);
  const kv = await bench.openKv();
  const { open } = bench.driver;
  let opens = 0;
  bench.driver.open = (path, options) => {
    opens++;
    return open.call(bench.driver, path, options);
  };
  bench.driver.inject({ on: "write", fails: "EIO" });
  const first = kv.write((batch) => batch.put(key, Buffer.from("1")));
  const second = kv.write((batch) => batch.put(key, Buffer.from("2")));
  await bench.run(Promise.all([first, second]));
  expect(opens).toBe(1);
  expect((await bench.run(kv.get(key)))?.toString()).toBe("2");
});

test("a fault of the caller's own is not waited out", async () => {
  const bench = new KvBench(3);
  const kv = await bench.openKv();
  const write = kv.write(() => {
    throw new Error("mine");
  });
  await expect(bench.run(write)).rejects.toThrow("mine");
});

test("a failed sync is final, one without space may be tried again", async () => {
  const bench = new KvBench(4);
  const kv = await bench.openKv();
  await bench.run(kv.write((batch) => batch.put(key, value)));
  bench.driver.inject({ on: "sync", fails: "ENOSPC" });
  await expect(bench.run(kv.sync())).rejects.toMatchObject({ code: "KV_DISK_FULL" });
  await bench.run(kv.sync());
  bench.driver.inject({ on: "sync", fails: "EIO" });
  await expect(bench.run(kv.sync())).rejects.toMatchObject({ code: "STORE_SYNC_FAILED" });
});

test("closing ends a write that waits for a sick volume", async () => {
  const bench = new KvBench(5);
  const kv = await bench.openKv();
  bench.driver.inject({ on: "write", fails: "EIO", times: Number.POSITIVE_INFINITY });
  const write = kv.write((batch) => batch.put(key, value));
  write.catch(() => undefined);
  await bench.clock.advance(7_000);
  await bench.run(kv.close(), 1_000);
  await expect(write).rejects.toMatchObject({ code: "STORE_CLOSED" });
  await expect(bench.run(kv.sync())).rejects.toMatchObject({ code: "STORE_CLOSED" });
});

test("damage is not waited out: the store is condemned, until a start mends it", async () => {
  for (const where of ["write", "open"] as const) {
    const bench = new KvBench(6);
    const kv = await bench.openKv();
    await bench.run(kv.write((batch) => batch.put(key, value)));
    const { driver } = bench;
    if (where === "write") {
      driver.inject({ on: "write", path: kv.path, fails: "EBADMSG" });
    } else {
      driver.inject({ on: "write", path: kv.path, fails: "EIO" });
      driver.inject({ on: "open", path: kv.path, fails: "EBADMSG" });
    }
    const write = kv.write((batch) => batch.put(key, Buffer.from("2")));
    await expect(bench.run(write)).rejects.toMatchObject({ code: "KV_CORRUPT" });
    await expect(bench.run(kv.sync())).rejects.toMatchObject({ code: "KV_CORRUPT" });
    await expect(bench.run(kv.get(key))).rejects.toMatchObject({ code: "KV_CORRUPT" });
    await bench.run(kv.close());
    await expect(bench.openKv()).rejects.toMatchObject({ code: "KV_CORRUPT" });
    await bench.run(driver.salvage(kv.path, "aside"));
    const mended = await bench.openKv();
    expect((await bench.run(mended.get(key)))?.toString()).toMatch(/^[v2]$/);
  }
});
