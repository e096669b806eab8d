import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import {
  diskErrors,
  isCodedError,
  type Logger,
  readFile,
  replaceFile,
  SeededRandom,
  SimClock,
  SimDisk,
  silentLogger,
} from "../../../src/base/index.ts";
import { kvErrors } from "../../../src/kv/index.ts";
import { ballastName, startRoomBytes } from "../../../src/node/ballast.ts";
import {
  type DataDirComponents,
  type DataDirUse,
  formatStamp,
  openDataDir,
  parseStamp,
} from "../../../src/node/data-dir.ts";
import { lockDriver } from "../../support/lock-driver.ts";

function machine(type = "ext4", holder?: number) {
  const clock = new SimClock();
  const random = new SeededRandom(1);
  const disk = new SimDisk({ clock, random, type });
  const kv = lockDriver();
  const events: string[] = [];
  const logger: Logger = { ...silentLogger, warn: (event) => events.push(event) };
  const components: DataDirComponents = { disk, kv, random, logger, lockHolder: () => holder };
  const open = (path = "data") => clock.complete(openDataDir(path, components));
  const codeOf = async (path?: string): Promise<string> => {
    try {
      await open(path);
      return "opened";
    } catch (error) {
      return isCodedError(error) ? error.message : String(error);
    }
  };
  return { clock, disk, kv, events, open, codeOf, components };
}

test("a new directory gets a format and an identity that stays", async () => {
  const { open } = machine();
  const first = await open();
  expect(first).toMatchObject({ format: 2, isNew: true, path: "data" });
  expect(first.siteId).toMatch(/^[0-9a-f]{32}$/);
  await first.close();
  const second = await open();
  expect(second).toMatchObject({ siteId: first.siteId, isNew: false });
});

test("the identity is durable before the directory is used", async () => {
  const { open, disk } = machine();
  const first = await open();
  disk.crash();
  await first.close();
  expect((await open()).siteId).toBe(first.siteId);
});

test("a first start that was cut off at any file does not make the directory foreign", async () => {
  const names = ["probe.tmp", "probe.tmp.new", "FLAGSTONE.new", "FLAGSTONE.copy.new"];
  for (const name of names) {
    const { open, disk, clock } = machine();
    await clock.complete(disk.makeDir("data"));
    await clock.complete(replaceFile(disk, `data/${name}`, Buffer.from("half")));
    expect(await open(), name).toMatchObject({ format: 2, isNew: true });
  }
});

test("a directory in use is refused with what to do", async () => {
  const { open, codeOf } = machine();
  await open();
  expect(await codeOf()).toBe(
    'cannot open data directory "data": in use by another process; ' +
      "stop it or choose another data.dir",
  );
});

test("a directory in use names the process that holds it, where the system tells", async () => {
  const { open, codeOf } = machine("ext4", 4711);
  await open();
  expect(await codeOf()).toContain("in use by process 4711; stop it");
});

test("a memory file system is taken with a warning", async () => {
  for (const type of ["tmpfs", "ramfs"]) {
    const { open, events } = machine(type);
    await open();
    expect(events).toEqual(["node.data_dir_in_memory"]);
  }
});

describe("on a full volume", () => {
  const fileNames = async ({ clock, disk }: ReturnType<typeof machine>): Promise<string[]> =>
    (await clock.complete(disk.list("data"))).map(({ name }) => name);

  async function withFile(name: string, sizeBytes: number) {
    const world = machine();
    const first = await world.open();
    await first.close();
    await world.clock.complete(replaceFile(world.disk, `data/${name}`, Buffer.alloc(sizeBytes, 1)));
    const { freeBytes, totalBytes } = await world.clock.complete(world.disk.space("data"));
    world.disk.setCapacity(totalBytes - freeBytes);
    return world;
  }

  test("the ballast is spent and the start goes on", async () => {
    const world = await withFile(ballastName, startRoomBytes);
    const dir = await world.open();
    expect(world.events).toEqual(["node.ballast_spent"]);
    expect(await fileNames(world)).toEqual(["FLAGSTONE", "FLAGSTONE.copy"]);
    await dir.close();
  });

  test("without a ballast the start is refused with the room it needs, and nothing is left", async () => {
    const world = await withFile("db", 1000);
    expect(await world.codeOf()).toBe(
      'cannot open data directory "data": its volume has 0 B free and a start needs about ' +
        "16.0 MiB; free space, or move the directory to a larger volume and name it in data.dir",
    );
    expect(await fileNames(world)).toEqual(["FLAGSTONE", "FLAGSTONE.copy", "db"]);
  });

  test("the ballast of a directory in use is left alone", async () => {
    const world = await withFile(ballastName, startRoomBytes);
    const holder = await world.kv.open("data/lock");
    expect(await world.codeOf()).toContain("in use by");
    expect(await fileNames(world)).toContain(ballastName);
    await holder.close();
  });
});

