// The disk port: the few file operations that durable code needs, with their durability spelled
// out. `node-disk.ts` is the real one, `sim-disk.ts` the twin with a page cache that can lose
// power.
//
// Durability: written bytes are durable after `fdatasync` of the file; a created, renamed or
// removed name is durable after `syncDir` of its folder. Nothing else promises anything.
// Errors are CodedErrors of `diskErrors`, with the path in `details.path`.

import { defineErrors } from "./errors.ts";

export const diskErrors = defineErrors({
  full: {
    code: "DISK_FULL",
    kind: "retry",
    message: "no space left on the volume of {path}",
    help: "Free space or raise the quota; writing resumes by itself.",
  },
  failed: {
    code: "DISK_IO_FAILED",
    kind: "internal",
    message: "{operation} of {path} failed: {reason}",
    help: "The volume reported an IO error. Check the device; then start again.",
  },
  exists: {
    code: "DISK_EXISTS",
    kind: "invalid",
    message: "{path} exists already",
    help: "Choose another path, or remove what is there.",
  },
  missing: {
    code: "DISK_NOT_FOUND",
    kind: "invalid",
    message: "{path} does not exist",
    help: "Check the path.",
  },
  denied: {
    code: "DISK_ACCESS_DENIED",
    kind: "invalid",
    message: "{operation} of {path} is not permitted for this user",
    help: "Check owner and mode of the folder.",
  },
});

export type Done = (error: Error | undefined) => void;

/**
 * `create` (DISK_EXISTS when the file exists) and `write` (DISK_NOT_FOUND when it does not) give a
 * file that can be read and written, `read` (DISK_NOT_FOUND) one that can only be read.
 */
export type OpenMode = "create" | "write" | "read";

/**
 * An open file. The hot calls take callbacks: promises cost a fifth of the throughput there.
 * Bytes handed to `write` belong to the file until `done` runs.
 */
export interface DiskFile {
  readonly path: string;
  /** Writes all bytes at `position` (short writes are completed by the driver). */
  write(bytes: Uint8Array, position: number, done: Done): void;
  /** Makes all finished writes of this file durable. The first error is final: never retried. */
  fdatasync(done: Done): void;
  /** Fills `into` from `position`; resolves with the bytes read, fewer only at the end of file. */
  read(into: Uint8Array, position: number): Promise<number>;
  sizeBytes(): Promise<number>;
  /** Durable after the next `fdatasync`; bytes added read as zeros. */
  truncate(sizeBytes: number): Promise<void>;
  /** Waits for the calls under way; later calls fail with DISK_IO_FAILED (EBADF). Idempotent. */
  close(): Promise<void>;
}

export type DiskSpace = {
  readonly freeBytes: number;
  readonly totalBytes: number;
  /** Name of the file system when known: `ext4`, `nfs`, `tmpfs`. */
  readonly type: string | undefined;
};

export type DirEntry = { readonly name: string; readonly isDirectory: boolean };

export interface Disk {
  open(path: string, mode: OpenMode): Promise<DiskFile>;
  /** Entries sorted by name. */
  list(path: string): Promise<DirEntry[]>;
  exists(path: string): Promise<boolean>;
  /**
   * Creates the folder and its parents (mode 0700); no error when it exists. Unlike files, folders
   * are durable when this resolves: only the call knows which parents it had to make.
   */
  makeDir(path: string): Promise<void>;
  /** Atomic within a volume; replaces `to`. */
  rename(from: string, to: string): Promise<void>;
  /** Removes a file; no error when it is gone already. */
  remove(path: string): Promise<void>;
  /** Removes a folder with all that is in it; no error when it is gone already. */
  removeDir(path: string): Promise<void>;
  /** Makes creations, renames and removals of names in this folder durable. */
  syncDir(path: string): Promise<void>;
  space(path: string): Promise<DiskSpace>;
  /**
   * Bytes that a file, or a folder with all that is in it, takes on its volume; 0 when it is gone.
   * What appears or goes meanwhile may count or not.
   */
  usedBytes(path: string): Promise<number>;
}

export function writeFully(file: DiskFile, bytes: Uint8Array, position: number): Promise<void> {
  return new Promise((resolve, reject) => {
    file.write(bytes, position, (error) => (error === undefined ? resolve() : reject(error)));
  });
}

export function syncFully(file: DiskFile): Promise<void> {
  return new Promise((resolve, reject) => {
    file.fdatasync((error) => (error === undefined ? resolve() : reject(error)));
  });
}

/** The whole content of a file of at most a few MiB. */
export async function readFile(disk: Disk, path: string): Promise<Buffer> {
  const file = await disk.open(path, "read");
  try {
    const bytes = Buffer.alloc(await file.sizeBytes());
    const count = await file.read(bytes, 0);
    return bytes.subarray(0, count);
  } finally {
    await file.close();
  }
}

/** Writes a small file so that after a power cut either the old or the new content is there. */
export async function replaceFile(disk: Disk, path: string, bytes: Uint8Array): Promise<void> {
  const temporary = `${path}.new`;
  await disk.remove(temporary);
  const file = await disk.open(temporary, "create");
  try {
    await writeFully(file, bytes, 0);
    await syncFully(file);
  } finally {
    await file.close();
  }
  await disk.rename(temporary, path);
  await disk.syncDir(parentDir(path));
}

export function joinPath(...parts: string[]): string {
  return parts.join("/").replace(/\/{2,}/g, "/");
}

export function parentDir(path: string): string {
  const at = path.lastIndexOf("/");
  if (at < 0) return ".";
  return at === 0 ? "/" : path.slice(0, at);
}
