// A disk that tells before each call on it, those on its files included: whoever listens may end the
// process there.

import type { Disk, DiskFile, Done, OpenMode } from "../../src/base/index.ts";

export function stepDisk(disk: Disk, onStep: (path: string) => void): Disk {
  const told = <T>(path: string, call: () => T): T => {
    onStep(path);
    return call();
  };
  return {
    open: async (path: string, mode: OpenMode) =>
      stepFile(await told(path, () => disk.open(path, mode)), onStep),
    list: (path) => told(path, () => disk.list(path)),
    exists: (path) => told(path, () => disk.exists(path)),
    makeDir: (path) => told(path, () => disk.makeDir(path)),
    rename: (from, to) => told(from, () => disk.rename(from, to)),
    remove: (path) => told(path, () => disk.remove(path)),
    removeDir: (path) => told(path, () => disk.removeDir(path)),
    syncDir: (path) => told(path, () => disk.syncDir(path)),
    space: (path) => told(path, () => disk.space(path)),
    usedBytes: (path) => told(path, () => disk.usedBytes(path)),
  };
}

function stepFile(file: DiskFile, onStep: (path: string) => void): DiskFile {
  const told = <T>(call: () => T): T => {
    onStep(file.path);
    return call();
  };
  return {
    path: file.path,
    write: (bytes: Uint8Array, position: number, done: Done) =>
      told(() => file.write(bytes, position, done)),
    fdatasync: (done: Done) => told(() => file.fdatasync(done)),
    read: (into, position) => told(() => file.read(into, position)),
    sizeBytes: () => told(() => file.sizeBytes()),
    truncate: (sizeBytes) => told(() => file.truncate(sizeBytes)),
    close: () => told(() => file.close()),
  };
}
