import { describe, expect, test } from "vitest";
import {
  appendOne,
  indexesOf,
  LogHarness,
  logDir,
  makeRecord,
  recordsOf,
} from "../../support/log-harness.ts";

// An open file keeps the name it was opened by: the first two segments of a new log.
const current = "00000001";
const next = "00000002";

describe("a device error", () => {
  for (const on of ["write", "fdatasync"] as const) {
    test(`at ${on} is final: pending and later appends get the same coded error`, async () => {
      const harness = new LogHarness();
      const log = await harness.open();
      await harness.appendAll(log, [makeRecord(1, 1)]);
      harness.disk.inject({ on, path: current, fails: "EIO" });
      const errors: unknown[] = [];
      const order: number[] = [];
      for (let index = 2; index <= 30; index++) {
        log.append(makeRecord(1, index), (error) => {
          errors.push(error);
          order.push(index);
        });
      }
      await harness.clock.runUntil(() => errors.length === 29);
      expect(order).toEqual(recordsOf(1, 2, 30).map(({ index }) => index));
      expect(new Set(errors)).toEqual(new Set([log.failure]));
      expect(log.failure).toMatchObject({ code: "LOG_IO_FAILED", kind: "internal" });
      expect(() => log.append(makeRecord(1, 31), () => undefined)).toThrow(log.failure as Error);
      expect(harness.failures).toEqual([log.failure]);
      await expect(harness.clock.complete(log.prove())).rejects.toBe(log.failure);
      await harness.close(log);
    });
  }

  test("of a sync is never retried, not even when it says that there is no space", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    await harness.clock.advance(100);
    harness.disk.inject({ on: "fdatasync", path: current, fails: "ENOSPC" });
    const before = harness.disk.counters.syncs;
    const append = appendOne(log, makeRecord(1, 1));
    await expect(harness.clock.complete(append)).rejects.toMatchObject({ code: "LOG_IO_FAILED" });
    await harness.clock.advance(60_000);
    expect(harness.disk.counters.syncs).toBe(before);
    await harness.close(log);
  });

  test("while the next segment is filled ends the log as well", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    harness.disk.inject({ on: "fdatasync", path: next, fails: "EIO" });
    await harness.clock.advance(100);
    expect(log.failure).toMatchObject({ code: "LOG_IO_FAILED" });
    await harness.close(log);
  });

  test("leaves what was acked readable after the next start", async () => {
    const harness = new LogHarness();
    let log = await harness.open();
    await harness.appendAll(log, recordsOf(1, 1, 10));
    harness.disk.inject({ on: "fdatasync", path: current, fails: "EIO" });
    const lost = appendOne(log, makeRecord(1, 11));
    await expect(harness.clock.complete(lost)).rejects.toThrow();
    harness.disk.kill();
    log = await harness.open();
    expect(indexesOf(await harness.read(log, 1)).slice(0, 10)).toEqual(
      indexesOf(recordsOf(1, 1, 10)),
    );
    await harness.close(log);
  });
});

