// One damaged place in a small log whose every record was synced and proved: flips and cuts at each
// byte position.

import { describe, expect, test } from "vitest";
import { SeededRandom, SimClock, silentLogger } from "../../src/base/index.ts";
import {
  type LogRecord,
  type LogSettings,
  openLog,
  type WriteAheadLog,
} from "../../src/log/index.ts";
import { amount } from "../support/amount.ts";
import {
  appendAll,
  logDir,
  makeRecord,
  readAll,
  recordsOf,
  tinySettings,
} from "../support/log-harness.ts";
import { layoutOf, type PlacedFlush, type PlacedRecord } from "../support/log-layout.ts";
import { MemoryDisk } from "../support/memory-disk.ts";

/** Prime, so that all places of fields get their turn. */
const stride = amount(11, 1);

const settings: LogSettings = { ...tinySettings, segmentBytes: 2048, zeroFillBytes: 2048 };
const shards = [1, 2, 3];

function openOn(
  disk: MemoryDisk,
  clock: SimClock,
  onDamage: "quarantine" | "refuse" = "quarantine",
): Promise<WriteAheadLog> {
  const random = new SeededRandom(disk.files.size * 1000 + clock.elapsedMs());
  const components = { disk, clock, random, logger: silentLogger };
  return clock.complete(openLog({ ...settings, onDamage }, components, logDir));
}

type Sample = { disk: MemoryDisk; flushes: PlacedFlush[]; records: Map<number, LogRecord[]> };

/** Three segments from two processes, a flush of two blocks, a clean end. */
async function makeSample(): Promise<Sample> {
  const disk = new MemoryDisk();
  const clock = new SimClock();
  const records = new Map<number, LogRecord[]>(shards.map((shard) => [shard, []]));
  const append = async (log: WriteAheadLog, batch: LogRecord[]) => {
    for (const record of batch) records.get(record.shard)!.push(record);
    await clock.complete(appendAll(log, batch));
  };
  let log = await openOn(disk, clock);
  await append(log, [...recordsOf(1, 1, 3), makeRecord(2, 1)]);
  await append(log, [makeRecord(3, 1), makeRecord(2, 2), makeRecord(1, 4)]);
  await append(log, recordsOf(2, 3, 5));
  await append(log, [...recordsOf(1, 5, 9), ...recordsOf(2, 6, 10)]);
  await append(log, recordsOf(1, 10, 14));
  await append(log, recordsOf(1, 15, 19));
  await clock.complete(log.close());
  await clock.advance(0.001);
  log = await openOn(disk, clock);
  const large = Buffer.alloc(4096, "x");
  await append(log, [makeRecord(2, 11, large)]);
  await append(log, [makeRecord(1, 20), makeRecord(2, 12)]);
  await clock.complete(log.close());
  return { disk, flushes: await layoutOf(disk), records };
}

/** What the damage may cost, and whether it must be reported. */
type Allowance = {
  readonly lost: PlacedRecord[];
  /** Lost with no good flush behind them: they look like a torn tail. */
  readonly unproved: PlacedRecord[];
  readonly isReported: boolean;
};

function allowanceOf(
  sample: Sample,
  isHit: (path: string, from: number, to: number) => boolean,
): Allowance {
  const lost: PlacedRecord[] = [];
  const unproved: PlacedRecord[] = [];
  let isReported = false;
  let isProved = false;
  for (const flush of sample.flushes.toReversed()) {
    const isHeaderHit = isHit(flush.path, flush.from, flush.headerTo);
    if (isHeaderHit && isProved) isReported = true;
    for (const block of flush.blocks) {
      if (!isHeaderHit && !isHit(flush.path, block.from, block.to)) continue;
      lost.push(...block.records);
      if (isProved) isReported = true;
      else unproved.push(...block.records);
    }
    if (!isHeaderHit) isProved = true;
  }
  return { lost, unproved, isReported };
}

async function checkOpen(
  sample: Sample,
  disk: MemoryDisk,
  clock: SimClock,
  allowed: Allowance,
): Promise<number> {
  const log = await openOn(disk, clock);
  const lostKeys = new Set(allowed.lost.map(keyOf));
  const unprovedKeys = new Set(allowed.unproved.map(keyOf));
  if (allowed.isReported) expect(log.damage.length).toBeGreaterThan(0);
  let missing = 0;
  for (const shard of shards) {
    const read = await clock.complete(readAll(log, shard));
    const found = new Map(read.map((record) => [record.index, record]));
    expect(found.size).toBe(read.length);
    for (const record of sample.records.get(shard)!) {
      const other = found.get(record.index);
      if (other !== undefined) {
        if (!isSame(other, record)) expect(other).toEqual(record);
        found.delete(record.index);
        continue;
      }
      missing++;
      const key = keyOf(record);
      if (!lostKeys.has(key)) expect.fail(`${key} lost without being damaged`);
      const isTold = log.gapsOf(shard).some(({ fromIndex, toIndex }) => {
        return fromIndex <= record.index && record.index <= (toIndex ?? Number.MAX_VALUE);
      });
      if (!isTold && !unprovedKeys.has(key)) expect.fail(`${key} lost without being reported`);
    }
    expect(found.size).toBe(0);
  }
  return missing;
}

function keyOf({ shard, index }: PlacedRecord): string {
  return `${shard}/${index}`;
}

function isSame(a: LogRecord, b: LogRecord): boolean {
  return a.index === b.index && a.shard === b.shard && Buffer.from(a.payload).equals(b.payload);
}

