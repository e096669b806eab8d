import { randomBytes } from "node:crypto";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import {
  createNodeDisk,
  type DirEntry,
  type Disk,
  diskErrors,
  type FileCalls,
  isCodedError,
  nodeDisk,
} from "../../../src/base/index.ts";
import { kvContract } from "../../../src/contracts/index.ts";
import { batchGate, createClassicDriver, createGate, type Gate } from "../../../src/kv/index.ts";
import { testContract } from "../../support/contract-tests.ts";

testContract(
  "classic-level",
  kvContract(async () => {
    const dir = fs.mkdtempSync(join(tmpdir(), "flagstone-kv-"));
    return {
      driver: createClassicDriver({ disk: nodeDisk }),
      path: join(dir, "store"),
      run: (promise) => promise,
      close: async () => fs.rmSync(dir, { recursive: true }),
    };
  }),
);

test("sync brings every log file and the folder to the medium", async () => {
  await inFolder(async (path) => {
    const synced: string[] = [];
    const disk = watched(synced);
    const kv = await createClassicDriver({ disk }).open(path, { writeBufferBytes: 64 * 1024 });
    for (let at = 0; at < 20; at++) {
      await kv
        .batch()
        .put(Buffer.from(`k${at}`), Buffer.alloc(10_000, at))
        .write();
    }
    synced.length = 0;
    await kv.sync();
    expect(synced.some((path) => path.endsWith(".log"))).toBe(true);
    expect(synced.at(-1)).toBe(path);
    await kv.close();
  });
});

test("a log file that vanished since it was listed is no error", async () => {
  await inFolder(async (path) => {
    const ghosts: DirEntry[] = [];
    const list = async (dir: string) => [...(await nodeDisk.list(dir)), ...ghosts];
    const disk: Disk = { ...nodeDisk, list };
    const kv = await createClassicDriver({ disk }).open(path);
    ghosts.push({ name: "000001.log", isDirectory: false });
    await kv.batch().put(Buffer.from("a"), Buffer.from("1")).write();
    await kv.sync();
    await kv.close();
  });
});

test("after a failed sync the store takes nothing more, but still reads", async () => {
  await inFolder(async (path) => {
    let isFailing = false;
    const fdatasync = (fd: number, done: (error: Error | null) => void): void => {
      if (!isFailing) return fs.fdatasync(fd, done);
      done(Object.assign(new Error("EIO: i/o error"), { code: "EIO" }));
    };
    const disk = createNodeDisk({ ...fs, fdatasync } as unknown as FileCalls);
    const kv = await createClassicDriver({ disk }).open(path);
    isFailing = true;
    const put = () => kv.batch().put(Buffer.from("a"), Buffer.from("1")).write();
    await put();
    const error = await kv.sync().catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "KV_FAILED", details: { path } });
    for (const call of [put, () => kv.sync(), () => kv.clear({})]) {
      await expect(call()).rejects.toBe(error);
    }
    expect((await kv.get(Buffer.from("a")))?.toString()).toBe("1");
    await kv.close();
  });
});

test("a new manifest is synced before the store is handed out, and a failure refuses it", async () => {
  await inFolder(async (path) => {
    const synced: string[] = [];
    let isFailing = false;
    const disk: Disk = {
      ...nodeDisk,
      open: async (name, mode) => {
        synced.push(name.slice(path.length + 1).replace(/\d+/, "N"));
        if (isFailing) throw diskErrors.failed({ operation: "open", path: name, reason: "EIO" });
        return nodeDisk.open(name, mode);
      },
    };
    const driver = createClassicDriver({ disk });
    await (await driver.open(path)).close();
    expect(synced).toEqual(["CURRENT", "MANIFEST-N"]);
    isFailing = true;
    await expect(driver.open(path)).rejects.toMatchObject({ code: "KV_FAILED" });
    isFailing = false;
    await (await driver.open(path)).close();
  });
});

test("a damaged store is refused with KV_CORRUPT", async () => {
  await inFolder(async (path) => {
    const driver = createClassicDriver({ disk: nodeDisk });
    await (await driver.open(path)).close();
    fs.writeFileSync(join(path, "CURRENT"), "nonsense");
    const error = await driver.open(path).catch((thrown: unknown) => thrown);
    expect(isCodedError(error, "KV_CORRUPT")).toBe(true);
  });
});

