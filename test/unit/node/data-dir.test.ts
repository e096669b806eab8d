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
import { formatStamp, openDataDir, parseStamp } from "../../../src/node/data-dir.ts";
import { lockDriver } from "../../support/lock-driver.ts";

function machine(type = "ext4") {
  const clock = new SimClock();
  const random = new SeededRandom(1);
  const disk = new SimDisk({ clock, random, type });
  const kv = lockDriver();
  const events: string[] = [];
  const logger: Logger = { ...silentLogger, warn: (event) => events.push(event) };
  const open = (path = "data") => clock.complete(openDataDir(path, { disk, kv, random, logger }));
  const codeOf = async (path?: string): Promise<string> => {
    try {
      await open(path);
      return "opened";
    } catch (error) {
      return isCodedError(error) ? error.message : String(error);
    }
  };
  return { clock, disk, kv, events, open, codeOf };
}

test("a new directory gets a format and an identity that stays", async () => {
  const { open } = machine();
  const first = await open();
  expect(first).toMatchObject({ format: 1, isNew: true, path: "data" });
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
    expect(await open(), name).toMatchObject({ format: 1, isNew: true });
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
  const newer = formatStamp({ format: 2, siteId: dir.siteId });
  await clock.complete(replaceFile(disk, "data/FLAGSTONE", Buffer.from(newer)));
  const writes = disk.counters.writes;
  expect(await codeOf()).toContain(
    "was written by a newer version (format 2, this one reads up to 1)",
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

  test.each(["ext4", "xfs", "btrfs", "tmpfs", "overlay"])(
    "%s is taken in silence",
    async (type) => {
      const { open, events } = machine(type);
      await open();
      expect(events).toEqual([]);
    },
  );
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
  expect(example).toBe(formatStamp({ format: 1, siteId: "0123456789abcdef0123456789abcdef" }));
});
