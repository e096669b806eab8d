// The store on a real disk with real LevelDB: what the simulated twins stand for.

import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { nodeDisk, silentLogger, systemClock, systemRandom } from "../../../src/base/index.ts";
import { createClassicDriver } from "../../../src/kv/index.ts";
import { defaultLogSettings, openLog } from "../../../src/log/index.ts";
import { type LocalStore, openStore, storeSettingsDefault } from "../../../src/store/index.ts";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { withTemporaryFolder } from "../../support/temporary-folder.ts";

const common = {
  disk: nodeDisk,
  clock: systemClock,
  random: systemRandom,
  logger: silentLogger,
};

async function open(dir: string): Promise<{ store: LocalStore; close: () => Promise<void> }> {
  const settings = { ...defaultLogSettings, segmentBytes: 256 * 1024, zeroFillBytes: 64 * 1024 };
  const log = await openLog(settings, common, join(dir, "log"));
  await nodeDisk.makeDir(join(dir, "db"));
  const store = await openStore(
    {
      ...storeSettingsDefault,
      ...{ shards: 1, dir: join(dir, "db"), quarantineDir: join(dir, "quarantine") },
    },
    { ...common, kv: createClassicDriver({ disk: nodeDisk }), log },
  );
  await store.start();
  const close = async (): Promise<void> => {
    await store.close();
    await log.close();
  };
  return { store, close };
}

/** Looks again and again, for what nobody tells. */
function until(isDone: () => boolean): Promise<void> {
  return new Promise((resolve) => {
    const look = (): void => {
      if (isDone()) resolve();
      else systemClock.schedule(1, look);
    };
    look();
  });
}

test("a slab whose index is damaged is mended from its blocks, the damaged files are kept", () =>
  withTemporaryFolder(async (folder) => {
    const { store, close } = await open(folder);
    for (let g = 1; g <= 3; g++) {
      for (let n = 0; n < 3; n++) await append(store, appendRequest(`t/${n}`, `${g}-${n}`));
      await store.rotate();
    }
    await close();
    const index = join(folder, "db/messages/s0003/g00000002/index");
    for (const name of readdirSync(index)) {
      if (!/^MANIFEST|\.log$/.test(name)) continue;
      const path = join(index, name);
      writeFileSync(path, readFileSync(path).fill(0x55, 8));
    }
    const again = await open(folder);
    const reader = new Reader(again.store, ["#"], new Map());
    await until(() => reader.values.length === 9);
    expect(reader.values.slice(3, 6)).toEqual(["2-0", "2-1", "2-2"]);
    expect(reader.missedReports).toEqual([]);
    expect(readdirSync(join(folder, "quarantine"))).toEqual(["messages-s0003-g00000002-index"]);
    await again.close();
  }));

test("on LevelDB sizes are what du says, verify, compact and repack go through, the hash stays", () =>
  withTemporaryFolder(async (folder) => {
    const { store, close } = await open(folder);
    for (let g = 0; g < 2; g++) {
      const appends = Array.from({ length: 2_000 }, (_, n) =>
        append(store, appendRequest(`t/${n % 50}/x`, randomBytes(512).toString("hex"))),
      );
      await Promise.all(appends);
      await store.rotate();
    }
    await store.checkpoint();
    const shard = store.logShards[0] as number;
    const hash = await store.operator.logicalHash(shard);
    expect((await store.operator.verify()).findings).toEqual([]);
    const compacted = await store.operator.compact();
    expect(compacted.slabs).toBe(2);
    expect(compacted.bytesAfter).toBeLessThan(compacted.bytesBefore * 1.1);
    expect(await store.operator.logicalHash(shard)).toBe(hash);
    const bytesPerSecondMax = 1024 * 1024 * 1024;
    const packed = await store.operator.repack({ all: true, bytesPerSecondMax });
    expect(packed).toMatchObject({ slabs: 2, packed: 2, ttvsExpired: 0 });
    expect(packed.bytesAfter).toBeLessThan(packed.bytesBefore * 1.1);
    expect(await store.operator.logicalHash(shard)).toBe(hash);
    expect((await store.operator.verify()).findings).toEqual([]);
    await until(() => store.operator.groups()[0]?.physicalBytes !== 0);
    await close();
    const again = await open(folder);
    expect(await again.store.operator.logicalHash(shard)).toBe(hash);
    const measured = (): number => again.store.operator.shards("messages")[0]?.physicalBytes ?? 0;
    await until(() => measured() > 0);
    const used = await nodeDisk.usedBytes(join(folder, "db/messages"));
    expect(Math.abs(measured() - used)).toBeLessThan(used * 0.05);
    await again.close();
  }));
