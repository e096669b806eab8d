import { describe, expect, test } from "vitest";
import { crc32, type Disk, diskErrors, replaceFile } from "../../../src/base/index.ts";
import {
  decodeSegmentHeader,
  encodeSegmentHeader,
  seedOf,
  segmentHeaderBytes,
} from "../../../src/log/format.ts";
import { type LogRecord, openLog, type WriteAheadLog } from "../../../src/log/index.ts";
import { FlushEncoder, RecordGroup } from "../../../src/log/writer.ts";
import {
  indexesOf,
  LogHarness,
  logDir,
  makeRecord,
  payloadsOf,
  recordsOf,
} from "../../support/log-harness.ts";

function encodeFlush(records: readonly LogRecord[], number: number, seed: number): Buffer {
  const group = new RecordGroup({ bytesMax: 2 ** 20, recordsMax: 1000 });
  for (const record of records) group.tryAdd(record);
  return Buffer.from(new FlushEncoder(2 ** 20).encode(group, number, number - 1, seed));
}

function headerOf(harness: LogHarness, path: string) {
  const decoded = decodeSegmentHeader(harness.disk.peek(path).subarray(0, segmentHeaderBytes));
  if (decoded.kind !== "valid") throw new Error("no header");
  return decoded.header;
}

async function writeAt(harness: LogHarness, path: string, bytes: Buffer, at: number) {
  const { clock, disk } = harness;
  const file = await clock.complete(disk.open(path, "write"));
  const written = new Promise<void>((resolve) => {
    file.write(bytes, at, () => resolve());
  });
  await clock.complete(written);
  await clock.complete(file.close());
}

async function walPaths(harness: LogHarness): Promise<string[]> {
  const names = (await harness.names()).filter((name) => name.endsWith(".wal"));
  return names.map((name) => `${logDir}/${name}`);
}

/** A disk that fails every read of the byte at `offset` of the first segment. */
function withBadSector(disk: Disk, offset: number): Disk {
  const open: Disk["open"] = async (path, mode) => {
    const file = await disk.open(path, mode);
    if (!path.endsWith("00000001.wal")) return file;
    const read = file.read.bind(file);
    file.read = async (into, position) => {
      const isHit = position <= offset && offset < position + into.length;
      if (isHit) throw diskErrors.failed({ operation: "read", path, reason: "EIO" });
      return read(into, position);
    };
    return file;
  };
  return new Proxy(disk, {
    get: (target, name: keyof Disk) => (name === "open" ? open : target[name].bind(target)),
  });
}

/** Each batch becomes one flush; then a clean close. */
async function build(harness: LogHarness, batches: readonly LogRecord[][]): Promise<void> {
  const log = await harness.open();
  for (const batch of batches) await harness.appendAll(log, batch);
  await harness.close(log);
}

const firstFlushAt = segmentHeaderBytes;

function startOfFlush(harness: LogHarness, path: string, position: number): number {
  const bytes = harness.disk.peek(path);
  let at = firstFlushAt;
  for (let count = 0; count < position; count++) at += bytes.readUInt32BE(at + 24);
  return at;
}

describe("what looks like a flush", () => {
  test("in a payload is never taken for one, not even behind a damaged flush", async () => {
    const harness = new LogHarness();
    const forged = [makeRecord(1, 2, "forged")];
    // A whole valid flush of another segment use, with numbers that would fit here.
    const bait = Buffer.concat([1, 2, 3, 4].map((number) => encodeFlush(forged, number, 0)));
    await build(harness, [
      [makeRecord(1, 1)],
      [makeRecord(2, 1, bait)],
      [makeRecord(1, 2, "true")],
    ]);
    const [path] = (await walPaths(harness)) as [string];
    harness.disk.flipBit(path, startOfFlush(harness, path, 1) * 8);
    const log = await harness.open();
    expect(payloadsOf(await harness.read(log, 1))).toEqual(["payload 1/1", "true"]);
    expect(log.gapsOf(2)).toMatchObject([{ shard: 2, fromIndex: 1, toIndex: undefined }]);
    expect(log.gapsOf(1)).toEqual([]);
    await harness.close(log);
  });

  test("left by an earlier use of the file is never taken, though its number is due", async () => {
    const harness = new LogHarness();
    await build(harness, [[makeRecord(1, 1)]]);
    const [path] = (await walPaths(harness)) as [string];
    // Behind the record's flush and the proof comes number 3.
    const leftover = encodeFlush([makeRecord(1, 2, "old")], 3, seedOf(Buffer.alloc(8, 9)));
    await writeAt(harness, path, leftover, startOfFlush(harness, path, 2));
    const log = await harness.open();
    expect(payloadsOf(await harness.read(log, 1))).toEqual(["payload 1/1"]);
    expect(log.damage).toEqual([]);
    await harness.close(log);
  });

  test("and was written by this use without being proved is taken and rewritten", async () => {
    const harness = new LogHarness();
    await build(harness, [[makeRecord(1, 1)]]);
    const [path] = (await walPaths(harness)) as [string];
    const { id } = headerOf(harness, path);
    const flush = encodeFlush([makeRecord(1, 2, "unproved")], 3, seedOf(id));
    await writeAt(harness, path, flush, startOfFlush(harness, path, 2));
    let log = await harness.open();
    expect(log.counters.rewrittenFlushes).toBe(1);
    harness.disk.crash();
    log = await harness.open();
    expect(payloadsOf(await harness.read(log, 1))).toEqual(["payload 1/1", "unproved"]);
    await harness.close(log);
  });

  test("but ends early is cut, counted, and its number is used again", async () => {
    const harness = new LogHarness();
    await build(harness, [[makeRecord(1, 1)]]);
    const [path] = (await walPaths(harness)) as [string];
    const { id } = headerOf(harness, path);
    const flush = encodeFlush([makeRecord(1, 2, "torn")], 3, seedOf(id));
    await writeAt(harness, path, flush.subarray(0, -2), startOfFlush(harness, path, 2));
    let log = await harness.open();
    expect(log.counters.cutTails).toBe(1);
    expect(log.damage).toEqual([]);
    await harness.appendAll(log, [makeRecord(1, 2, "again")]);
    await harness.close(log);
    log = await harness.open();
    expect(payloadsOf(await harness.read(log, 1))).toEqual(["payload 1/1", "again"]);
    expect(log.damage).toEqual([]);
    await harness.close(log);
  });
});

