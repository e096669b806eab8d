// What may happen to a file, and to which files of a data directory it happens in the suite.

import {
  appendFileSync,
  closeSync,
  copyFileSync,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeSync,
} from "node:fs";
import { dirname, join } from "node:path";

export type Damage = {
  readonly name: string;
  /** False where it does not apply to this file. */
  readonly apply: (file: string, olderCopy: string) => boolean;
};

const garbageBytes = 300;

function flip(file: string, at: number): boolean {
  const bytes = readFileSync(file);
  const byte = bytes[at];
  if (byte === undefined) return false;
  patch(file, at, Buffer.from([byte ^ 0x10]));
  return true;
}

function patch(file: string, at: number, bytes: Buffer): void {
  const fd = openSync(file, "r+");
  writeSync(fd, bytes, 0, bytes.length, at);
  closeSync(fd);
}

const sizeOf = (file: string): number => statSync(file).size;

/** Segments are filled ahead with zeros: their middle is that of what was written. */
function contentBytes(file: string): number {
  if (!file.endsWith(".wal")) return sizeOf(file);
  const bytes = readFileSync(file).subarray(0, -512);
  let end = bytes.length;
  while (end > 0 && bytes[end - 1] === 0) end--;
  return end;
}

export const damages: readonly Damage[] = [
  { name: "flip at begin", apply: (file) => flip(file, 0) },
  { name: "flip at 1/3", apply: (file) => flip(file, Math.floor(contentBytes(file) / 3)) },
  { name: "flip in middle", apply: (file) => flip(file, contentBytes(file) >> 1) },
  { name: "flip at end", apply: (file) => flip(file, contentBytes(file) - 1) },
  {
    name: "truncate to half",
    apply: (file) => {
      truncateSync(file, contentBytes(file) >> 1);
      return true;
    },
  },
  {
    name: "truncate to nothing",
    apply: (file) => {
      truncateSync(file, 0);
      return true;
    },
  },
  {
    name: "zero",
    apply: (file) => {
      patch(file, 0, Buffer.alloc(sizeOf(file)));
      return true;
    },
  },
  {
    name: "delete",
    apply: (file) => {
      rmSync(file);
      return true;
    },
  },
  {
    name: "older copy",
    apply: (file, olderCopy) => {
      if (!existsSync(olderCopy)) return false;
      copyFileSync(olderCopy, file);
      return true;
    },
  },
  {
    name: "garbage behind",
    apply: (file) => {
      appendFileSync(file, Buffer.alloc(garbageBytes, "garbage!"));
      return true;
    },
  },
];

/** What happens to a shard store and its copy at once; to be applied to the copy. */
export const pairDamages: readonly Damage[] = [
  {
    name: "gone with its store",
    apply: (file) => {
      rmSync(join(dirname(file), "store"), { recursive: true });
      rmSync(file);
      return true;
    },
  },
  {
    name: "rotten with its store",
    apply: (file) => {
      const store = join(dirname(file), "store");
      for (const name of readdirSync(store)) {
        const path = join(store, name);
        if (sizeOf(path) > 0) patch(path, 0, Buffer.alloc(sizeOf(path), 0xa5));
      }
      return flip(file, sizeOf(file) >> 1);
    },
  },
];

/** Paths of all files, relative to the directory. */
export function filesOf(dir: string, below = ""): string[] {
  return readdirSync(join(dir, below), { withFileTypes: true }).flatMap((entry) => {
    const path = below === "" ? entry.name : `${below}/${entry.name}`;
    return entry.isDirectory() ? filesOf(dir, path) : [path];
  });
}

/** What kind of file it is; files of one class are treated alike. */
export function classOf(path: string): string {
  const names = path.split("/");
  const file = (names.at(-1) as string)
    .replace(/^MANIFEST-\d+$/, "MANIFEST")
    .replace(/^\d+\.(log|ldb|wal|free)$/, "*.$1");
  if (names[0] !== "db") return [...names.slice(0, -1), file].join("/");
  const folder = names.slice(3, -1).map((name) => (/^g\d+(p\d+)?$/.test(name) ? "slab" : name));
  return [names[1], ...folder, file].join("/");
}
