import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import {
  type Clock,
  nodeDisk,
  silentLogger,
  systemClock,
  systemRandom,
} from "../../../src/base/index.ts";
import { defaultLogSettings, openLog, readBacklog } from "../../../src/log/index.ts";
import {
  appendAll,
  appendOne,
  indexesOf,
  LogHarness,
  logDir,
  makeRecord,
  payloadsOf,
  readAll,
  recordsOf,
  tinySettings,
} from "../../support/log-harness.ts";

describe("appending", () => {
  test("a record is read back with every field after it was acked", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    const record = makeRecord(3, 1, "hello", {
      epoch: 9,
      term: 2 ** 40,
      kind: 255,
      version: 65535,
    });
    await harness.appendAll(log, [record]);
    const [found] = await harness.read(log, 3);
    expect(found).toEqual(record);
    await harness.close(log);
  });

  test("all appends of one turn share one flush", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    await harness.appendAll(log, [...recordsOf(1, 1, 5), ...recordsOf(2, 1, 5)]);
    expect(log.counters.flushes).toBe(1);
    expect(log.counters.records).toBe(10);
  });

  test("what is appended while a sync runs shares the next flush", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    const first = appendOne(log, makeRecord(1, 1));
    harness.disk.inject({ on: "fdatasync", path: "00000001", delayMs: 50 });
    await harness.clock.advance(0.5);
    const later = recordsOf(1, 2, 9).map((record) => appendOne(log, record));
    await harness.clock.complete(Promise.all([first, ...later]));
    expect(log.counters.flushes).toBe(2);
  });

  test("a flush begins within the turn that fills it, and one of much takes half", async () => {
    const kib = 1024;
    const bounds = { flushBytesMax: 1024 * kib, recordBytesMax: 1024 * kib };
    const harness = new LogHarness({
      settings: { ...defaultLogSettings, ...bounds, segmentBytes: 4096 * kib },
    });
    const log = await harness.open();
    const large = Array.from({ length: 24 }, (_, n) =>
      makeRecord(1, n + 1, Buffer.alloc(64 * kib)),
    );
    const told: Array<Promise<unknown>> = large.map((record) => appendOne(log, record));
    // What the disk has by now is not touched by this.
    harness.disk.inject({ on: "write", path: "00000001", fails: "EIO" });
    const results = await harness.clock.complete(Promise.allSettled(told));
    const stored = results.filter(({ status }) => status === "fulfilled");
    expect(stored).toHaveLength(4);
  });

  test("a failure tells those first whose records are synced", async () => {
    const harness = new LogHarness();
    const { clock } = harness;
    // Time passes with each look: one callback a turn while a write is under way, and turns are long.
    let looks = 0;
    const hasty: Clock = {
      wallUs: () => clock.wallUs(),
      elapsedMs: () => clock.elapsedMs() + 2 * looks++,
      schedule: (delayMs, task) => clock.schedule(delayMs, task),
      soon: (task) => void clock.schedule(10, task),
    };
    const components = { ...harness.components(), clock: hasty };
    const log = await clock.complete(openLog(tinySettings, components, logDir));
    const order: string[] = [];
    const append = (index: number, written?: () => void): void =>
      log.append(
        makeRecord(1, index),
        (error) => order.push(`${index} ${error?.name ?? "stored"}`),
        written,
      );
    const later = (): void => {
      for (let index = 7; index <= 8; index++) append(index);
      harness.disk.inject({ on: "write", path: "00000001", fails: "EIO" });
    };
    append(1, later);
    for (let index = 2; index <= 6; index++) append(index);
    await clock.advance(1_000);
    const stored = [1, 2, 3, 4, 5, 6].map((index) => `${index} stored`);
    expect(order.slice(0, 6)).toEqual(stored);
    expect(order.slice(6).every((each) => !each.endsWith("stored"))).toBe(true);
  });

  test("done runs in append order over all shards, whatever one of them throws", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    const order: string[] = [];
    for (let index = 1; index <= 40; index++) {
      for (const shard of [1, 2]) {
        log.append(makeRecord(shard, index), () => {
          order.push(`${shard}/${index}`);
          if (index % 7 === 0) throw new Error("fault of the owner");
        });
      }
    }
    await harness.clock.runUntil(() => order.length === 80);
    const expected: string[] = [];
    for (let index = 1; index <= 40; index++) expected.push(`1/${index}`, `2/${index}`);
    expect(order).toEqual(expected);
    expect(log.counters.callbackErrors).toBe(10);
  });

  test("a flush keeps to its caps, and a larger record makes one of its own", async () => {
    const harness = new LogHarness({ settings: { flushBytesMax: 600, flushRecordsMax: 4 } });
    const log = await harness.open();
    const large = makeRecord(1, 6, Buffer.alloc(2000, 1));
    await harness.appendAll(log, [...recordsOf(1, 1, 5), large, makeRecord(1, 7)]);
    expect(log.counters.flushes).toBe(4);
    expect(indexesOf(await harness.read(log, 1))).toEqual([1, 2, 3, 4, 5, 6, 7]);
  });

  test("a record larger than a segment gets a segment of its own size", async () => {
    const harness = new LogHarness();
    let log = await harness.open();
    const large = makeRecord(1, 2, Buffer.alloc(20_000, 5));
    await harness.appendAll(log, [makeRecord(1, 1), large, makeRecord(1, 3)]);
    await harness.close(log);
    log = await harness.open();
    const found = await harness.read(log, 1);
    expect(found).toEqual([makeRecord(1, 1), large, makeRecord(1, 3)]);
    expect(log.gaps).toEqual([]);
  });

  test("a record above recordBytesMax is refused at the call", async () => {
    const harness = new LogHarness({ settings: { recordBytesMax: 1000 } });
    const log = await harness.open();
    const append = () => log.append(makeRecord(1, 1, Buffer.alloc(1000)), () => undefined);
    expect(append).toThrow(expect.objectContaining({ code: "LOG_RECORD_TOO_LARGE" }));
    await harness.appendAll(log, [makeRecord(1, 1)]);
    expect(log.counters.refused).toBe(1);
  });

  test("appends above pendingBytesMax are refused, those before become durable", async () => {
    const harness = new LogHarness({ settings: { pendingBytesMax: 200 } });
    const log = await harness.open();
    const one = appendOne(log, makeRecord(1, 1, Buffer.alloc(100)));
    const append = () => log.append(makeRecord(1, 2, Buffer.alloc(100)), () => undefined);
    expect(append).toThrow(expect.objectContaining({ code: "LOG_PENDING_FULL" }));
    expect(log.pendingBytes).toBe(132);
    await harness.clock.complete(one);
    expect(log.pendingBytes).toBe(0);
    await harness.appendAll(log, [makeRecord(1, 2)]);
  });

  test("leaving out an index is a fault of the caller", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    await harness.appendAll(log, recordsOf(1, 1, 2));
    const append = () => log.append(makeRecord(1, 4), () => undefined);
    expect(append).toThrow(expect.objectContaining({ code: "BASE_ASSERTION_FAILED" }));
  });

  test("flush intervals delay a flush, but a full group does not wait", async () => {
    const harness = new LogHarness({ settings: { idleFlushIntervalMs: 20, flushIntervalMs: 30 } });
    const log = await harness.open();
    const start = harness.clock.elapsedMs();
    await harness.appendAll(log, [makeRecord(1, 1)]);
    expect(harness.clock.elapsedMs() - start).toBeGreaterThan(20);
    const again = harness.clock.elapsedMs();
    await harness.appendAll(log, recordsOf(1, 2, 17));
    expect(harness.clock.elapsedMs() - again).toBeLessThan(20);
    await harness.close(log);
  });
});

