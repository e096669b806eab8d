// What every Disk must do, whoever implements it. Each rule runs as one program on a fresh folder.

import { describe, expect, test } from "vitest";
import {
  type Disk,
  type DiskFile,
  isCodedError,
  joinPath,
  readFile,
  replaceFile,
  syncFully,
  writeFully,
} from "../../src/base/index.ts";

export type DiskRig = {
  readonly disk: Disk;
  /** An empty folder that exists. */
  readonly dir: string;
  /** Runs whatever drives the disk until the promise settles. */
  run<T>(promise: Promise<T>): Promise<T>;
  close(): Promise<void>;
};

export function diskContract(name: string, openRig: () => Promise<DiskRig>): void {
  const rule = (title: string, program: (disk: Disk, dir: string) => Promise<void>): void => {
    test(title, async () => {
      const rig = await openRig();
      try {
        await rig.run(program(rig.disk, rig.dir));
      } finally {
        await rig.close();
      }
    });
  };

  describe(`${name}: files`, () => {
    rule("what was written is read back, at any position", async (disk, dir) => {
      const file = await disk.open(joinPath(dir, "a"), "create");
      await writeFully(file, Buffer.from("hello world"), 0);
      await writeFully(file, Buffer.from("W"), 6);
      await syncFully(file);
      expect(await readText(file, 0, 64)).toBe("hello World");
      expect(await readText(file, 6, 3)).toBe("Wor");
      expect(await file.sizeBytes()).toBe(11);
      await file.close();
    });

    rule("a read past the end gives fewer bytes, or none", async (disk, dir) => {
      const file = await disk.open(joinPath(dir, "a"), "create");
      await writeFully(file, Buffer.from("abc"), 0);
      expect(await readText(file, 2, 8)).toBe("c");
      expect(await readText(file, 3, 8)).toBe("");
      expect(await readText(file, 1000, 8)).toBe("");
      await file.close();
    });

    rule("a gap between writes reads as zeros", async (disk, dir) => {
      const file = await disk.open(joinPath(dir, "a"), "create");
      await writeFully(file, Buffer.from("x"), 5000);
      const bytes = Buffer.alloc(5001, 7);
      expect(await file.read(bytes, 0)).toBe(5001);
      expect(bytes.subarray(0, 5000).every((byte) => byte === 0)).toBe(true);
      expect(bytes[5000]).toBe("x".charCodeAt(0));
      await file.close();
    });

    rule("writes of many sizes and none come back whole", async (disk, dir) => {
      const file = await disk.open(joinPath(dir, "a"), "create");
      const parts = [0, 1, 511, 512, 513, 4096, 300_000].map((size, at) => Buffer.alloc(size, at));
      let position = 0;
      for (const part of parts) {
        await writeFully(file, part, position);
        position += part.length;
      }
      await file.close();
      const content = await readFile(disk, joinPath(dir, "a"));
      expect(content.equals(Buffer.concat(parts))).toBe(true);
    });

    rule("truncate cuts, and grows with zeros over what was cut", async (disk, dir) => {
      const file = await disk.open(joinPath(dir, "a"), "create");
      await writeFully(file, Buffer.from("abcdef"), 0);
      await file.truncate(2);
      expect(await file.sizeBytes()).toBe(2);
      await file.truncate(5);
      expect(await readText(file, 0, 9)).toBe("ab\0\0\0");
      await file.close();
    });

    rule("a read of one handle sees the finished writes of another", async (disk, dir) => {
      const writer = await disk.open(joinPath(dir, "a"), "create");
      const reader = await disk.open(joinPath(dir, "a"), "read");
      await writeFully(writer, Buffer.from("seen"), 0);
      expect(await readText(reader, 0, 9)).toBe("seen");
      await reader.close();
      await writer.close();
    });

    rule("a file opened for reading refuses writes", async (disk, dir) => {
      await (await disk.open(joinPath(dir, "a"), "create")).close();
      const file = await disk.open(joinPath(dir, "a"), "read");
      const error = await failure(writeFully(file, Buffer.from("no"), 0));
      expect(error).toMatchObject({ code: "DISK_IO_FAILED", details: { errno: "EBADF" } });
      expect(await file.sizeBytes()).toBe(0);
      await file.close();
    });

    rule("close waits for the calls under way and refuses later ones", async (disk, dir) => {
      const file = await disk.open(joinPath(dir, "a"), "create");
      const events: string[] = [];
      const written = writeFully(file, Buffer.alloc(100_000, 1), 0).then(() =>
        events.push("write"),
      );
      await file.close();
      events.push("close");
      await written;
      expect(events).toEqual(["write", "close"]);
      await file.close();
      for (const late of [
        () => writeFully(file, Buffer.from("late"), 0),
        () => syncFully(file),
        () => file.read(Buffer.alloc(1), 0),
        () => file.sizeBytes(),
        () => file.truncate(0),
      ]) {
        expect(await failure(late())).toMatchObject({ details: { errno: "EBADF" } });
      }
      expect((await readFile(disk, joinPath(dir, "a"))).length).toBe(100_000);
    });

    rule("create refuses a file that exists and open one that does not", async (disk, dir) => {
      const path = joinPath(dir, "a");
      expect(await code(disk.open(path, "write"))).toBe("DISK_NOT_FOUND");
      expect(await code(disk.open(path, "read"))).toBe("DISK_NOT_FOUND");
      await (await disk.open(path, "create")).close();
      const error = await failure(disk.open(path, "create"));
      expect(error).toMatchObject({ code: "DISK_EXISTS", details: { path } });
      expect(await code(disk.open(joinPath(dir, "no/b"), "create"))).toBe("DISK_NOT_FOUND");
    });
  });

  describe(`${name}: names`, () => {
    rule("a list is sorted and tells folders from files", async (disk, dir) => {
      await (await disk.open(joinPath(dir, "b"), "create")).close();
      await disk.makeDir(joinPath(dir, "c/d"));
      await (await disk.open(joinPath(dir, "a"), "create")).close();
      expect(await disk.list(dir)).toEqual([
        { name: "a", isDirectory: false },
        { name: "b", isDirectory: false },
        { name: "c", isDirectory: true },
      ]);
      expect(await disk.list(joinPath(dir, "c"))).toEqual([{ name: "d", isDirectory: true }]);
      expect(await code(disk.list(joinPath(dir, "nowhere")))).toBe("DISK_NOT_FOUND");
    });

    rule("exists answers for files and folders", async (disk, dir) => {
      expect(await disk.exists(dir)).toBe(true);
      expect(await disk.exists(joinPath(dir, "a"))).toBe(false);
      await (await disk.open(joinPath(dir, "a"), "create")).close();
      expect(await disk.exists(joinPath(dir, "a"))).toBe(true);
      expect(await disk.exists(joinPath(dir, "a/b"))).toBe(false);
    });

    rule("makeDir makes parents and does not mind a folder that exists", async (disk, dir) => {
      await disk.makeDir(joinPath(dir, "x/y/z"));
      await disk.makeDir(joinPath(dir, "x/y/z"));
      expect(await disk.exists(joinPath(dir, "x/y/z"))).toBe(true);
      await (await disk.open(joinPath(dir, "file"), "create")).close();
      expect(await code(disk.makeDir(joinPath(dir, "file")))).toBe("DISK_IO_FAILED");
      expect(await code(disk.makeDir(joinPath(dir, "file/below")))).toBe("DISK_IO_FAILED");
    });

    rule("rename replaces the target and keeps the content", async (disk, dir) => {
      await put(disk, joinPath(dir, "a"), "new");
      await put(disk, joinPath(dir, "b"), "old");
      await disk.rename(joinPath(dir, "a"), joinPath(dir, "b"));
      await disk.syncDir(dir);
      expect((await readFile(disk, joinPath(dir, "b"))).toString()).toBe("new");
      expect(await disk.exists(joinPath(dir, "a"))).toBe(false);
      expect(await code(disk.rename(joinPath(dir, "a"), joinPath(dir, "c")))).toBe(
        "DISK_NOT_FOUND",
      );
    });

    rule("a folder can be renamed with all it holds", async (disk, dir) => {
      await disk.makeDir(joinPath(dir, "one"));
      await put(disk, joinPath(dir, "one/a"), "kept");
      await disk.rename(joinPath(dir, "one"), joinPath(dir, "two"));
      expect((await readFile(disk, joinPath(dir, "two/a"))).toString()).toBe("kept");
      await disk.makeDir(joinPath(dir, "full"));
      await put(disk, joinPath(dir, "full/b"), "x");
      const error = await failure(disk.rename(joinPath(dir, "two"), joinPath(dir, "full")));
      expect(error).toMatchObject({ details: { errno: "ENOTEMPTY" } });
    });

    rule("an open file outlives its name", async (disk, dir) => {
      const file = await disk.open(joinPath(dir, "a"), "create");
      await disk.remove(joinPath(dir, "a"));
      await writeFully(file, Buffer.from("still"), 0);
      expect(await readText(file, 0, 9)).toBe("still");
      await file.close();
      expect(await disk.list(dir)).toEqual([]);
    });

    rule("removing what is gone already is no error", async (disk, dir) => {
      await disk.remove(joinPath(dir, "a"));
      await disk.remove(joinPath(dir, "no/a"));
      await disk.removeDir(joinPath(dir, "no"));
      await disk.makeDir(joinPath(dir, "sub"));
      expect(isCodedError(await failure(disk.remove(joinPath(dir, "sub"))))).toBe(true);
    });

    rule("removeDir removes everything below", async (disk, dir) => {
      await disk.makeDir(joinPath(dir, "x/y"));
      await put(disk, joinPath(dir, "x/y/a"), "1");
      await put(disk, joinPath(dir, "x/b"), "2");
      await disk.removeDir(joinPath(dir, "x"));
      expect(await disk.list(dir)).toEqual([]);
    });

    rule("syncDir needs a folder that exists", async (disk, dir) => {
      await disk.syncDir(dir);
      expect(await code(disk.syncDir(joinPath(dir, "nowhere")))).toBe("DISK_NOT_FOUND");
    });

    rule("space is told for a folder, with the free part at most the whole", async (disk, dir) => {
      const space = await disk.space(dir);
      expect(space.totalBytes).toBeGreaterThan(0);
      expect(space.freeBytes).toBeGreaterThanOrEqual(0);
      expect(space.freeBytes).toBeLessThanOrEqual(space.totalBytes);
      expect(await code(disk.space(joinPath(dir, "nowhere")))).toBe("DISK_NOT_FOUND");
    });

    rule("what a folder takes on its volume grows with its files", async (disk, dir) => {
      const path = joinPath(dir, "folder");
      expect(await disk.usedBytes(path)).toBe(0);
      await disk.makeDir(path);
      const before = await disk.usedBytes(path);
      await put(disk, joinPath(path, "a"), "x".repeat(100_000));
      expect(await disk.usedBytes(path)).toBeGreaterThanOrEqual(before + 100_000);
      expect(await disk.usedBytes(joinPath(path, "a"))).toBeGreaterThanOrEqual(100_000);
    });

    rule("replaceFile writes and replaces, even over a left-over of a crash", async (disk, dir) => {
      const path = joinPath(dir, "meta");
      await put(disk, `${path}.new`, "left over, and longer than what comes");
      await replaceFile(disk, path, Buffer.from("one"));
      await replaceFile(disk, path, Buffer.from("two"));
      expect((await readFile(disk, path)).toString()).toBe("two");
      expect((await disk.list(dir)).map((entry) => entry.name)).toEqual(["meta"]);
    });
  });
}

async function put(disk: Disk, path: string, text: string): Promise<void> {
  const file = await disk.open(path, "create");
  await writeFully(file, Buffer.from(text), 0);
  await file.close();
}

async function readText(file: DiskFile, position: number, sizeMax: number): Promise<string> {
  const bytes = Buffer.alloc(sizeMax);
  return bytes.toString("latin1", 0, await file.read(bytes, position));
}

async function failure(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => undefined,
    (error: unknown) => error,
  );
}

async function code(promise: Promise<unknown>): Promise<string | undefined> {
  const error = await failure(promise);
  return isCodedError(error) ? error.code : undefined;
}