test("a table that lost bytes is KV_CORRUPT to its reader", async () => {
  await inFolder(async (path) => {
    const driver = createClassicDriver({ disk: nodeDisk });
    const kv = await driver.open(path);
    const batch = kv.batch();
    for (let at = 0; at < 3000; at++) batch.put(Buffer.from(`k${at}`), Buffer.alloc(100, at));
    await batch.write();
    await kv.close();
    await (await driver.open(path)).close(); // recovery turns the log into a table
    const table = fs.readdirSync(path).find((name) => name.endsWith(".ldb")) ?? "";
    const bytes = fs.readFileSync(join(path, table));
    bytes.fill(0x55, 100, 300);
    fs.writeFileSync(join(path, table), bytes);
    const damaged = await driver.open(path);
    const cursor = damaged.cursor({});
    await expect(cursor.next(10_000)).rejects.toMatchObject({ code: "KV_CORRUPT" });
    await cursor.close();
    await damaged.close();
  });
});

test("a place where no folder can be made is told as the disk tells it", async () => {
  await inFolder(async (path) => {
    fs.writeFileSync(path, "a file");
    const driver = createClassicDriver({ disk: nodeDisk });
    await expect(driver.open(path)).rejects.toMatchObject({ code: "DISK_IO_FAILED" });
  });
});

test("at most two batches are outstanding, over all stores of a gate", async () => {
  await inFolder(async (path) => {
    let [running, most] = [0, 0];
    const inner = createGate(2);
    const gate: Gate = {
      get waitingCount() {
        return inner.waitingCount;
      },
      run: (task) =>
        inner.run(async () => {
          most = Math.max(most, ++running);
          try {
            return await task();
          } finally {
            running--;
          }
        }),
    };
    const driver = createClassicDriver({ disk: nodeDisk, gate });
    const stores = await Promise.all([0, 1, 2, 3].map((at) => driver.open(join(path, `${at}`))));
    const put = (kv: (typeof stores)[0]) =>
      kv.batch().put(Buffer.from("a"), Buffer.from("1")).write();
    await Promise.all(stores.flatMap((kv) => [put(kv), put(kv), put(kv)]));
    expect(most).toBe(2);
    await Promise.all(stores.map((kv) => kv.close()));
  });
});

test("drivers share the gate of the process, which has two slots", async () => {
  await inFolder(async (path) => {
    const kv = await createClassicDriver({ disk: nodeDisk }).open(path);
    const releases: Array<() => void> = [];
    const occupy = () =>
      batchGate.run(() => new Promise<void>((resolve) => releases.push(resolve)));
    const [first, second] = [occupy(), occupy()];
    let isWritten = false;
    const write = kv.batch().put(Buffer.from("a"), Buffer.from("1")).write();
    const watched = write.then(() => {
      isWritten = true;
    });
    expect((await kv.getMany([Buffer.from("a")]))[0]).toBeUndefined();
    expect([batchGate.waitingCount, isWritten]).toEqual([1, false]);
    releases[0]?.();
    await Promise.all([first, watched]);
    releases[1]?.();
    await second;
    await kv.close();
  });
});

