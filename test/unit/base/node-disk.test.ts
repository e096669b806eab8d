import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import {
  createNodeDisk,
  diskError,
  type FileCalls,
  nodeDisk,
  readFile,
  syncFully,
  writeFully,
} from "../../../src/base/index.ts";
import { diskContract } from "../../support/disk-contract.ts";

diskContract("real disk", async () => {
  const dir = fs.mkdtempSync(join(tmpdir(), "flagstone-disk-"));
  return {
    disk: nodeDisk,
    dir,
    run: (promise) => promise,
    close: async () => fs.rmSync(dir, { recursive: true }),
  };
});

test("files are made 0600 and folders 0700", async () => {
  await inFolder(async (dir) => {
    await nodeDisk.makeDir(join(dir, "x/y"));
    await (await nodeDisk.open(join(dir, "x/y/a"), "create")).close();
    expect(fs.statSync(join(dir, "x/y/a")).mode & 0o777).toBe(0o600);
    expect(fs.statSync(join(dir, "x/y")).mode & 0o777).toBe(0o700);
    expect(fs.statSync(join(dir, "x")).mode & 0o777).toBe(0o700);
  });
});

test("a path that cannot be made ends in an error, not in an endless climb", async () => {
  await expect(nodeDisk.makeDir("")).rejects.toMatchObject({ code: "DISK_NOT_FOUND" });
});

test("what stands where a folder should be made is named", async () => {
  await inFolder(async (dir) => {
    fs.writeFileSync(join(dir, "file"), "");
    fs.symlinkSync(join(dir, "nowhere"), join(dir, "link"));
    const made = (name: string) => nodeDisk.makeDir(join(dir, name));
    await expect(made("file")).rejects.toThrow("failed: a file has this name");
    await expect(made("file/below")).rejects.toThrow("failed: a part of the path is a file");
    await expect(made("link")).rejects.toThrow("link failed: a link to nothing has this name");
    await expect(made("link/below")).rejects.toThrow("link failed: a link to nothing has this");
    fs.mkdirSync(join(dir, "nowhere"));
    await made("link/below");
  });
});

test("short writes and short reads are completed", async () => {
  await inFolder(async (dir) => {
    const disk = createNodeDisk({ ...fs, ...threeBytesAtATime } as unknown as FileCalls);
    const file = await disk.open(join(dir, "a"), "create");
    await writeFully(file, Buffer.from("0123456789"), 0);
    const into = Buffer.alloc(20);
    expect(await file.read(into, 1)).toBe(9);
    await file.close();
    expect((await readFile(nodeDisk, join(dir, "a"))).toString()).toBe("0123456789");
  });
});

test("a system that writes nothing without a reason is an error, not an endless loop", async () => {
  await inFolder(async (dir) => {
    const write = (...args: unknown[]): void =>
      (args[5] as (error: null, written: number) => void)(null, 0);
    const disk = createNodeDisk({ ...fs, write } as unknown as FileCalls);
    const file = await disk.open(join(dir, "a"), "create");
    await expect(writeFully(file, Buffer.from("x"), 0)).rejects.toMatchObject({
      code: "DISK_IO_FAILED",
    });
    await file.close();
  });
});

test("a descriptor stays open while a call uses it", async () => {
  await inFolder(async (dir) => {
    let release: () => void = () => undefined;
    const fdatasync = (fd: number, done: (error: Error | null) => void): void => {
      release = () => fs.fdatasync(fd, done);
    };
    const disk = createNodeDisk({ ...fs, fdatasync } as unknown as FileCalls);
    const file = await disk.open(join(dir, "a"), "create");
    const events: string[] = [];
    const synced = syncFully(file).then(() => events.push("synced"));
    const closed = file.close().then(() => events.push("closed"));
    await fs.promises.stat(dir);
    expect(events).toEqual([]);
    release();
    await Promise.all([synced, closed]);
    expect(events).toEqual(["synced", "closed"]);
  });
});

test("a failed fdatasync carries its errno and is not repeated", async () => {
  await inFolder(async (dir) => {
    let count = 0;
    const fdatasync = (_fd: number, done: (error: Error) => void): void => {
      count++;
      done(Object.assign(new Error("EIO: i/o error, fdatasync"), { code: "EIO" }));
    };
    const disk = createNodeDisk({ ...fs, fdatasync } as unknown as FileCalls);
    const file = await disk.open(join(dir, "a"), "create");
    await expect(syncFully(file)).rejects.toMatchObject({
      code: "DISK_IO_FAILED",
      kind: "internal",
      details: { errno: "EIO", operation: "fdatasync", path: join(dir, "a") },
    });
    expect(count).toBe(1);
    await file.close();
  });
});

test.each([
  ["ENOSPC", "DISK_FULL"],
  ["EDQUOT", "DISK_FULL"],
  ["EACCES", "DISK_ACCESS_DENIED"],
  ["EPERM", "DISK_ACCESS_DENIED"],
  ["EROFS", "DISK_ACCESS_DENIED"],
  ["ENOENT", "DISK_NOT_FOUND"],
  ["EEXIST", "DISK_EXISTS"],
  ["EIO", "DISK_IO_FAILED"],
  ["EMFILE", "DISK_IO_FAILED"],
])("errno %s becomes %s", (errno, code) => {
  const error = diskError("write", "p", Object.assign(new Error("cause"), { code: errno }));
  expect(error).toMatchObject({ code, details: { errno, path: "p" } });
});

test("the volume's file system is named", async () => {
  expect((await nodeDisk.space("/proc/self")).type).toBeUndefined();
  const known = ["ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay", "9p", "fuse"];
  expect([...known, undefined]).toContain((await nodeDisk.space(tmpdir())).type);
});

const threeBytesAtATime = {
  write: (...args: Parameters<typeof fs.write>) => {
    const [fd, bytes, offset, length, position, done] = args as unknown as [
      number,
      Uint8Array,
      number,
      number,
      number,
      () => void,
    ];
    fs.write(fd, bytes, offset, Math.min(3, length), position, done);
  },
  read: (...args: unknown[]) => {
    const [fd, bytes, offset, length, position, done] = args as [
      number,
      Uint8Array,
      number,
      number,
      number,
      () => void,
    ];
    fs.read(fd, bytes, offset, Math.min(3, length), position, done);
  },
};

async function inFolder(program: (dir: string) => Promise<void>): Promise<void> {
  const dir = fs.mkdtempSync(join(tmpdir(), "flagstone-disk-"));
  try {
    await program(dir);
  } finally {
    fs.rmSync(dir, { recursive: true });
  }
}
