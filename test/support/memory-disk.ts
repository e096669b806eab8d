// A disk that is a table of buffers: no delays, no page cache, everything durable at once. For
// tests that open the same files thousands of times with one byte changed. Crashes and faults are
// the business of SimDisk.

import {
  type DirEntry,
  type Disk,
  type DiskFile,
  diskErrors,
  type OpenMode,
} from "../../src/base/index.ts";

export class MemoryDisk implements Disk {
  readonly files: Map<string, Buffer>;
  readonly dirs: Set<string>;

  constructor(files: Map<string, Buffer> = new Map(), dirs: Set<string> = new Set()) {
    this.files = files;
    this.dirs = dirs;
  }

  /** The same content; `change` replaces one file. */
  clone(change?: { readonly path: string; readonly bytes: Buffer }): MemoryDisk {
    const files = new Map<string, Buffer>();
    for (const [path, bytes] of this.files) files.set(path, Buffer.from(bytes));
    if (change !== undefined) files.set(change.path, Buffer.from(change.bytes));
    return new MemoryDisk(files, new Set(this.dirs));
  }

  async open(path: string, mode: OpenMode): Promise<DiskFile> {
    if (mode === "create") this.files.set(path, Buffer.alloc(0));
    if (!this.files.has(path)) throw diskErrors.missing({ path });
    return new MemoryFile(this, path);
  }

  async list(path: string): Promise<DirEntry[]> {
    const names = [...this.files.keys()].filter((name) => name.startsWith(`${path}/`));
    return names
      .map((name) => ({ name: name.slice(path.length + 1), isDirectory: false }))
      .filter(({ name }) => !name.includes("/"))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async exists(path: string): Promise<boolean> {
    return this.files.has(path) || this.dirs.has(path);
  }

  async makeDir(path: string): Promise<void> {
    this.dirs.add(path);
  }

  async rename(from: string, to: string): Promise<void> {
    const bytes = this.files.get(from);
    if (bytes === undefined) throw diskErrors.missing({ path: from });
    this.files.delete(from);
    this.files.set(to, bytes);
  }

  async remove(path: string): Promise<void> {
    this.files.delete(path);
  }

  async removeDir(path: string): Promise<void> {
    for (const name of this.files.keys()) if (name.startsWith(`${path}/`)) this.files.delete(name);
  }

  async syncDir(): Promise<void> {
    await Promise.resolve();
  }

  async usedBytes() {
    return 0;
  }

  async space() {
    return { freeBytes: 2 ** 40, totalBytes: 2 ** 40, type: "memory" };
  }
}

class MemoryFile implements DiskFile {
  readonly #disk: MemoryDisk;
  readonly path: string;
  // A renamed file stays the same file for who has it open.
  #bytes: Buffer;

  constructor(disk: MemoryDisk, path: string) {
    this.#disk = disk;
    this.path = path;
    this.#bytes = disk.files.get(path) as Buffer;
  }

  write(bytes: Uint8Array, position: number, done: (error: Error | undefined) => void): void {
    const end = position + bytes.length;
    if (end > this.#bytes.length) this.#resize(end);
    this.#bytes.set(bytes, position);
    queueMicrotask(() => done(undefined));
  }

  fdatasync(done: (error: Error | undefined) => void): void {
    queueMicrotask(() => done(undefined));
  }

  async read(into: Uint8Array, position: number): Promise<number> {
    const part = this.#bytes.subarray(position, position + into.length);
    into.set(part);
    return part.length;
  }

  async sizeBytes(): Promise<number> {
    return this.#bytes.length;
  }

  async truncate(sizeBytes: number): Promise<void> {
    this.#resize(sizeBytes);
  }

  async close(): Promise<void> {
    await Promise.resolve();
  }

  #resize(sizeBytes: number): void {
    const grown = Buffer.alloc(sizeBytes);
    this.#bytes.copy(grown, 0, 0, Math.min(sizeBytes, this.#bytes.length));
    for (const [path, bytes] of this.#disk.files) {
      if (bytes === this.#bytes) this.#disk.files.set(path, grown);
    }
    this.#bytes = grown;
  }
}
