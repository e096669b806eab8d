import { describe, expect, test } from "vitest";
import {
  type Disk,
  readFile,
  replaceFile,
  SeededRandom,
  SimClock,
  SimDisk,
  syncFully,
  writeFully,
} from "../../../src/base/index.ts";
import { diskContract } from "../../support/disk-contract.ts";

diskContract("simulated disk", async () => {
  const { clock, disk } = machine(1);
  await clock.complete(disk.makeDir("data"));
  return {
    disk,
    dir: "data",
    run: (promise) => clock.complete(promise),
    close: () => Promise.resolve(),
  };
});

describe("power loss", () => {
  test("synced bytes survive, whatever was written over other sectors", async () => {
    for (let seed = 0; seed < 50; seed++) {
      const { clock, disk } = machine(seed);
      await clock.complete(
        (async () => {
          const file = await created(disk, "a");
          await writeFully(file, Buffer.alloc(1000, 1), 0);
          await syncFully(file);
          await writeFully(file, Buffer.alloc(1000, 2), 1024);
        })(),
      );
      disk.crash();
      expect(disk.peek("a").subarray(0, 1000)).toEqual(Buffer.alloc(1000, 1));
    }
  });

  test("an unsynced overwrite leaves old, new or torn bytes, and each happens", async () => {
    const seen = { old: 0, new: 0, torn: 0 };
    for (let seed = 0; seed < 200; seed++) {
      const { clock, disk } = machine(seed);
      await clock.complete(
        (async () => {
          const file = await created(disk, "a");
          await writeFully(file, Buffer.alloc(512, 1), 0);
          await syncFully(file);
          await writeFully(file, Buffer.alloc(512, 2), 0);
        })(),
      );
      disk.crash();
      const left = disk.peek("a");
      expect(left.length).toBe(512);
      expect(left.every((byte) => byte === 1 || byte === 2)).toBe(true);
      seen[left.every((byte) => byte === 1) ? "old" : left.includes(1) ? "torn" : "new"]++;
    }
    expect(Math.min(seen.old, seen.new, seen.torn)).toBeGreaterThan(5);
  });

  test("bytes appended to a synced sector never harm what the sector held", async () => {
    for (let seed = 0; seed < 100; seed++) {
      const { clock, disk } = machine(seed);
      await clock.complete(
        (async () => {
          const file = await created(disk, "a");
          await writeFully(file, Buffer.alloc(200, 1), 0);
          await syncFully(file);
          await writeFully(file, Buffer.alloc(200, 2), 200);
        })(),
      );
      disk.crash();
      const left = disk.peek("a");
      expect(left.length).toBeGreaterThanOrEqual(200);
      expect(left.subarray(0, 200)).toEqual(Buffer.alloc(200, 1));
    }
  });

  test("any subset of unsynced sectors survives, later ones without earlier ones too", async () => {
    const survivors = new Set<string>();
    for (let seed = 0; seed < 200; seed++) {
      const { clock, disk } = machine(seed);
      await clock.complete(
        (async () => {
          const file = await created(disk, "a");
          await file.truncate(1536);
          await syncFully(file);
          await writeFully(file, Buffer.alloc(1536, 1), 0);
        })(),
      );
      disk.crash();
      const left = disk.peek("a");
      survivors.add([0, 512, 1024].map((at) => left[at]).join(""));
    }
    expect(survivors).toContain("001");
    expect(survivors).toContain("100");
    expect(survivors).toContain("000");
    expect(survivors).toContain("111");
  });

  test("a write that finished while a sync was under way is not covered by it", async () => {
    let lost = 0;
    for (let seed = 0; seed < 40; seed++) {
      const { clock, disk } = machine(seed, { callMs: [0.01, 0.01], syncMs: [5, 5] });
      await clock.complete(
        (async () => {
          const file = await created(disk, "a");
          const synced = syncFully(file);
          await writeFully(file, Buffer.alloc(100, 1), 0);
          await synced;
        })(),
      );
      disk.crash();
      if (!disk.peek("a").equals(Buffer.alloc(100, 1))) lost++;
    }
    expect(lost).toBeGreaterThan(5);
  });

  test("after a failed sync a later one does not bring the bytes to the medium", async () => {
    let lost = 0;
    for (let seed = 0; seed < 60; seed++) {
      const { clock, disk } = machine(seed);
      disk.inject({ on: "fdatasync", skip: 1, fails: "EIO" });
      await clock.complete(
        (async () => {
          const file = await created(disk, "a");
          await writeFully(file, Buffer.alloc(512, 1), 0);
          await expect(syncFully(file)).rejects.toMatchObject({ code: "DISK_IO_FAILED" });
          await syncFully(file);
        })(),
      );
      expect(disk.peek("a")).toEqual(Buffer.alloc(512, 1));
      disk.crash();
      if (!disk.peek("a").equals(Buffer.alloc(512, 1))) lost++;
    }
    expect(lost).toBeGreaterThan(5);
  });

  test("a name that was not synced may be gone, a synced one never", async () => {
    const outcomes = new Set<string>();
    for (let seed = 0; seed < 60; seed++) {
      const { clock, disk } = machine(seed);
      await clock.complete(
        (async () => {
          await created(disk, "kept");
          await disk.open("loose", "create");
        })(),
      );
      disk.crash();
      const names = (await clock.complete(disk.list("/"))).map((entry) => entry.name);
      outcomes.add(names.join());
    }
    expect([...outcomes].sort()).toEqual(["kept", "kept,loose"]);
  });

  test("an unsynced removal may come back, with its synced content", async () => {
    const outcomes = new Set<string>();
    for (let seed = 0; seed < 60; seed++) {
      const { clock, disk } = machine(seed);
      await clock.complete(
        (async () => {
          await replaceFile(disk, "a", Buffer.from("content"));
          await disk.remove("a");
        })(),
      );
      disk.crash();
      const exists = await clock.complete(disk.exists("a"));
      outcomes.add(exists ? (await clock.complete(readFile(disk, "a"))).toString() : "gone");
    }
    expect([...outcomes].sort()).toEqual(["content", "gone"]);
  });

  test("a file replaced with replaceFile is old or new as a whole, at any moment", async () => {
    const seen = new Set<string>();
    for (let seed = 0; seed < 150; seed++) {
      const { clock, disk } = machine(seed);
      await clock.complete(replaceFile(disk, "meta", Buffer.alloc(700, 1)));
      let isDone = false;
      void replaceFile(disk, "meta", Buffer.alloc(900, 2)).then(() => {
        isDone = true;
      });
      await clock.advance((seed % 50) / 10);
      disk.crash();
      const left = await clock.complete(readFile(disk, "meta"));
      const isOld = left.equals(Buffer.alloc(700, 1));
      expect(isOld || left.equals(Buffer.alloc(900, 2))).toBe(true);
      if (isDone) expect(isOld).toBe(false);
      seen.add(isOld ? "old" : "new");
    }
    expect(seen.size).toBe(2);
  });

  test("a folder is durable when makeDir resolves", async () => {
    for (let seed = 0; seed < 20; seed++) {
      const { clock, disk } = machine(seed);
      await clock.complete(disk.makeDir("x/y"));
      disk.crash();
      expect(await clock.complete(disk.exists("x/y"))).toBe(true);
    }
  });

  test("changes of one name are kept in order", async () => {
    for (let seed = 0; seed < 100; seed++) {
      const { clock, disk } = machine(seed);
      await clock.complete(
        (async () => {
          await replaceFile(disk, "a", Buffer.from("first"));
          await disk.rename("a", "b");
          await disk.open("a", "create");
        })(),
      );
      disk.crash();
      const at = (await clock.complete(disk.exists("b"))) ? "b" : "a";
      expect((await clock.complete(readFile(disk, at))).toString()).toBe("first");
    }
  });
});