describe("no space", () => {
  test("at a write keeps the records, and the flush goes to a fresh segment", async () => {
    const harness = new LogHarness();
    let log = await harness.open();
    await harness.appendAll(log, recordsOf(1, 1, 3));
    await harness.clock.advance(100);
    harness.disk.inject({ on: "write", path: current, fails: "ENOSPC" });
    await harness.appendAll(log, recordsOf(1, 4, 6));
    expect((await harness.names()).filter((name) => name.endsWith(".wal"))).toHaveLength(2);
    expect(log.counters.spaceWaits).toBe(1);
    harness.disk.crash();
    log = await harness.open();
    expect(indexesOf(await harness.read(log, 1))).toEqual([1, 2, 3, 4, 5, 6]);
    expect(log.damage).toEqual([]);
    await harness.close(log);
  });

  test("is told with a segment left for progress writes; then appends wait", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    const used = 2 ** 40 - harness.disk.freeBytes;
    harness.disk.setCapacity(used);
    await harness.clock.advance(100);
    expect(log.full).toBe(true);
    expect(log.failure).toBeUndefined();
    // 4,096 bytes less two headers, in flushes of one record of 200 bytes and 76 of headers.
    for (let index = 1; index <= 10; index++) {
      await harness.appendAll(log, [makeRecord(1, index, Buffer.alloc(168))]);
    }
    const waiting = recordsOf(1, 11, 30).map((record) => appendOne(log, record));
    await harness.clock.advance(120_000);
    expect(log.pendingBytes).toBeGreaterThan(0);
    harness.disk.setCapacity(2 ** 40);
    await harness.clock.complete(Promise.all(waiting));
    expect(log.full).toBe(false);
    expect(harness.fullChanges).toEqual([true, false]);
    expect(indexesOf(await harness.read(log, 1))).toHaveLength(30);
    await harness.close(log);
  });

  test("ends when a release frees a segment, without new space", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    for (let index = 1; index <= 60; index += 10) {
      await harness.appendAll(log, recordsOf(1, index, index + 9));
    }
    await harness.clock.advance(100);
    harness.disk.setCapacity(2 ** 40 - harness.disk.freeBytes);
    const appended: Promise<void>[] = [];
    for (let index = 61; index <= 300; index++) appended.push(appendOne(log, makeRecord(1, index)));
    await harness.clock.advance(20_000);
    expect(log.full).toBe(true);
    expect(log.pendingBytes).toBeGreaterThan(0);
    while (log.pendingBytes > 0) {
      log.release(1, log.range(1)?.lastIndex ?? 0);
      await harness.clock.advance(20_000);
    }
    await harness.clock.complete(Promise.all(appended));
    await harness.close(log);
  });

  test("does not keep the log from opening, reading and closing", async () => {
    const harness = new LogHarness();
    let log = await harness.open();
    await harness.appendAll(log, recordsOf(1, 1, 5));
    harness.disk.kill();
    for (const name of await harness.names()) {
      if (name.endsWith(".free"))
        await harness.clock.complete(harness.disk.remove(`${logDir}/${name}`));
    }
    harness.disk.setCapacity(2 ** 40 - harness.disk.freeBytes);
    log = await harness.open();
    expect(log.full).toBe(true);
    expect(indexesOf(await harness.read(log, 1))).toEqual([1, 2, 3, 4, 5]);
    const refused = appendOne(log, makeRecord(1, 6));
    const told = expect(refused).rejects.toMatchObject({ code: "LOG_CLOSED" });
    await harness.clock.advance(1000);
    await harness.close(log);
    await told;
    harness.disk.setCapacity(2 ** 40);
    log = await harness.open();
    await harness.appendAll(log, [makeRecord(1, 6)]);
    await harness.close(log);
  });
});