/** A log that was damaged takes and keeps new records, and tells the damage again. */
async function checkGoesOn(disk: MemoryDisk, clock: SimClock): Promise<void> {
  let log = await openOn(disk, clock);
  const damage = log.damage.length;
  const next = (log.range(1)?.lastIndex ?? 0) + 1;
  const added = [makeRecord(1, next, "new"), makeRecord(9, 1, "other")];
  await clock.complete(appendAll(log, added));
  await clock.complete(log.close());
  log = await openOn(disk, clock);
  expect(await clock.complete(readAll(log, 1, next))).toEqual([added[0]]);
  expect(await clock.complete(readAll(log, 9))).toEqual([added[1]]);
  expect(log.damage.length).toBe(damage);
  await clock.complete(log.close());
}

const wals = (disk: MemoryDisk) => [...disk.files].filter(([path]) => path.endsWith(".wal"));

describe("one damaged byte", () => {
  test("costs the block or flush it lies in, and is reported, at every position", async () => {
    const sample = await makeSample();
    const clock = new SimClock();
    let opened = 0;
    let lossy = 0;
    for (const [path, bytes] of wals(sample.disk)) {
      for (let at = 0; at < bytes.length; at++) {
        if (!isVisited(sample, path, at)) continue;
        const changed = Buffer.from(bytes);
        changed[at] = changed[at]! ^ (1 << (at % 8));
        const hit = (other: string, from: number, to: number) => {
          return other === path && from <= at && at < to;
        };
        const allowed = allowanceOf(sample, hit);
        const missing = await checkOpen(
          sample,
          sample.disk.clone({ path, bytes: changed }),
          clock,
          allowed,
        );
        expect(missing).toBe(allowed.lost.length);
        if (missing > 0) lossy++;
        opened++;
      }
    }
    expect(opened).toBeGreaterThan(3000 / stride);
    expect(lossy).toBeGreaterThan(1000 / stride);
  });

  test("under refuse ends the start with path and offset, changing nothing", async () => {
    const sample = await makeSample();
    const clock = new SimClock();
    for (const [path, bytes] of wals(sample.disk)) {
      for (let at = 3; at < bytes.length; at += 41) {
        const changed = Buffer.from(bytes);
        changed[at] = changed[at]! ^ 0xff;
        const hit = (other: string, from: number, to: number) => {
          return other === path && from <= at && at < to;
        };
        const { isReported } = allowanceOf(sample, hit);
        if (!isReported) continue;
        const disk = sample.disk.clone({ path, bytes: changed });
        const before = disk.clone().files;
        await expect(openOn(disk, clock, "refuse")).rejects.toMatchObject({
          code: "LOG_DAMAGED",
          details: { path, offset: expect.any(Number) },
        });
        expect([...disk.files.keys()]).toEqual([...before.keys()]);
        for (const [name, content] of before) {
          expect(disk.files.get(name)!.equals(content)).toBe(true);
        }
      }
    }
  });

  test("does not keep the log from taking new records", async () => {
    const sample = await makeSample();
    const clock = new SimClock();
    for (const [path, bytes] of wals(sample.disk)) {
      for (let at = 0; at < bytes.length; at += 29) {
        const changed = Buffer.from(bytes);
        changed[at] = changed[at]! ^ 0x10;
        await checkGoesOn(sample.disk.clone({ path, bytes: changed }), clock);
      }
    }
  });
});

describe("a garbled or zeroed sector", () => {
  test("costs what it overlaps and is reported", async () => {
    const sample = await makeSample();
    const clock = new SimClock();
    const random = new SeededRandom("sectors");
    for (const [path, bytes] of wals(sample.disk)) {
      for (let from = 0; from < bytes.length; from += 64) {
        const to = Math.min(bytes.length, from + random.between(1, 512));
        const changed = Buffer.from(bytes);
        const filler = from % 128 === 0 ? Buffer.alloc(to - from) : random.bytes(to - from);
        filler.copy(changed, from);
        const hit = (other: string, start: number, end: number) => {
          if (other !== path || start >= to || end <= from) return false;
          const [a, b] = [Math.max(start, from), Math.min(end, to)];
          return !changed.subarray(a, b).equals(bytes.subarray(a, b));
        };
        await checkOpen(
          sample,
          sample.disk.clone({ path, bytes: changed }),
          clock,
          allowanceOf(sample, hit),
        );
      }
    }
  });
});

describe("a file cut short", () => {
  test("costs what was cut off, and is reported, at every length", async () => {
    const sample = await makeSample();
    const clock = new SimClock();
    for (const [path, bytes] of wals(sample.disk)) {
      for (let size = 0; size < bytes.length; size++) {
        if (!isVisited(sample, path, size)) continue;
        const isWholeLost = size < 512;
        const hit = (other: string, _from: number, to: number) => {
          return other === path && (isWholeLost || to > size);
        };
        const disk = sample.disk.clone({ path, bytes: bytes.subarray(0, size) });
        await checkOpen(sample, disk, clock, {
          ...allowanceOf(sample, hit),
          unproved: [],
          isReported: true,
        });
      }
    }
  });
});

/**
 * Positions that are all alike are visited at every eighth byte: zeros of headers and of space not
 * yet written, and the inside of the one large payload.
 */
function isVisited(sample: Sample, path: string, at: number): boolean {
  if (at % stride !== 0) return false;
  if (at % 8 === 0 || at < 48) return true;
  const flushes = sample.flushes.filter((flush) => flush.path === path);
  const flush = flushes.find(({ from, to }) => from - 8 <= at && at < to + 8);
  if (flush === undefined) return false;
  return flush.to - flush.from < 4096 || at < flush.from + 200 || at > flush.to - 16;
}
