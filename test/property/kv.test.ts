import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import { nodeDisk, SeededRandom, SimClock, systemClock } from "../../src/base/index.ts";
import {
  createClassicDriver,
  type Kv,
  type KvDriver,
  type KvRange,
  MemoryDriver,
} from "../../src/kv/index.ts";

const key = fc.uint8Array({ maxLength: 2, max: 3 }).map((bytes) => Buffer.from(bytes));
const bound = fc.option(key, { nil: undefined });
const range = fc.record({
  lower: bound,
  upper: bound,
  isLowerOpen: fc.boolean(),
  isUpperOpen: fc.boolean(),
  reverse: fc.boolean(),
});
const step = fc.oneof(
  fc.record({ kind: fc.constant("put" as const), key, sync: fc.boolean() }),
  fc.record({ kind: fc.constant("delete" as const), key }),
  fc.record({ kind: fc.constant("clear" as const), range }),
  fc.record({
    kind: fc.constant("walk" as const),
    range,
    seek: bound,
    count: fc.integer({ min: 1, max: 9 }),
  }),
  fc.record({ kind: fc.constant("reopen" as const) }),
);

type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

test("the memory twin answers as LevelDB does", async () => {
  const dir = fs.mkdtempSync(join(tmpdir(), "flagstone-kv-"));
  const classic = createClassicDriver({ disk: nodeDisk });
  const plain = new MemoryDriver({ clock: systemClock });
  let round = 0;
  try {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), fc.nat(), async (steps, seed) => {
        const path = join(dir, String(round++));
        const random = new SeededRandom(seed);
        const clock = new SimClock({ random });
        const expected = await answers(classic, path, steps);
        const twin = new MemoryDriver({ clock, random });
        expect(await clock.complete(answers(twin, path, steps))).toEqual(expected);
        expect(await answers(plain, path, steps)).toEqual(expected);
      }),
      { numRuns: 40 },
    );
  } finally {
    fs.rmSync(dir, { recursive: true });
  }
});

async function answers(driver: KvDriver, path: string, steps: readonly Step[]): Promise<string[]> {
  let kv = await driver.open(path);
  const heard: string[] = [];
  for (const [at, each] of steps.entries()) {
    if (each.kind === "put") {
      await kv
        .batch()
        .put(each.key, Buffer.from(`${at}`))
        .write({ sync: each.sync });
    } else if (each.kind === "delete") {
      await kv.batch().delete(each.key).write();
    } else if (each.kind === "clear") {
      await kv.clear(rangeOf(each.range));
    } else if (each.kind === "walk") {
      heard.push(await walk(kv, rangeOf(each.range), each.seek, each.count));
    } else {
      await kv.close();
      kv = await driver.open(path);
    }
  }
  heard.push(await walk(kv, {}, undefined, 1000));
  await kv.close();
  return heard;
}

async function walk(
  kv: Kv,
  within: KvRange,
  seek: Buffer | undefined,
  count: number,
): Promise<string> {
  const cursor = kv.cursor(within);
  if (seek !== undefined) cursor.seek(seek);
  const found: string[] = [];
  for (;;) {
    const entries = await cursor.next(count);
    if (entries.length === 0) break;
    found.push(...entries.map(([name, value]) => `${name.toString("hex")}=${value}`));
  }
  await cursor.close();
  return found.join();
}

function rangeOf(drawn: typeof range extends fc.Arbitrary<infer T> ? T : never): KvRange {
  const { lower, upper, isLowerOpen, isUpperOpen, reverse } = drawn;
  return {
    ...(lower === undefined ? {} : isLowerOpen ? { gt: lower } : { gte: lower }),
    ...(upper === undefined ? {} : isUpperOpen ? { lt: upper } : { lte: upper }),
    reverse,
  };
}