describe("process death", () => {
  test("the page cache survives, and a second process reads it", async () => {
    const { clock, disk } = machine(3);
    await clock.complete(
      (async () => {
        const file = await disk.open("a", "create");
        await writeFully(file, Buffer.from("unsynced"), 0);
      })(),
    );
    disk.kill();
    expect((await clock.complete(readFile(disk, "a"))).toString()).toBe("unsynced");
  });

  test("calls under way, old handles and old views never complete", async () => {
    const { clock, disk } = machine(4);
    const process = disk.attach();
    const file = await clock.complete(process.open("a", "create"));
    const completed: string[] = [];
    file.write(Buffer.from("x"), 0, () => completed.push("write"));
    void process.exists("a").then(() => completed.push("exists"));
    disk.kill();
    file.fdatasync(() => completed.push("late fdatasync"));
    void file.close().then(() => completed.push("late close"));
    void process.open("b", "create").then(() => completed.push("late open"));
    await clock.advance(1000);
    expect(completed).toEqual([]);
    expect(await clock.complete(disk.exists("b"))).toBe(false);
  });

  test("a write under way is applied wholly, partly or not at all", async () => {
    const sizes = new Set<string>();
    for (let seed = 0; seed < 60; seed++) {
      const { clock, disk } = machine(seed);
      const file = await clock.complete(disk.open("a", "create"));
      file.write(Buffer.alloc(100, 1), 0, () => undefined);
      disk.kill();
      const size = disk.peek("a").length;
      sizes.add(size === 0 ? "none" : size === 100 ? "all" : "part");
    }
    expect([...sizes].sort()).toEqual(["all", "none", "part"]);
  });
});