describe("segments", () => {
  test("filling the next segment does not delay acks", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    harness.disk.heal();
    harness.disk.inject({
      on: "write",
      path: next,
      delayMs: 1000,
      times: Number.POSITIVE_INFINITY,
    });
    await harness.clock.advance(10);
    const start = harness.clock.elapsedMs();
    await harness.appendAll(log, recordsOf(1, 1, 10));
    expect(harness.clock.elapsedMs() - start).toBeLessThan(10);
    await harness.close(log);
  });

  test("a start that finds no segment ready does not wait for a whole one", async () => {
    const sizes = { segmentBytes: 8 * 1024 * 1024, zeroFillBytes: 1024 * 1024 };
    const harness = new LogHarness({ settings: { ...sizes, flushBytesMax: 1024 * 1024 } });
    let log = await harness.open();
    expect(harness.disk.peek(`${logDir}/00000001.wal`)).toHaveLength(4 * 1024 * 1024);
    await harness.clock.advance(1000);
    expect(harness.disk.peek(`${logDir}/00000002.free`)).toHaveLength(8 * 1024 * 1024);
    await harness.appendAll(log, recordsOf(1, 1, 5));
    await harness.close(log);
    log = await harness.open();
    expect(harness.disk.peek(`${logDir}/00000002.wal`)).toHaveLength(8 * 1024 * 1024);
    await harness.close(log);
  });

  test("the folder is synced before the first ack out of a new segment", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    await harness.clock.advance(100);
    harness.disk.inject({ on: "syncDir", path: logDir, hangs: true });
    let acked = 0;
    for (let index = 1; index <= 100; index++) {
      log.append(makeRecord(1, index), () => acked++);
    }
    await harness.clock.advance(10_000);
    expect(acked).toBeGreaterThan(0);
    expect(acked).toBeLessThan(100);
    harness.disk.heal();
    await harness.clock.runUntil(() => acked === 100);
    await harness.close(log);
  });

  test("are recycled when every shard has released them; spare ones are removed", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    for (let index = 1; index <= 400; index += 10) {
      const slow = index < 100 ? [makeRecord(2, (index + 9) / 10)] : [];
      await harness.appendAll(log, [...recordsOf(1, index, index + 9), ...slow]);
    }
    const before = log.sizeBytes;
    log.release(1, 390);
    await harness.clock.advance(100);
    expect(log.sizeBytes).toBe(before);
    expect(log.pinnedBy()?.shard).toBe(2);
    expect(log.pinnedBy()?.bytes).toBeGreaterThan(before / 2);
    log.forget(2);
    await harness.clock.advance(100);
    expect(log.sizeBytes).toBeLessThan(before / 2);
    const names = await harness.names();
    expect(names.filter((name) => name.endsWith(".free"))).toHaveLength(2);
    expect(log.counters.segmentsRemoved).toBeGreaterThan(0);
    await harness.appendAll(log, recordsOf(1, 401, 500));
    expect(log.counters.segmentsRecycled).toBeGreaterThan(0);
    expect(indexesOf(await harness.read(log, 1, 391))).toHaveLength(110);
    await harness.close(log);
  });

  test("are trimmed to the one that is next, and the log goes on from there", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    await harness.appendAll(log, recordsOf(1, 1, 400));
    log.release(1, 390);
    const trimming = log.trim();
    const appending = harness.appendAll(log, recordsOf(1, 401, 500));
    await harness.clock.complete(trimming);
    await appending;
    await harness.clock.advance(100);
    log.release(1, 490);
    await harness.clock.complete(log.trim());
    const names = await harness.names();
    expect(names.filter((name) => name.endsWith(".free"))).toHaveLength(1);
    await harness.appendAll(log, recordsOf(1, 501, 600));
    expect(indexesOf(await harness.read(log, 1, 491))).toHaveLength(110);
    await harness.close(log);
    const again = await harness.open();
    expect(indexesOf(await harness.read(again, 1, 491))).toHaveLength(110);
    await harness.close(again);
  });

  test("are kept while a read of them is under way", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    for (let index = 1; index <= 200; index += 10) {
      await harness.appendAll(log, recordsOf(1, index, index + 9));
    }
    let count = 0;
    const reading = log.read(1, 1, async () => {
      count++;
      if (count === 3) log.release(1, 200);
      await new Promise<void>((resolve) => {
        harness.clock.schedule(1, resolve);
      });
    });
    await harness.clock.complete(reading);
    expect(count).toBe(200);
    await harness.clock.advance(100);
    expect(log.sizeBytes).toBeLessThanOrEqual(4 * 4096);
    await harness.close(log);
  });

  test("bytesSinceRelease follows appends and releases of one shard", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    await harness.appendAll(log, recordsOf(1, 1, 100));
    const all = log.bytesSinceRelease(1);
    expect(all).toBeGreaterThan(100 * 32);
    log.release(1, 50);
    expect(Math.abs(log.bytesSinceRelease(1) - all / 2)).toBeLessThan(all / 20);
    log.release(1, 100);
    expect(log.bytesSinceRelease(1)).toBe(0);
    expect(log.bytesSinceRelease(7)).toBe(0);
    await harness.close(log);
  });
});
