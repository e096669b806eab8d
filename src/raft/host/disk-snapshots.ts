// Snapshots as files: a folder a group with `manifest`, the data it names, and what is on its way.
//
// Keeps: a snapshot counts only by the rename of its manifest and the sync of the folder, after its
// data are synced; the one before stays until then, and nothing is removed because something else
// is missing; data read back are checked against the manifest. Chunks received survive a restart.

import {
  asBuffer,
  crc32,
  type Disk,
  type DiskFile,
  diskErrors,
  isCodedError,
  joinPath,
  readFile,
  replaceFile,
  syncFully,
  toError,
  writeFully,
} from "../../base/index.ts";
import { raftErrors } from "../errors.ts";
import {
  cutChunks,
  decodeManifest,
  encodeManifest,
  type SnapshotChunk,
  type SnapshotHead,
  type SnapshotManifest,
} from "./manifest.ts";
import type { SnapshotReader, SnapshotReceiver, SnapshotStore } from "./ports.ts";

export function createDiskSnapshots(
  disk: Disk,
  dir: string,
  settings: { readonly chunkBytes: number },
): SnapshotStore {
  const folderOf = (group: number): string => joinPath(dir, String(group).padStart(8, "0"));
  return {
    latest: (group) => openLatest(disk, folderOf(group), group),
    write: (head, pieces) =>
      writeOwn(disk, folderOf(head.group), head, cutChunks(pieces, settings.chunkBytes)),
    receive: (manifest) => FileReceiver.open(disk, folderOf(manifest.group), manifest),
  };
}

async function openLatest(
  disk: Disk,
  folder: string,
  group: number,
): Promise<SnapshotReader | undefined> {
  const path = joinPath(folder, "manifest");
  const manifest = await readManifest(disk, path);
  if (manifest === "missing") return undefined;
  if (manifest === "damaged" || manifest.group !== group) {
    throw raftErrors.snapshotDamaged({ group, path, reason: "its manifest cannot be read" });
  }
  const dataPath = joinPath(folder, dataName(manifest));
  try {
    return new FileReader(manifest, await disk.open(dataPath, "read"));
  } catch (error) {
    if (!isCodedError(error, "DISK_NOT_FOUND")) throw error;
    throw raftErrors.snapshotDamaged({ group, path: dataPath, reason: "it is gone" }, error);
  }
}

async function readManifest(
  disk: Disk,
  path: string,
): Promise<SnapshotManifest | "missing" | "damaged"> {
  try {
    return decodeManifest(await readFile(disk, path), path) ?? "damaged";
  } catch (error) {
    if (isCodedError(error, "DISK_NOT_FOUND")) return "missing";
    if (isCodedError(error, "DISK_IO_FAILED")) return "damaged";
    throw error;
  }
}

function dataName({ epoch, meta }: SnapshotHead): string {
  return `data-${epoch}-${meta.index}-${meta.term}`;
}

async function writeOwn(
  disk: Disk,
  folder: string,
  head: SnapshotHead,
  pieces: AsyncIterable<Buffer>,
): Promise<SnapshotManifest> {
  await disk.makeDir(folder);
  const path = joinPath(folder, dataName(head));
  const temporary = `${path}.own`;
  await disk.remove(temporary);
  const file = await disk.open(temporary, "create");
  const chunks: SnapshotChunk[] = [];
  try {
    let at = 0;
    for await (const piece of pieces) {
      await writeFully(file, piece, at);
      chunks.push({ sizeBytes: piece.length, crc: crc32(piece) });
      at += piece.length;
    }
    await syncFully(file);
  } catch (error) {
    await file.close();
    // What was written of it is worth nothing; the snapshot before still counts.
    await disk.remove(temporary);
    throw error;
  }
  await file.close();
  const manifest = { ...head, chunks };
  await complete(disk, { folder, temporary, manifest });
  return manifest;
}

type Completion = {
  readonly folder: string;
  readonly temporary: string;
  readonly manifest: SnapshotManifest;
};

/** REQUIRES: `temporary` is synced. */
async function complete(disk: Disk, { folder, temporary, manifest }: Completion): Promise<void> {
  const name = dataName(manifest);
  // An attempt before may have ended for want of space behind this step.
  if (await disk.exists(temporary)) await disk.rename(temporary, joinPath(folder, name));
  await disk.syncDir(folder);
  await replaceFile(disk, joinPath(folder, "manifest"), encodeManifest(manifest));
  for (const { name: other } of await disk.list(folder)) {
    const isOld = other.startsWith("data-") && !other.endsWith(".own") && other !== name;
    if (isOld) await disk.remove(joinPath(folder, other));
  }
}