describe("a tail of zeros or garbage", () => {
  for (const kind of ["zeros", "garbage"] as const) {
    test(`of ${kind} starts and keeps what is before it`, async () => {
      const harness = new LogHarness();
      await build(harness, [recordsOf(1, 1, 4)]);
      const [path] = (await walPaths(harness)) as [string];
      const end = startOfFlush(harness, path, 2);
      const size = harness.disk.peek(path).length - segmentHeaderBytes - end;
      const filler = kind === "zeros" ? Buffer.alloc(size) : harness.random.bytes(size);
      await writeAt(harness, path, filler, end);
      const log = await harness.open();
      expect(indexesOf(await harness.read(log, 1))).toEqual([1, 2, 3, 4]);
      expect(log.damage).toEqual([]);
      await harness.close(log);
    });
  }
});

describe("segment files", () => {
  async function buildThree(harness: LogHarness): Promise<string[]> {
    const batches: LogRecord[][] = [];
    for (let index = 1; index <= 200; index += 10) batches.push(recordsOf(1, index, index + 9));
    await build(harness, [[makeRecord(2, 1), makeRecord(3, 1)], ...batches, [makeRecord(2, 2)]]);
    const paths = await walPaths(harness);
    expect(paths.length).toBeGreaterThanOrEqual(3);
    return paths;
  }

  test("are ordered by their headers, whatever their names", async () => {
    const harness = new LogHarness();
    const paths = await buildThree(harness);
    for (const [at, path] of paths.entries()) {
      const to = `${logDir}/${90 - at}.wal`;
      await harness.clock.complete(harness.disk.rename(path, to));
    }
    const log = await harness.open();
    expect(indexesOf(await harness.read(log, 1))).toEqual(indexesOf(recordsOf(1, 1, 200)));
    expect(log.damage).toEqual([]);
    await harness.close(log);
  });

  test("that are a copy of another are set aside, and cost nothing", async () => {
    const harness = new LogHarness();
    const paths = await buildThree(harness);
    const bytes = harness.disk.peek(paths[1] as string);
    await harness.clock.complete(replaceFile(harness.disk, `${logDir}/99.wal`, bytes));
    const log = await harness.open();
    expect(log.damage).toMatchObject([{ reason: "the file is a copy of another segment" }]);
    expect(log.gaps).toEqual([]);
    expect(indexesOf(await harness.read(log, 1))).toEqual(indexesOf(recordsOf(1, 1, 200)));
    log.release(1, 200);
    for (const shard of [2, 3]) log.forget(shard);
    await harness.clock.advance(500);
    expect(await harness.names()).not.toContain("99.wal");
    await harness.close(log);
  });

  for (const how of ["removed", "without a readable header"] as const) {
    test(`in the middle ${how} are damage: affected shards are told, others are not`, async () => {
      const harness = new LogHarness();
      const paths = await buildThree(harness);
      const path = paths[1] as string;
      if (how === "removed") await harness.clock.complete(harness.disk.remove(path));
      else {
        harness.disk.garble(path, 0, segmentHeaderBytes);
        harness.disk.garble(path, 4096 - segmentHeaderBytes, segmentHeaderBytes);
      }
      const log = await harness.open();
      const left = indexesOf(await harness.read(log, 1));
      const [gap, ...others] = log.gapsOf(1);
      expect(others).toEqual([]);
      const lost = indexesOf(recordsOf(1, 1, 200)).filter((index) => !left.includes(index));
      expect(lost.length).toBeGreaterThan(0);
      expect([gap?.fromIndex, gap?.toIndex]).toEqual([lost[0], lost.at(-1)]);
      expect(log.gapsOf(2)).toEqual([]);
      // Shard 3 has no later record: its end may have been in there.
      expect(log.gapsOf(3)).toMatchObject([{ fromIndex: 2, toIndex: undefined }]);
      // A shard that the rest of the log does not know may have been in there altogether.
      expect(log.gapsOf(8)).toMatchObject([{ shard: 8, fromIndex: 1, toIndex: undefined }]);
      await harness.close(log);
    });
  }

  test("of a later format are refused with their version", async () => {
    const harness = new LogHarness();
    await build(harness, [recordsOf(1, 1, 4)]);
    const [path] = (await walPaths(harness)) as [string];
    const header = headerOf(harness, path);
    const bytes = encodeSegmentHeader(header);
    bytes.writeUInt16BE(2, 8);
    bytes.writeUInt32BE(crc32(bytes.subarray(0, 508), seedOf(header.id)), 508);
    await writeAt(harness, path, bytes, 0);
    await expect(harness.open()).rejects.toMatchObject({
      code: "LOG_VERSION_UNKNOWN",
      message:
        `${path} has log format 2, and this release reads up to 1: start the release that wrote ` +
        "this directory, or a later one",
    });
  });

  test("with one damaged copy of the header lose nothing", async () => {
    const harness = new LogHarness();
    await build(harness, [recordsOf(1, 1, 4)]);
    const [path] = (await walPaths(harness)) as [string];
    harness.disk.garble(path, 0, segmentHeaderBytes);
    const log = await harness.open();
    expect(indexesOf(await harness.read(log, 1))).toEqual([1, 2, 3, 4]);
    expect(log.damage).toHaveLength(1);
    expect(log.gaps).toEqual([]);
    await harness.close(log);
  });

  test("of which the newest was removed tell that the end is lost", async () => {
    const harness = new LogHarness();
    const groups = Array.from({ length: 8 }, (_, at) => recordsOf(1, 16 * at + 1, 16 * at + 16));
    await build(harness, groups);
    const paths = await walPaths(harness);
    expect(paths.length).toBeGreaterThan(1);
    const newest = paths.toSorted(
      (a, b) => headerOf(harness, a).order - headerOf(harness, b).order,
    );
    const removal = harness.disk.attach().remove(newest.at(-1) as string);
    await harness.clock.complete(removal);
    const log = await harness.open();
    const last = indexesOf(await harness.read(log, 1)).at(-1) as number;
    expect(last).toBeLessThan(128);
    expect(log.gapsOf(1)).toMatchObject([{ fromIndex: last + 1, toIndex: undefined }]);
    expect(log.gapsOf(9)).toHaveLength(1);
    await harness.close(log);
    // The shards may not have told of it before that start ended: each start says so again, until the
    // segment before the missing one has gone.
    const again = await harness.open();
    expect(again.gapsOf(1)).toMatchObject([{ fromIndex: last + 1, toIndex: undefined }]);
    expect(again.gapsOf(9)).toHaveLength(1);
    // One that has a later record has been told, or it would have none.
    await harness.appendAll(again, [makeRecord(1, last + 1)]);
    await harness.close(again);
    const third = await harness.open();
    expect(third.gapsOf(1)).toEqual([]);
    third.release(1, last + 1);
    await harness.clock.advance(200);
    await harness.close(third);
    const fourth = await harness.open();
    expect(fourth.damage).toEqual([]);
    await harness.close(fourth);
  });

  test("made with another segment size are read, and not used again", async () => {
    const harness = new LogHarness();
    await build(harness, [recordsOf(1, 1, 60).slice(0, 16), recordsOf(1, 17, 32)]);
    const log = await harness.open({ segmentBytes: 8192 });
    expect(indexesOf(await harness.read(log, 1))).toHaveLength(32);
    log.release(1, 32);
    await harness.clock.advance(200);
    const segments = (await harness.names()).filter((name) => /\.(wal|free)$/.test(name));
    const sizes = segments.map((name) => harness.disk.peek(`${logDir}/${name}`).length);
    expect(new Set(sizes)).toEqual(new Set([8192]));
    await harness.close(log);
  });
});