describe("proof", () => {
  test("an empty flush proves the last one after a second of idling, once", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    await harness.appendAll(log, [makeRecord(1, 1)]);
    await harness.clock.advance(900);
    expect(log.counters.flushes).toBe(1);
    await harness.clock.advance(5000);
    expect(log.counters.flushes).toBe(2);
  });

  test("prove resolves when a later flush has proved what was appended", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    const appended = appendOne(log, makeRecord(1, 1));
    await harness.clock.complete(log.prove());
    await appended;
    expect(log.counters.flushes).toBe(2);
    await harness.clock.complete(log.prove());
    expect(log.counters.flushes).toBe(2);
  });

  test("a checkpoint proves at once", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    await harness.appendAll(log, recordsOf(1, 1, 3));
    log.release(1, 2);
    await harness.clock.advance(20);
    expect(log.counters.flushes).toBe(2);
  });

  test("a clean close ends with a proof: damage to the last records is no torn tail", async () => {
    const harness = new LogHarness();
    let log = await harness.open();
    await harness.appendAll(log, recordsOf(1, 1, 3));
    await harness.close(log);
    harness.disk.flipBit(`${logDir}/00000001.wal`, (512 + 100) * 8);
    log = await harness.open();
    expect(log.gaps).toMatchObject([{ shard: 1, fromIndex: 1, toIndex: 3 }]);
    expect(log.counters.cutTails).toBe(0);
    await harness.close(log);
  });

  test("an unproved empty flush is rewritten: its loss would look like damage", async () => {
    const harness = new LogHarness();
    let log = await harness.open();
    await harness.appendAll(log, [makeRecord(1, 1)]);
    harness.disk.inject({ on: "fdatasync", path: "00000001", hangs: true });
    await harness.clock.advance(1100);
    harness.disk.kill();
    harness.disk.heal();
    log = await harness.open();
    expect(log.counters.rewrittenFlushes).toBe(1);
    expect(harness.disk.dirtySectors(`${logDir}/00000001.wal`)).toBe(0);
    await harness.close(log);
  });

  test("an unproved last flush is rewritten before open resolves", async () => {
    const harness = new LogHarness();
    let log = await harness.open();
    await harness.appendAll(log, recordsOf(1, 1, 3));
    harness.disk.kill();
    log = await harness.open();
    expect(log.counters.rewrittenFlushes).toBe(1);
    harness.disk.crash();
    log = await harness.open();
    expect(log.counters.rewrittenFlushes).toBe(0);
    expect(indexesOf(await harness.read(log, 1))).toEqual([1, 2, 3]);
  });
});

