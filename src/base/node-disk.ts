// The real disk, on node:fs. Callbacks for the hot calls (write, fdatasync, read), promises for the
// rest. Files are made 0600 and folders 0700: what is stored is nobody else's business.
//
// Invariants: `done` runs once per call, never inside the call; a descriptor is closed only when no
// call uses it, since its number may be given to another file at once; an fdatasync that failed is
// never repeated here (the kernel marks the pages clean, so that a second one would lie).

import fs from "node:fs";
import {
  type DirEntry,
  type Disk,
  type DiskFile,
  type DiskSpace,
  type Done,
  diskErrors,
  joinPath,
  type OpenMode,
  parentDir,
} from "./disk.ts";
import { isCodedError, toError } from "./errors.ts";

const fileMode = 0o600;
const folderMode = 0o700;
const openFlags = { create: "wx+", write: "r+", read: "r" } as const;

/** The calls of the hot path, replaceable to show what the driver does with what they answer. */
export type FileCalls = Pick<typeof fs, "write" | "fdatasync" | "read">;

export const nodeDisk: Disk = createNodeDisk();

export function createNodeDisk(calls: FileCalls = fs): Disk {
  return {
    open: (path, mode) => openFile(calls, path, mode),
    list,
    exists,
    makeDir,
    rename: (from, to) => promised("rename", from, fs.promises.rename(from, to)),
    remove,
    removeDir: (path) => promised("rm", path, fs.promises.rm(path, removeAll)),
    syncDir,
    space,
    usedBytes,
  };
}

const removeAll = { recursive: true, force: true } as const;

/** What a failed call of node:fs becomes, by its errno. */
export function diskError(operation: string, path: string, cause: unknown): Error {
  const errno = errnoOf(cause) ?? "unknown";
  const details = { operation, path, errno, reason: errno };
  switch (errno) {
    case "ENOSPC":
    case "EDQUOT":
      return diskErrors.full(details, cause);
    case "EACCES":
    case "EPERM":
    case "EROFS":
      return diskErrors.denied(details, cause);
    case "ENOENT":
      return diskErrors.missing(details, cause);
    case "EEXIST":
      return diskErrors.exists(details, cause);
    default:
      return diskErrors.failed({ ...details, reason: toError(cause).message }, cause);
  }
}

function errnoOf(error: unknown): string | undefined {
  return error instanceof Error && "code" in error ? String(error.code) : undefined;
}

async function promised<T>(operation: string, path: string, call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (error) {
    throw diskError(operation, path, error);
  }
}

async function openFile(calls: FileCalls, path: string, mode: OpenMode): Promise<DiskFile> {
  const fd = await new Promise<number>((resolve, reject) => {
    fs.open(path, openFlags[mode], fileMode, (error, opened) =>
      error === null ? resolve(opened) : reject(diskError("open", path, error)),
    );
  });
  return new NodeFile(calls, path, fd);
}

class NodeFile implements DiskFile {
  readonly path: string;
  readonly #calls: FileCalls;
  readonly #fd: number;
  #underWay = 0;
  #closing: Promise<void> | undefined;
  #whenIdle: (() => void) | undefined;

  constructor(calls: FileCalls, path: string, fd: number) {
    this.#calls = calls;
    this.path = path;
    this.#fd = fd;
  }

  write(bytes: Uint8Array, position: number, done: Done): void {
    const finish = this.#begin("write", done);
    if (finish !== undefined) this.#writeFrom(bytes, 0, position, finish);
  }

  fdatasync(done: Done): void {
    const finish = this.#begin("fdatasync", done);
    if (finish !== undefined) this.#calls.fdatasync(this.#fd, finish);
  }

  read(into: Uint8Array, position: number): Promise<number> {
    return new Promise((resolve, reject) => {
      let count = 0;
      const finish = this.#begin("read", (error) =>
        error === undefined ? resolve(count) : reject(error),
      );
      if (finish === undefined) return;
      const readOn = (): void => {
        const rest = into.length - count;
        this.#calls.read(this.#fd, into, count, rest, position + count, (error, got) => {
          if (error !== null) return finish(error);
          count += got;
          return got === 0 || count === into.length ? finish(null) : readOn();
        });
      };
      readOn();
    });
  }

  async sizeBytes(): Promise<number> {
    const stat = await this.#whole<fs.Stats>("fstat", (settle) => fs.fstat(this.#fd, settle));
    return stat.size;
  }

  async truncate(sizeBytes: number): Promise<void> {
    await this.#whole<void>("ftruncate", (settle) => fs.ftruncate(this.#fd, sizeBytes, settle));
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    if (this.#underWay > 0) {
      await new Promise<void>((resolve) => {
        this.#whenIdle = resolve;
      });
    }
    await new Promise<void>((resolve, reject) => {
      fs.close(this.#fd, (error) =>
        error == null ? resolve() : reject(diskError("close", this.path, error)),
      );
    });
  }

  /** Counts a call in; undefined when the file is closed and `done` has been told to. */
  #begin(operation: string, done: Done): ((error: Error | null) => void) | undefined {
    if (this.#closing !== undefined) {
      const details = { operation, path: this.path, errno: "EBADF", reason: "the file is closed" };
      queueMicrotask(() => done(diskErrors.failed(details)));
      return undefined;
    }
    this.#underWay++;
    return (error) => {
      this.#underWay--;
      if (this.#underWay === 0) this.#whenIdle?.();
      done(error === null ? undefined : diskError(operation, this.path, error));
    };
  }

  #whole<T>(
    operation: string,
    call: (settle: (error: Error | null, value?: T) => void) => void,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      let result: T | undefined;
      const finish = this.#begin(operation, (error) =>
        error === undefined ? resolve(result as T) : reject(error),
      );
      if (finish === undefined) return;
      call((error, value) => {
        result = value;
        finish(error ?? null);
      });
    });
  }

  // A short write is legal at any time: a full disk and a signal both cause them.
  #writeFrom(
    bytes: Uint8Array,
    offset: number,
    position: number,
    finish: (error: Error | null) => void,
  ): void {
    const rest = bytes.length - offset;
    this.#calls.write(this.#fd, bytes, offset, rest, position + offset, (error, written) => {
      if (error !== null) return finish(error);
      if (written === rest) return finish(null);
      if (written === 0) return finish(new Error("the system wrote nothing and gave no reason"));
      return this.#writeFrom(bytes, offset + written, position, finish);
    });
  }
}

