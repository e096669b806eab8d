// Any damage of any file of a LevelDB: an open that is given the proof of the last sync either fails, or
// gives everything that was synced; what is mended holds only what was written, and nothing is lost
// but what the damage touched.

import fs from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isCodedError, nodeDisk, SeededRandom } from "../../src/base/index.ts";
import { createClassicDriver, type Kv } from "../../src/kv/index.ts";
import { amount } from "../support/amount.ts";

const driver = createClassicDriver({ disk: nodeDisk });
const verifyBytesMax = 1024 * 1024 * 1024;
const writeBufferBytes = 64 * 1024;

let root = "";
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "flagstone-level-"));
});
afterAll(() => rm(root, { recursive: true }));

type Made = {
  readonly path: string;
  readonly proof: Buffer;
  readonly entries: Map<string, string>;
};

/** Tables on several levels, deletions, and a write log that is `logEntries` long. */
async function make(name: string, seed: number, logEntries: number): Promise<Made> {
  const path = join(root, name);
  const random = new SeededRandom(seed);
  const entries = new Map<string, string>();
  const write = async (kv: Kv, count: number): Promise<void> => {
    for (let left = count; left > 0; ) {
      const batch = kv.batch();
      for (let at = Math.min(left, random.between(1, 20)); at > 0; at--, left--) {
        const key = `key-${random.below(700)}`;
        if (random.chance(0.2)) {
          entries.delete(key);
          batch.delete(Buffer.from(key));
          continue;
        }
        const value = `${key}=${random.bytes(4).toString("hex").repeat(random.between(1, 100))}`;
        entries.set(key, value);
        batch.put(Buffer.from(key), Buffer.from(value));
      }
      await batch.write();
    }
  };
  const tables = await driver.open(path, { writeBufferBytes });
  await write(tables, 3000);
  await tables.close();
  const log = await driver.open(path);
  await write(log, logEntries);
  const proof = await log.sync();
  await log.close();
  return { path, proof, entries };
}

type Difference = { missing: number; wrong: number; more: number };

function differenceOf(found: Map<string, string>, expected: Map<string, string>): Difference {
  const difference = { missing: 0, wrong: 0, more: 0 };
  for (const [key, value] of found) {
    if (!expected.has(key)) difference.more++;
    else if (expected.get(key) !== value) difference.wrong++;
  }
  for (const key of expected.keys()) if (!found.has(key)) difference.missing++;
  return difference;
}

const same: Difference = { missing: 0, wrong: 0, more: 0 };

async function read(kv: Kv): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  const cursor = kv.cursor({});
  for (;;) {
    const page = await cursor.next(1000);
    if (page.length === 0) break;
    for (const [key, value] of page) found.set(key.toString(), value.toString());
  }
  await cursor.close();
  return found;
}

const harmless = /^(LOG|LOG\.old|LOCK)$/;

/** Every kind of damage at some places of a file. */
function damages(
  size: number,
  random: SeededRandom,
): Array<[name: string, (file: string) => void]> {
  const patch = (file: string, at: number, bytes: Buffer): void => {
    const fd = fs.openSync(file, "r+");
    fs.writeSync(fd, bytes, 0, bytes.length, at);
    fs.closeSync(fd);
  };
  const flip = (file: string, at: number): void => {
    const bytes = fs.readFileSync(file).subarray(at, at + 1);
    patch(file, at, Buffer.from([(bytes[0] as number) ^ (1 << random.below(8))]));
  };
  const places = [0, size >> 1, size - 1, ...Array.from({ length: 5 }, () => random.below(size))];
  return [
    ...places.map((at): [string, (file: string) => void] => [`flip ${at}`, (f) => flip(f, at)]),
    ["zero the middle", (f) => patch(f, size >> 2, Buffer.alloc(size >> 1))],
    ["truncate to half", (f) => fs.truncateSync(f, size >> 1)],
    ["truncate to nothing", (f) => fs.truncateSync(f, 0)],
    ["cut one byte", (f) => fs.truncateSync(f, size - 1)],
    ["garbage behind", (f) => fs.appendFileSync(f, random.bytes(500))],
    ["delete", (f) => fs.rmSync(f)],
  ];
}

describe.each([
  ["tables only", 1, 0],
  ["a long log", 2, 400],
  ["a short log", 3, 3],
] as const)("a store with %s", (name, seed, logEntries) => {
  test("never hides what was synced, and is mended to what is intact", async () => {
    const made = await make(name.replaceAll(" ", "-"), seed, logEntries);
    const random = new SeededRandom(seed);
    let [noticed, mended, turn] = [0, 0, 0];
    for (const file of fs.readdirSync(made.path)) {
      const size = fs.statSync(join(made.path, file)).size;
      for (const [title, damage] of size === 0 ? [] : damages(size, random)) {
        if (turn++ % amount(9, 1) !== 0) continue;
        const copy = join(root, "copy");
        fs.cpSync(made.path, copy, { recursive: true });
        damage(join(copy, file));
        const where = `${file}: ${title}`;
        let kv: Kv;
        try {
          kv = await driver.open(copy, { proof: made.proof, verifyBytesMax });
          expect(differenceOf(await read(kv), made.entries), where).toEqual(same);
        } catch (error) {
          if (!isCodedError(error, "KV_CORRUPT")) throw error;
          expect(harmless.test(file), where).toBe(false);
          noticed++;
          await driver.salvage(copy, join(root, "aside"));
          expect(fs.existsSync(join(root, "aside", "LOG")), where).toBe(true);
          kv = await driver.open(copy);
          const found = await read(kv);
          const difference = differenceOf(found, made.entries);
          for (const [key, value] of found) expect(value.startsWith(`${key}=`), where).toBe(true);
          if (/MANIFEST|CURRENT/.test(file)) expect(difference, where).toEqual(same);
          // A flipped bit costs one 4 KiB block of a table, or one fragment of a log.
          if (title.startsWith("flip")) expect(difference.missing, where).toBeLessThan(100);
          if (difference.missing + difference.wrong + difference.more === 0) mended++;
        }
        await kv.close();
        fs.rmSync(copy, { recursive: true });
        fs.rmSync(join(root, "aside"), { recursive: true, force: true });
      }
    }
    expect(noticed).toBeGreaterThan(amount(1, 10));
    expect(mended).toBeGreaterThan(amount(0, 3));
  });
});