test("a refused start leaves the lock to others", async () => {
  const { open, kv, disk, clock, codeOf } = machine();
  const dir = await open();
  await dir.close();
  await clock.complete(replaceFile(disk, "data/FLAGSTONE", Buffer.from("x")));
  await clock.complete(replaceFile(disk, "data/FLAGSTONE.copy", Buffer.from("y")));
  expect(await codeOf()).toContain("both FLAGSTONE and FLAGSTONE.copy are damaged");
  expect(kv.held.size).toBe(0);
});

test("one damaged stamp is rebuilt from the other and said", async () => {
  for (const name of ["FLAGSTONE", "FLAGSTONE.copy"]) {
    const { open, disk, clock, events } = machine();
    const first = await open();
    await first.close();
    await clock.complete(replaceFile(disk, `data/${name}`, Buffer.from("flagstone-data\n")));
    const second = await open();
    expect(second.siteId).toBe(first.siteId);
    expect(events).toEqual(["node.stamp_rebuilt"]);
    const text = (await clock.complete(readFile(disk, `data/${name}`))).toString();
    expect(parseStamp(text)?.siteId).toBe(first.siteId);
  }
});

test("a directory of a newer format is refused before anything is written", async () => {
  const { open, disk, clock, codeOf, kv } = machine();
  const dir = await open();
  await dir.close();
  const newer = formatStamp({ format: 4, siteId: dir.siteId });
  await clock.complete(replaceFile(disk, "data/FLAGSTONE", Buffer.from(newer)));
  const writes = disk.counters.writes;
  expect(await codeOf()).toContain(
    "was written by a newer version (format 4, this one reads up to 3)",
  );
  expect(disk.counters.writes).toBe(writes);
  expect(kv.held.size).toBe(0);
});

describe("file systems", () => {
  test.each(["nfs", "smb", "cifs", "9p", "ceph"])(
    "%s is refused, nothing written",
    async (type) => {
      const { codeOf, disk } = machine(type);
      expect(await codeOf()).toContain(`it lies on a network file system (${type})`);
      expect(disk.counters.writes).toBe(0);
    },
  );

  test("fuse warns", async () => {
    const { open, events } = machine("fuse");
    await open();
    expect(events).toEqual(["node.data_dir_on_fuse"]);
  });

  test.each(["ext4", "xfs", "btrfs", "overlay"])("%s is taken in silence", async (type) => {
    const { open, events } = machine(type);
    await open();
    expect(events).toEqual([]);
  });
});

test("a folder that holds something else is not taken over", async () => {
  const { codeOf, disk, clock } = machine();
  await clock.complete(disk.makeDir("data"));
  await clock.complete(replaceFile(disk, "data/thesis.odt", Buffer.from("x")));
  expect(await codeOf()).toContain('it holds "thesis.odt", which is not Flagstone\'s');
});

test("what volumes and cut-short starts leave behind does not count as foreign", async () => {
  const { open, disk, clock } = machine();
  for (const dir of ["data", "data/lost+found", "data/lock"])
    await clock.complete(disk.makeDir(dir));
  for (const file of ["data/.gitkeep", "data/FLAGSTONE.copy.new"]) {
    await clock.complete(replaceFile(disk, file, Buffer.from("x")));
  }
  expect((await open()).isNew).toBe(true);
});

test("missing rights are named, whatever the key-value store made of them", async () => {
  const { open, kv, disk } = machine();
  kv.failure = kvErrors.failed({ path: "data/lock", reason: "IO error: data/lock/LOCK" });
  disk.open = async (path) => {
    throw diskErrors.denied({ operation: "open", path });
  };
  await expect(open()).rejects.toThrow(
    'cannot open data directory "data": this user may not read and write it',
  );
});