class FileReader implements SnapshotReader {
  readonly manifest: SnapshotManifest;
  readonly #file: DiskFile;
  readonly #offsets: number[] = [];

  constructor(manifest: SnapshotManifest, file: DiskFile) {
    this.manifest = manifest;
    this.#file = file;
    let at = 0;
    for (const { sizeBytes } of manifest.chunks) {
      this.#offsets.push(at);
      at += sizeBytes;
    }
  }

  async read(chunk: number): Promise<Buffer> {
    const bytes = await readChunk(this.#file, this.manifest.chunks[chunk], this.#offsets[chunk]);
    if (bytes !== undefined) return bytes;
    const { group } = this.manifest;
    const reason = `chunk ${chunk} fails its checksum`;
    throw raftErrors.snapshotDamaged({ group, path: this.#file.path, reason });
  }

  close(): Promise<void> {
    return this.#file.close();
  }
}

async function readChunk(
  file: DiskFile,
  chunk: SnapshotChunk | undefined,
  offset: number | undefined,
): Promise<Buffer | undefined> {
  if (chunk === undefined || offset === undefined) return undefined;
  const bytes = Buffer.alloc(chunk.sizeBytes);
  try {
    const count = await file.read(bytes, offset);
    return count === bytes.length && crc32(bytes) === chunk.crc ? bytes : undefined;
  } catch (error) {
    // A sector that cannot be read is damage like any other.
    if (isCodedError(error, "DISK_IO_FAILED")) return undefined;
    throw error;
  }
}

class FileReceiver implements SnapshotReceiver {
  readonly manifest: SnapshotManifest;
  readonly #disk: Disk;
  readonly #folder: string;
  readonly #file: DiskFile;
  #next = 0;
  #offset = 0;
  #isClosed = false;

  private constructor(disk: Disk, folder: string, manifest: SnapshotManifest, file: DiskFile) {
    this.#disk = disk;
    this.#folder = folder;
    this.manifest = manifest;
    this.#file = file;
  }

  static async open(disk: Disk, folder: string, manifest: SnapshotManifest): Promise<FileReceiver> {
    await disk.makeDir(folder);
    const wanted = encodeManifest(manifest);
    const noted = joinPath(folder, "incoming.manifest");
    const path = joinPath(folder, "incoming");
    const isSame = (await disk.exists(noted)) && wanted.equals(await readFile(disk, noted));
    if (!isSame) {
      await disk.remove(path);
      await replaceFile(disk, noted, wanted);
    }
    const isThere = await disk.exists(path);
    const file = await disk.open(path, isThere ? "write" : "create");
    const receiver = new FileReceiver(disk, folder, manifest, file);
    if (isThere) await receiver.#resume();
    return receiver;
  }

  get next(): number {
    return this.#next;
  }

  async add(chunk: number, data: Uint8Array): Promise<boolean> {
    const wanted = this.manifest.chunks[chunk];
    if (chunk !== this.#next || wanted === undefined) return false;
    if (data.length !== wanted.sizeBytes || crc32(asBuffer(data)) !== wanted.crc) return false;
    await writeFully(this.#file, data, this.#offset);
    this.#next++;
    this.#offset += data.length;
    return true;
  }

  async commit(): Promise<void> {
    if (!this.#isClosed) {
      await this.#file.truncate(this.#offset);
      await this.#sync();
      await this.close();
    }
    const temporary = joinPath(this.#folder, "incoming");
    await complete(this.#disk, { folder: this.#folder, temporary, manifest: this.manifest });
    await this.#disk.remove(joinPath(this.#folder, "incoming.manifest"));
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#file.close();
  }

  // No sync is tried twice, whatever it failed for: the second may pass over pages that are lost.
  async #sync(): Promise<void> {
    try {
      await syncFully(this.#file);
    } catch (error) {
      const { message: reason } = toError(error);
      throw diskErrors.failed({ operation: "fdatasync", path: this.#file.path, reason }, error);
    }
  }

  // Only what is as the manifest says counts: unsynced chunks may be anything after a power cut.
  async #resume(): Promise<void> {
    for (const chunk of this.manifest.chunks) {
      if ((await readChunk(this.#file, chunk, this.#offset)) === undefined) return;
      this.#next++;
      this.#offset += chunk.sizeBytes;
    }
  }
}