describe("damage in the synced part", () => {
  async function openDamaged(
    harness: LogHarness,
    batches: readonly LogRecord[][],
    position: number,
  ): Promise<WriteAheadLog> {
    await build(harness, batches);
    const [path] = (await walPaths(harness)) as [string];
    harness.disk.flipBit(path, (startOfFlush(harness, path, position) + 9) * 8);
    return harness.open();
  }

  test("costs only the block it lies in when the header is readable", async () => {
    const harness = new LogHarness({ settings: { segmentBytes: 65536, flushBytesMax: 32768 } });
    const big = (index: number) => makeRecord(1, index, Buffer.alloc(3000, index));
    await build(harness, [[1, 2, 3, 4, 5, 6].map(big), [makeRecord(1, 7)]]);
    const [path] = (await walPaths(harness)) as [string];
    // Two records make a block: this byte lies in the second block.
    harness.disk.flipBit(path, (startOfFlush(harness, path, 0) + 200 + 3032 * 2) * 8);
    const log = await harness.open();
    expect(indexesOf(await harness.read(log, 1))).toEqual([1, 2, 5, 6, 7]);
    expect(log.gaps).toMatchObject([{ shard: 1, fromIndex: 3, toIndex: 4 }]);
    await harness.close(log);
  });

  test("with an unreadable header clears shards whose next record follows on", async () => {
    const harness = new LogHarness();
    const log = await openDamaged(
      harness,
      [
        [makeRecord(1, 1), makeRecord(2, 1), makeRecord(3, 1)],
        [makeRecord(1, 2), makeRecord(3, 2)],
        [makeRecord(1, 3), makeRecord(2, 2)],
      ],
      1,
    );
    expect(log.gapsOf(1)).toMatchObject([{ fromIndex: 2, toIndex: 2 }]);
    expect(log.gapsOf(2)).toEqual([]);
    expect(log.gapsOf(3)).toMatchObject([{ fromIndex: 2, toIndex: undefined }]);
    expect(log.counters.rot).toBe(1);
    await harness.close(log);
  });

  test("does not clear a shard whose term changed: a replacement may be lost", async () => {
    const harness = new LogHarness();
    const log = await openDamaged(
      harness,
      [
        recordsOf(1, 1, 3),
        [makeRecord(1, 3, "replaced", { term: 2 })],
        [makeRecord(1, 4, "next", { term: 2 })],
      ],
      1,
    );
    expect(log.gapsOf(1)).toMatchObject([{ shard: 1, fromIndex: 1, toIndex: 3 }]);
    await harness.close(log);
  });

  test("is copied to quarantine once, byte for byte, and told until it is released", async () => {
    const harness = new LogHarness();
    let log = await openDamaged(
      harness,
      [[makeRecord(1, 1)], [makeRecord(1, 2)], [makeRecord(1, 3)]],
      1,
    );
    const [path] = (await walPaths(harness)) as [string];
    const { quarantinePath, offset, sizeBytes } = log.damage[0] as (typeof log.damage)[number];
    const copy = harness.disk.peek(quarantinePath as string);
    expect(copy).toEqual(harness.disk.peek(path).subarray(offset, offset + sizeBytes));
    await harness.close(log);
    log = await harness.open();
    expect(log.gapsOf(1)).toMatchObject([{ fromIndex: 2, toIndex: 2, quarantinePath }]);
    log.release(1, 3);
    await harness.clock.advance(100);
    await harness.close(log);
    log = await harness.open();
    expect(log.damage).toEqual([]);
    const kept = await harness.clock.complete(harness.disk.list("data/quarantine"));
    expect(kept).toHaveLength(1);
    await harness.close(log);
  });

  test("is reported although there is no space for a copy", async () => {
    const harness = new LogHarness();
    await build(harness, [[makeRecord(1, 1)], [makeRecord(1, 2)], [makeRecord(1, 3)]]);
    const [path] = (await walPaths(harness)) as [string];
    harness.disk.flipBit(path, (startOfFlush(harness, path, 1) + 9) * 8);
    harness.disk.setCapacity(2 ** 40 - harness.disk.freeBytes);
    const log = await harness.open();
    expect(log.gapsOf(1)).toMatchObject([{ fromIndex: 2, toIndex: 2, quarantinePath: undefined }]);
    await harness.close(log);
  });

  test("that the device cannot read is the same as damaged bytes", async () => {
    const harness = new LogHarness({ settings: { segmentBytes: 65536, flushBytesMax: 32768 } });
    const big = (index: number) => [makeRecord(1, index, Buffer.alloc(6000, index))];
    await build(harness, [big(1), big(2), big(3), big(4)]);
    const components = harness.components(withBadSector(harness.disk.attach(), 3000));
    const opening = openLog(harness.settings, components, logDir);
    const log = await harness.clock.complete(opening);
    expect(log.counters.unreadablePages).toBe(1);
    expect(log.gapsOf(1)).toMatchObject([{ shard: 1, fromIndex: 1, toIndex: 1 }]);
    expect(indexesOf(await harness.read(log, 1))).toEqual([2, 3, 4]);
    await harness.close(log);
  });
});