describe("settings", () => {
  test("outside their bounds are refused by name", async () => {
    const harness = new LogHarness();
    await expect(harness.open({ zeroFillBytes: 0 })).rejects.toMatchObject({
      code: "LOG_SETTINGS_INVALID",
      details: { name: "zeroFillBytes", value: 0 },
    });
  });
});

describe("the real disk", () => {
  test("keeps records over a reopen, and takes free segments again", async () => {
    const dir = await mkdtemp(join(tmpdir(), "flagstone-log-"));
    try {
      const components = {
        disk: nodeDisk,
        clock: systemClock,
        random: systemRandom,
        logger: silentLogger,
      };
      const settings = { ...tinySettings, segmentBytes: 8192 };
      let log = await openLog(settings, components, `${dir}/log`);
      for (let index = 1; index <= 300; index += 10) {
        await appendAll(log, recordsOf(1, index, index + 9));
      }
      log.release(1, 200);
      await log.close();
      log = await openLog(settings, components, `${dir}/log`);
      expect(await readAll(log, 1, 201)).toEqual(recordsOf(1, 201, 300));
      expect(log.damage).toEqual([]);
      await log.close();
    } finally {
      await rm(dir, { recursive: true });
    }
  });
});

describe("closing", () => {
  test("close writes what is queued, then refuses appends", async () => {
    const harness = new LogHarness({ settings: { idleFlushIntervalMs: 60_000 } });
    let log = await harness.open();
    const acked = appendOne(log, makeRecord(1, 1));
    await harness.close(log);
    await acked;
    const append = () => log.append(makeRecord(1, 2), () => undefined);
    expect(append).toThrow(expect.objectContaining({ code: "LOG_CLOSED" }));
    log = await harness.open();
    expect(indexesOf(await harness.read(log, 1))).toEqual([1]);
    await harness.close(log);
  });
});

describe("reading", () => {
  test("records spread over many segments and flushes come in order, from any index", async () => {
    const harness = new LogHarness();
    let log = await harness.open();
    for (let index = 1; index <= 300; index += 10) {
      await harness.appendAll(log, [
        ...recordsOf(1, index, index + 9),
        makeRecord(2, Math.ceil(index / 10)),
      ]);
    }
    const expected = recordsOf(1, 137, 300);
    expect(await harness.read(log, 1, 137)).toEqual(expected);
    await harness.close(log);
    log = await harness.open();
    expect(await harness.read(log, 1, 137)).toEqual(expected);
    expect(indexesOf(await harness.read(log, 2))).toHaveLength(30);
    expect(log.range(1)).toEqual({ firstIndex: 1, lastIndex: 300 });
    expect(log.range(5)).toBeUndefined();
    expect(log.shards()).toEqual([1, 2]);
    await harness.close(log);
  });

  test("visit is awaited, and its error ends the read", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    await harness.appendAll(log, recordsOf(1, 1, 20));
    const seen: number[] = [];
    const reading = log.read(1, 1, async (record) => {
      await Promise.resolve();
      seen.push(record.index);
      if (record.index === 5) throw new Error("enough");
    });
    await expect(harness.clock.complete(reading)).rejects.toThrow("enough");
    expect(seen).toEqual([1, 2, 3, 4, 5]);
  });

  test("bytes that went bad while the log is open are an error, not a wrong record", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    await harness.appendAll(log, recordsOf(1, 1, 5));
    const [name] = (await harness.names()).filter((each) => each.endsWith(".wal"));
    harness.disk.flipBit(`${logDir}/${name}`, (512 + 200) * 8);
    await expect(harness.read(log, 1)).rejects.toMatchObject({ code: "LOG_RECORD_UNREADABLE" });
  });
});