describe("faults", () => {
  test("a full volume takes what fits, and more after a removal", async () => {
    const { clock, disk } = machine(5, { capacityBytes: 3 * 4096 });
    await clock.complete(
      (async () => {
        const one = await disk.open("one", "create");
        await writeFully(one, Buffer.alloc(4096), 0);
        const two = await disk.open("two", "create");
        await expect(writeFully(two, Buffer.alloc(10_000, 1), 0)).rejects.toMatchObject({
          code: "DISK_FULL",
          kind: "retry",
        });
        expect(await two.sizeBytes()).toBe(8192);
        await writeFully(two, Buffer.alloc(8192, 2), 0);
        expect((await disk.space("/")).freeBytes).toBe(0);
        await disk.remove("one");
        await writeFully(two, Buffer.alloc(100, 3), 8192);
      })(),
    );
  });

  test("a fault hits the calls its rule names, as often as it says", async () => {
    const { clock, disk } = machine(6);
    disk.inject({ on: "write", path: "b", skip: 1, times: 2, fails: "ENOSPC" });
    const outcomes: string[] = [];
    await clock.complete(
      (async () => {
        const [a, b] = [await disk.open("a", "create"), await disk.open("b", "create")];
        for (const file of [a, b, b, b, b]) {
          await writeFully(file, Buffer.from("x"), 0).then(
            () => outcomes.push("ok"),
            (error) => outcomes.push(error.code),
          );
        }
      })(),
    );
    expect(outcomes).toEqual(["ok", "ok", "DISK_FULL", "DISK_FULL", "ok"]);
    expect(disk.faultCount).toBe(2);
  });

  test("a sync that hangs completes after heal, a slow one in its time", async () => {
    const { clock, disk } = machine(7);
    const file = await clock.complete(disk.open("a", "create"));
    disk.inject({ on: "fdatasync", hangs: true });
    disk.inject({ on: "fdatasync", delayMs: 500 });
    const completed: string[] = [];
    file.fdatasync(() => completed.push("hung"));
    file.fdatasync(() => completed.push("slow"));
    await clock.advance(400);
    expect(completed).toEqual([]);
    await clock.advance(200);
    expect(completed).toEqual(["slow"]);
    disk.heal();
    await clock.advance(10);
    expect(completed).toEqual(["slow", "hung"]);
  });

  test("a failed read says so and a later one succeeds", async () => {
    const { clock, disk } = machine(8);
    await clock.complete(replaceFile(disk, "a", Buffer.from("x")));
    disk.inject({ on: "read", path: /a$/, skip: 1, fails: "EIO" });
    await expect(clock.complete(readFile(disk, "a"))).rejects.toMatchObject({
      details: { path: "a", errno: "EIO", operation: "read" },
    });
    expect((await clock.complete(readFile(disk, "a"))).toString()).toBe("x");
  });

  test("rot changes synced bytes and survives a crash", async () => {
    const { clock, disk } = machine(9);
    await clock.complete(replaceFile(disk, "a", Buffer.alloc(600)));
    disk.flipBit("a", 8 * 10 + 3);
    disk.garble("a", 512, 4);
    disk.crash();
    const left = disk.peek("a");
    expect(left[10]).toBe(8);
    expect(left.subarray(512, 516).every((byte) => byte !== 0)).toBe(true);
    expect(left.filter((byte) => byte !== 0).length).toBe(5);
  });
});

test("the same seed gives the same bytes after the same crash", async () => {
  const run = async (seed: number): Promise<string> => {
    const { clock, disk } = machine(seed);
    for (let round = 0; round < 5; round++) {
      const file = await clock.complete(disk.open(`f${round}`, "create"));
      for (let at = 0; at < 10; at++) file.write(Buffer.alloc(300, at + 1), at * 300, ignore);
      file.fdatasync(ignore);
      await clock.advance(0.05 * round);
      disk.crash();
    }
    const names = (await clock.complete(disk.list("/"))).map((entry) => entry.name);
    return names.map((name) => name + disk.peek(name).toString("hex")).join();
  };
  expect(await run(11)).toBe(await run(11));
  expect(await run(11)).not.toBe(await run(12));
});

function machine(
  seed: number,
  options: { capacityBytes?: number; callMs?: [number, number]; syncMs?: [number, number] } = {},
): { clock: SimClock; disk: SimDisk } {
  const random = new SeededRandom(seed);
  const clock = new SimClock({ random: random.split("clock") });
  return { clock, disk: new SimDisk({ clock, random, ...options }) };
}

const ignore = (): undefined => undefined;

/** A file whose name is durable. */
async function created(disk: Disk, path: string) {
  const file = await disk.open(path, "create");
  await syncFully(file);
  await disk.syncDir("/");
  return file;
}
