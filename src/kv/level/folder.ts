// The files of a LevelDB's folder by their names, and how they are read when bytes of them may be
// unreadable.

import { type Disk, isCodedError, joinPath } from "../../base/index.ts";

export type LevelFiles = {
  readonly hasCurrent: boolean;
  /** Numbers, ascending. */
  readonly manifests: readonly number[];
  readonly logs: readonly number[];
  /** File names by number. */
  readonly tables: ReadonlyMap<number, string>;
};

export const noFiles: LevelFiles = {
  hasCurrent: false,
  manifests: [],
  logs: [],
  tables: new Map(),
};

const digits = 6;
const pageBytes = 4096;

export function manifestName(number: number): string {
  return `MANIFEST-${String(number).padStart(digits, "0")}`;
}

export function logName(number: number): string {
  return `${String(number).padStart(digits, "0")}.log`;
}

export async function listLevel(disk: Disk, path: string): Promise<LevelFiles> {
  if (!(await disk.exists(path))) return noFiles;
  const names = (await disk.list(path)).filter((entry) => !entry.isDirectory);
  const numbersOf = (pattern: RegExp): number[] =>
    names
      .flatMap(({ name }) => pattern.exec(name)?.[1] ?? [])
      .map(Number)
      .sort((a, b) => a - b);
  const tables = new Map<number, string>();
  for (const { name } of names) {
    const number = /^(\d+)\.(?:ldb|sst)$/.exec(name)?.[1];
    if (number !== undefined) tables.set(Number(number), name);
  }
  return {
    hasCurrent: names.some(({ name }) => name === "CURRENT"),
    manifests: numbersOf(/^MANIFEST-(\d+)$/),
    logs: numbersOf(/^(\d+)\.log$/),
    tables,
  };
}

/** Runs `use` with a way to read parts of a file; what is unreadable reads as nothing. */
export async function withLevelFile<T>(
  disk: Disk,
  folder: string,
  name: string,
  use: (
    read: (position: number, sizeBytes: number) => Promise<Buffer>,
    sizeBytes: number,
  ) => Promise<T>,
): Promise<T> {
  const file = await disk.open(joinPath(folder, name), "read");
  const read = async (position: number, sizeBytes: number): Promise<Buffer> => {
    const bytes = Buffer.alloc(sizeBytes);
    try {
      return bytes.subarray(0, await file.read(bytes, position));
    } catch (error) {
      if (!isCodedError(error, "DISK_IO_FAILED")) throw error;
      return Buffer.alloc(0);
    }
  };
  try {
    return await use(read, await file.sizeBytes());
  } finally {
    await file.close();
  }
}

/** The bytes of a file; pages that the medium does not give back are zeros, and fail checksums. */
export async function readLevelFile(disk: Disk, folder: string, name: string): Promise<Buffer> {
  const file = await disk.open(joinPath(folder, name), "read");
  try {
    const bytes = Buffer.alloc(await file.sizeBytes());
    try {
      return bytes.subarray(0, await file.read(bytes, 0));
    } catch (error) {
      if (!isCodedError(error, "DISK_IO_FAILED")) throw error;
    }
    for (let at = 0; at < bytes.length; at += pageBytes) {
      const page = bytes.subarray(at, at + pageBytes);
      try {
        await file.read(page, at);
      } catch (error) {
        if (!isCodedError(error, "DISK_IO_FAILED")) throw error;
        page.fill(0);
      }
    }
    return bytes;
  } finally {
    await file.close();
  }
}