test("a volume that is mounted read-only is not taken for missing rights", async () => {
  const { open, kv, disk } = machine();
  kv.failure = kvErrors.failed({ path: "data/lock", reason: "IO error: data/lock/LOCK" });
  disk.open = async (path) => {
    throw diskErrors.denied({ operation: "open", path, errno: "EROFS" });
  };
  const error = await open().catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ code: "NODE_DATA_DIR_READ_ONLY" });
  expect(String(error)).toContain("its volume is mounted read-only; mount it writable");
});

test("a failing volume is named with its error", async () => {
  const { codeOf, disk, kv } = machine();
  disk.inject({ on: "write", fails: "EIO" });
  expect(await codeOf()).toMatch(/^cannot open data directory "data": write of .* failed/);
  expect(kv.held.size).toBe(0);
});

test("a stamp is read only when every byte is right", () => {
  const text = formatStamp({ format: 1, siteId: "0123456789abcdef0123456789abcdef" });
  expect(parseStamp(text)).toEqual({ format: 1, siteId: "0123456789abcdef0123456789abcdef" });
  for (let index = 0; index < text.length; index++) {
    const flipped = `${text.slice(0, index)}\u0001${text.slice(index + 1)}`;
    expect(parseStamp(flipped)).toBeUndefined();
    expect(parseStamp(text.slice(0, index))).toBeUndefined();
  }
  expect(parseStamp(text.replace("format 1", "format 2"))).toBeUndefined();
});

test("the example of docs/formats/data-dir.md is a stamp as it is written", () => {
  const page = readFileSync(new URL("../../../docs/formats/data-dir.md", import.meta.url), "utf8");
  const example = /<!-- stamp -->\n```\n([\s\S]*?)```/.exec(page)?.[1] ?? "";
  expect(example).toBe(formatStamp({ format: 2, siteId: "0123456789abcdef0123456789abcdef" }));
});

test("an older format is raised before anything else is written, and keeps its identity", async () => {
  const { open, disk, clock } = machine();
  const first = await open();
  const { siteId } = first;
  await first.close();
  for (const names of [["FLAGSTONE", "FLAGSTONE.copy"], ["FLAGSTONE.copy"], ["FLAGSTONE"]]) {
    for (const name of names) {
      const bytes = Buffer.from(formatStamp({ format: 1, siteId }));
      await clock.complete(replaceFile(disk, `data/${name}`, bytes));
    }
    const raised = await open();
    expect(raised).toMatchObject({ format: 2, siteId, isNew: false });
    await raised.close();
    for (const name of ["FLAGSTONE", "FLAGSTONE.copy"]) {
      expect(parseStamp(disk.peek(`data/${name}`).toString("latin1"))).toEqual({
        ...{ format: 2, siteId },
      });
    }
  }
});

describe("a replica of a cluster", () => {
  const codeOf = async (work: Promise<unknown>): Promise<string> => {
    try {
      await work;
      return "opened";
    } catch (error) {
      return isCodedError(error) ? error.code : String(error);
    }
  };

  test("is opened as a member only, and data of a local node as such only", async () => {
    const { clock, disk, components } = machine();
    const open = async (path: string, use: DataDirUse) => {
      const dir = await clock.complete(openDataDir(path, components, use));
      await dir.close();
      return dir;
    };
    await open("local", "local");
    await clock.complete(disk.makeDir("local/db"));
    expect(await codeOf(open("local", "member"))).toBe("NODE_DATA_DIR_LOCAL");
    expect((await open("member", "member")).isNew).toBe(true);
    await clock.complete(replaceFile(disk, "member/FLAGSTONE.x", Buffer.from("")));
    await clock.complete(disk.makeDir("member/raft"));
    await clock.complete(replaceFile(disk, "member/raft/meta", Buffer.from("")));
    await clock.complete(disk.makeDir("member/db"));
    expect((await open("member", "member")).format).toBe(3);
    expect(await codeOf(open("member", "local"))).toBe("NODE_DATA_DIR_OF_CLUSTER");
  });

  test("stays a local directory until the switch, whatever its stamp says", async () => {
    const { clock, disk, components, open } = machine();
    const init = await clock.complete(openDataDir("data", components, "init"));
    await clock.complete(init.markReplica());
    await clock.complete(init.markReplica());
    await init.close();
    disk.crash();
    const { format, siteId } = await open();
    expect({ format, siteId }).toEqual({ format: 3, siteId: init.siteId });
  });
});