describe("replacement", () => {
  test("a later record at an earlier index discards the suffix, also after reopening", async () => {
    const harness = new LogHarness();
    let log = await harness.open();
    await harness.appendAll(log, recordsOf(1, 1, 60));
    const late = { term: 2 };
    await harness.appendAll(log, [
      makeRecord(1, 30, "new 30", late),
      makeRecord(1, 31, "new 31", late),
    ]);
    const check = async () => {
      expect(log.range(1)).toEqual({ firstIndex: 1, lastIndex: 31 });
      const found = await harness.read(log, 1, 28);
      expect(payloadsOf(found)).toEqual(["payload 1/28", "payload 1/29", "new 30", "new 31"]);
    };
    await check();
    await harness.close(log);
    log = await harness.open();
    await check();
    await harness.appendAll(log, [makeRecord(1, 32, "next", late)]);
    expect(log.gaps).toEqual([]);
    await harness.close(log);
  });

  test("of several replacements in one turn the last wins", async () => {
    const harness = new LogHarness();
    let log = await harness.open();
    await harness.appendAll(log, [
      makeRecord(1, 1, "a"),
      makeRecord(1, 2, "b"),
      makeRecord(1, 2, "c", { term: 2 }),
      makeRecord(1, 1, "d", { term: 3 }),
      makeRecord(1, 2, "e", { term: 3 }),
    ]);
    expect(payloadsOf(await harness.read(log, 1))).toEqual(["d", "e"]);
    await harness.close(log);
    log = await harness.open();
    expect(payloadsOf(await harness.read(log, 1))).toEqual(["d", "e"]);
    await harness.close(log);
  });
});

describe("backlog copy", () => {
  test("the unreleased records move to a file and no longer pin the log", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    for (let index = 1; index <= 200; index += 10) {
      await harness.appendAll(log, [
        ...recordsOf(1, index, index + 9),
        makeRecord(2, (index + 9) / 10),
      ]);
    }
    log.release(1, 200);
    log.release(2, 3);
    await harness.clock.advance(50);
    expect(log.pinnedBy()).toMatchObject({ shard: 2 });
    const path = "data/backlog-2";
    const range = await harness.clock.complete(log.copyBacklog(2, path));
    expect(range).toEqual({ firstIndex: 4, lastIndex: 20 });
    expect(log.pinnedBy()).toBeUndefined();
    expect(log.range(2)).toBeUndefined();
    const found: number[] = [];
    await harness.clock.complete(
      readBacklog(harness.disk, path, (record) => {
        expect(Buffer.from(record.payload).toString()).toBe(`payload 2/${record.index}`);
        found.push(record.index);
      }),
    );
    expect(found).toEqual(recordsOf(2, 4, 20).map(({ index }) => index));
    await harness.close(log);
  });

  test("a damaged backlog file is told with path and offset", async () => {
    const harness = new LogHarness();
    const log = await harness.open();
    await harness.appendAll(log, recordsOf(1, 1, 20));
    await harness.clock.complete(log.copyBacklog(1, "data/backlog"));
    const size = harness.disk.peek("data/backlog").length;
    for (const at of [3, 530, size - 20]) {
      harness.disk.flipBit("data/backlog", at * 8);
      const reading = readBacklog(harness.disk, "data/backlog", () => undefined);
      await expect(harness.clock.complete(reading)).rejects.toMatchObject({
        code: "LOG_BACKLOG_DAMAGED",
        details: { path: "data/backlog" },
      });
      harness.disk.flipBit("data/backlog", at * 8);
    }
    await harness.close(log);
  });
});