async function list(path: string): Promise<DirEntry[]> {
  const entries = await promised("list", path, fs.promises.readdir(path, { withFileTypes: true }));
  const named = entries.map((entry) => ({ name: entry.name, isDirectory: entry.isDirectory() }));
  return named.sort((one, other) => (one.name < other.name ? -1 : 1));
}

async function exists(path: string): Promise<boolean> {
  try {
    await fs.promises.stat(path);
    return true;
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === "ENOENT" || errno === "ENOTDIR") return false;
    throw diskError("stat", path, error);
  }
}

// Each folder is synced into its parent before the next is made below it, so that a kill leaves at
// most the deepest one unsynced; hence the parent of a folder that exists is synced as well.
async function makeDir(path: string): Promise<void> {
  if (await makeOneDir(path)) return;
  const parent = parentDir(path);
  if (parent === path) throw diskErrors.missing({ path });
  await makeDir(parent);
  if (!(await makeOneDir(path))) throw diskErrors.missing({ path });
}

/** False when the parent is missing. */
async function makeOneDir(path: string): Promise<boolean> {
  try {
    await fs.promises.mkdir(path, { mode: folderMode });
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === "ENOENT") return false;
    const there = errno === "EEXIST" ? await kindOf(path) : undefined;
    if (there !== "folder") throw notMade(path, there, error);
    await syncParentOfExisting(path);
    return true;
  }
  await syncDir(parentDir(path));
  return true;
}

type Kind = "folder" | "file" | "dead link";

function notMade(path: string, there: Kind | undefined, cause: unknown): Error {
  const errno = errnoOf(cause);
  if (errno !== "EEXIST" && errno !== "ENOTDIR") return diskError("mkdir", path, cause);
  const reason =
    there === undefined
      ? "a part of the path is a file"
      : `a ${there === "file" ? "file" : "link to nothing"} has this name`;
  return diskErrors.failed({ operation: "mkdir", path, errno: "ENOTDIR", reason }, cause);
}

/** REQUIRES: something has this name. */
async function kindOf(path: string): Promise<Kind> {
  try {
    return (await fs.promises.stat(path)).isDirectory() ? "folder" : "file";
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return "dead link";
    throw diskError("stat", path, error);
  }
}

// A folder in a place we may not read was made by somebody else and is theirs to sync.
async function syncParentOfExisting(path: string): Promise<void> {
  try {
    await syncDir(parentDir(path));
  } catch (error) {
    if (!isCodedError(error, "DISK_ACCESS_DENIED")) throw error;
  }
}

async function remove(path: string): Promise<void> {
  try {
    await fs.promises.unlink(path);
  } catch (error) {
    if (errnoOf(error) !== "ENOENT") throw diskError("unlink", path, error);
  }
}

async function syncDir(path: string): Promise<void> {
  const handle = await promised("open", path, fs.promises.open(path, "r"));
  try {
    await promised("fsync", path, handle.sync());
  } finally {
    await handle.close();
  }
}

async function space(path: string): Promise<DiskSpace> {
  const stat = await promised("statfs", path, fs.promises.statfs(path));
  return {
    freeBytes: stat.bavail * stat.bsize,
    totalBytes: stat.blocks * stat.bsize,
    type: fileSystemTypes.get(stat.type >>> 0),
  };
}

/** A block of `st_blocks`, whatever the file system's own are. */
const statBlockBytes = 512;

async function usedBytes(path: string): Promise<number> {
  try {
    const stat = await fs.promises.lstat(path);
    const ownBytes = stat.blocks * statBlockBytes;
    if (!stat.isDirectory()) return ownBytes;
    const names = await fs.promises.readdir(path);
    const sizes = await Promise.all(names.map((name) => usedBytes(joinPath(path, name))));
    return sizes.reduce((sum, each) => sum + each, ownBytes);
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return 0;
    throw diskError("stat", path, error);
  }
}

/** Magic numbers of statfs(2). */
const fileSystemTypes: ReadonlyMap<number, string> = new Map([
  [0xef53, "ext4"],
  [0x58465342, "xfs"],
  [0x9123683e, "btrfs"],
  [0x2fc12fc1, "zfs"],
  [0xf2f52010, "f2fs"],
  [0x01021994, "tmpfs"],
  [0x858458f6, "ramfs"],
  [0x6969, "nfs"],
  [0x517b, "smb"],
  [0xfe534d42, "smb"],
  [0xff534d42, "cifs"],
  [0x01021997, "9p"],
  [0x00c36400, "ceph"],
  [0x65735546, "fuse"],
  [0x794c7630, "overlay"],
]);