test("a gate serves in order and a task that fails gives its slot on", async () => {
  const gate = createGate(1);
  const events: string[] = [];
  const task = (name: string) => async () => {
    await Promise.resolve();
    events.push(name);
    if (name === "b") throw new Error(name);
    return name;
  };
  const results = await Promise.allSettled(["a", "b", "c"].map((name) => gate.run(task(name))));
  expect(events).toEqual(["a", "b", "c"]);
  expect(results.map((result) => result.status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
  expect(gate.waitingCount).toBe(0);
});

test("compact leaves nothing on the volume of what was deleted, wherever its table lies", async () => {
  await inFolder(async (path) => {
    const driver = createClassicDriver({ disk: nodeDisk });
    const kv = await driver.open(path);
    const rows = (from: number): Buffer[] =>
      Array.from({ length: 100 }, (_, at) => Buffer.from(`row ${from + at}`));
    // Written and deleted within one table, then once more above it.
    for (const from of [1000, 2000, 1050]) {
      const put = kv.batch();
      for (const key of rows(from)) put.put(key, randomBytes(5000));
      await put.write();
      const gone = kv.batch();
      for (const key of rows(from)) gone.delete(key);
      gone.put(Buffer.from("zz stays"), Buffer.from(`${from}`));
      await gone.write();
      await kv.compact();
      expect(await driver.sizeBytes(path)).toBeLessThan(64 * 1024);
    }
    expect((await kv.get(Buffer.from("zz stays")))?.toString()).toBe("1050");
    await kv.clear({});
    await kv.compact();
    expect(fs.readdirSync(path).filter((name) => name.endsWith(".ldb"))).toEqual([]);
    await kv.close();
  });
});

test("what is written while a store is compacted, stretch by stretch, is there behind it", async () => {
  await inFolder(async (path) => {
    const driver = createClassicDriver({ disk: nodeDisk });
    const kv = await driver.open(path, { writeBufferBytes: 64 * 1024 });
    const keys = Array.from({ length: 600 }, (_, at) => Buffer.from(String(1000 + at)));
    const rounds = keys.map(() => 0);
    const textAt = (at: number): string => `${at} ${rounds[at]},`.repeat(300);
    for (const [at, key] of keys.entries()) {
      await kv
        .batch()
        .put(key, Buffer.from(textAt(at)))
        .write();
    }
    let isDone = false;
    const compacting = kv.compact().finally(() => {
      isDone = true;
    });
    // The keys at which a stretch ends are written to by both.
    const ends = [199, 398, 597];
    for (let round = 1; !isDone && round <= 100; round++) {
      const batch = kv.batch();
      for (const at of ends) {
        rounds[at] = round;
        batch.put(keys[at]!, Buffer.from(textAt(at)));
      }
      await batch.write();
      const found = await kv.getMany(ends.map((at) => keys[at]!));
      expect(found.map(String)).toEqual(ends.map(textAt));
    }
    await compacting;
    expect(rounds.some((round) => round > 0)).toBe(true);
    for (const [at, key] of keys.entries()) {
      expect((await kv.get(key))?.toString()).toBe(textAt(at));
    }
    await kv.close();
  });
});

test("approximateBytes grows with what is in tables", async () => {
  await inFolder(async (path) => {
    const driver = createClassicDriver({ disk: nodeDisk });
    const kv = await driver.open(path, { writeBufferBytes: 64 * 1024 });
    for (let at = 0; at < 40; at++) {
      const value = Buffer.from(Array.from({ length: 20_000 }, (_, n) => (n * 7919 * at) >> 3));
      await kv
        .batch()
        .put(Buffer.from(`k${at}`), value)
        .write();
    }
    await kv.close();
    const again = await driver.open(path);
    expect(await again.approximateBytes({})).toBeGreaterThan(50_000);
    await again.close();
  });
});

function watched(synced: string[]): Disk {
  return {
    ...nodeDisk,
    open: async (path, mode) => {
      const file = await nodeDisk.open(path, mode);
      const fdatasync = file.fdatasync.bind(file);
      file.fdatasync = (done) => {
        synced.push(path);
        fdatasync(done);
      };
      return file;
    },
    syncDir: async (path) => {
      synced.push(path);
      await nodeDisk.syncDir(path);
    },
  };
}

async function inFolder(program: (path: string) => Promise<void>): Promise<void> {
  const dir = fs.mkdtempSync(join(tmpdir(), "flagstone-kv-"));
  try {
    await program(join(dir, "store"));
  } finally {
    fs.rmSync(dir, { recursive: true });
  }
}

test("a crash on the way of a mending leaves the damaged store or the mended one", async () => {
  await inFolder(async (path) => {
    const driver = createClassicDriver({ disk: nodeDisk });
    const kv = await driver.open(path);
    await kv.batch().put(Buffer.from("a"), Buffer.from("1")).write();
    await kv.close();
    const before = join(path, "..", "before");
    fs.cpSync(path, before, { recursive: true });
    for (const step of ["mended is there", "damaged is away"]) {
      fs.rmSync(path, { recursive: true });
      fs.cpSync(before, path, { recursive: true });
      await driver.condemn(path);
      fs.cpSync(before, `${path}.mended`, { recursive: true });
      if (step === "damaged is away") {
        fs.renameSync(path, `${path}-aside`);
        await expect(driver.open(path)).rejects.toMatchObject({ code: "KV_CORRUPT" });
      }
      await driver.salvage(path, `${path}-other-${step}`);
      expect(fs.existsSync(`${path}.mended`)).toBe(false);
      const mended = await driver.open(path);
      expect(await mended.get(Buffer.from("a"))).toEqual(Buffer.from("1"));
      await mended.close();
    }
  });
});
