// The bytes of random logs, each cut and each with one byte changed at every position: what is read
// is a prefix of what was written, and as long as what lies before the damage.

import { expect, test } from "vitest";
import { crc32, SeededRandom } from "../../src/base/index.ts";
import { decodeBlock, decodeFlushHeader, peekFlush } from "../../src/log/format.ts";
import type { LogRecord } from "../../src/log/index.ts";
import { FlushEncoder, RecordGroup } from "../../src/log/writer.ts";
import { amount } from "../support/amount.ts";

const logs = amount(250, 1_000, 10_000);
const seed = Number(process.env.FLAGSTONE_SEED ?? 1);
const caps = { bytesMax: 100_000, recordsMax: 100 };

type Written = {
  readonly bytes: Buffer;
  readonly crcSeed: number;
  readonly records: readonly LogRecord[];
  /** Where each flush ends, and how many records are in it and before it. */
  readonly flushes: ReadonlyArray<{ readonly end: number; readonly count: number }>;
};

function writeLog(random: SeededRandom): Written {
  const crcSeed = random.below(2 ** 32);
  const encoder = new FlushEncoder(caps.bytesMax);
  const parts: Buffer[] = [];
  const records: LogRecord[] = [];
  const flushes: Array<{ end: number; count: number }> = [];
  const next = [1, 1, 1].map(() => 1 + random.below(1_000));
  let end = 0;
  for (let number = 1; number <= 1 + random.below(3); number++) {
    const group = new RecordGroup(caps);
    for (let left = random.below(4); left > 0; left--) {
      const shard = random.below(next.length);
      const place = { shard, epoch: 1, index: (next[shard] as number)++, term: 1 + number };
      const payload = random.bytes(random.below(40));
      const record = { ...place, kind: random.below(256), version: random.below(9), payload };
      expect(group.tryAdd(record)).toBe(true);
      records.push(record);
    }
    parts.push(Buffer.from(encoder.encode(group, number, number - 1, crcSeed)));
    end += (parts.at(-1) as Buffer).length;
    flushes.push({ end, count: records.length });
  }
  return { bytes: Buffer.concat(parts), crcSeed, records, flushes };
}

/** All that can be read from the beginning on without a fault. */
function readLog(bytes: Buffer, crcSeed: number): LogRecord[] {
  const found: LogRecord[] = [];
  for (let at = 0, number = 1; ; number++) {
    const rest = bytes.subarray(at);
    const claim = peekFlush(rest);
    const header = claim && decodeFlushHeader(rest, claim, crcSeed);
    if (header === undefined || header.number !== number) return found;
    at += header.headerBytes;
    for (const { sizeBytes, crc } of header.blocks) {
      const block = bytes.subarray(at, at + sizeBytes);
      const isWhole = block.length === sizeBytes && crc32(block, crcSeed) === crc;
      const records = isWhole ? decodeBlock(block) : undefined;
      if (records === undefined) return found;
      found.push(...records);
      at += sizeBytes;
    }
  }
}

/** What is wrong with what was read when the byte at `at` is damaged or gone; undefined: nothing. */
function faultOf(written: Written, read: readonly LogRecord[], at: number): string | undefined {
  const whole = written.flushes.filter(({ end }) => end <= at).at(-1)?.count ?? 0;
  if (read.length < whole) return `${read.length} of ${whole} records before it are read`;
  for (const [place, record] of read.entries()) {
    const expected = written.records[place];
    const { payload, ...rest } = record;
    const isSame =
      expected !== undefined &&
      Buffer.from(payload).equals(expected.payload) &&
      Object.entries(rest).every(([name, value]) => expected[name as keyof LogRecord] === value);
    if (!isSame) return `record ${place} was never written`;
  }
  return undefined;
}

test("a log cut or damaged at any byte reads as a prefix of what was written", () => {
  let positions = 0;
  for (let count = 0; count < logs; count++) {
    const random = new SeededRandom(`log codec ${seed} ${count}`);
    const written = writeLog(random);
    const { bytes, crcSeed } = written;
    expect(readLog(bytes, crcSeed)).toHaveLength(written.records.length);
    for (let at = 0; at < bytes.length; at++) {
      positions++;
      const cut = faultOf(written, readLog(bytes.subarray(0, at), crcSeed), at);
      const before = bytes[at] as number;
      bytes[at] = before ^ (1 + random.below(255));
      const damaged = readLog(bytes, crcSeed);
      const fault = cut ?? faultOf(written, damaged, at);
      bytes[at] = before;
      // Whatever it hit, it was noticed.
      const isSeen = damaged.length < written.records.length || isInEmptyFlush(written, at);
      if (fault !== undefined || !isSeen) {
        expect.fail(`log ${count} of seed ${seed}, byte ${at}: ${fault ?? "not noticed"}`);
      }
    }
  }
  expect(positions).toBeGreaterThan(logs * 100);
});

/** Nothing lies behind it that could be missing. */
function isInEmptyFlush({ flushes, records }: Written, at: number): boolean {
  const before = flushes.filter(({ end }) => end <= at).at(-1)?.count ?? 0;
  return before === records.length;
}
