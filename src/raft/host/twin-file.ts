// A small file that is kept twice, `NAME.a` and `NAME.b`, each replaced as a whole.
//
// Keeps: rot of either copy, and a power cut at any moment, leave a whole one; of two the one
// with the higher sequence number counts; a copy that went bad is written again when it is read.

import {
  ByteReader,
  ByteWriter,
  crc32,
  type Disk,
  isCodedError,
  readFile,
  replaceFile,
} from "../../base/index.ts";
import { raftErrors } from "../errors.ts";

export type TwinKind = { readonly magic: string; readonly version: number };

type Copy = { readonly sequence: number; readonly payload: Buffer };

const magicBytes = 8;
const headBytes = magicBytes + 2 + 8;
const crcBytes = 4;

/** Undefined when neither copy is there. @throws RAFT_DIR_DAMAGED, RAFT_DIR_NEWER. */
export async function readTwin(
  disk: Disk,
  path: string,
  kind: TwinKind,
): Promise<Buffer | undefined> {
  const found = await readCopies(disk, path, kind);
  if (found.every((copy) => copy === "missing")) return undefined;
  const newest = newestOf(found);
  if (newest === undefined) throw raftErrors.dirDamaged({ path });
  for (const [place, copy] of found.entries()) {
    const isWhole = typeof copy === "object" && copy.sequence === newest.sequence;
    if (!isWhole) await replaceFile(disk, copyPath(path, place), encode(kind, newest));
  }
  return newest.payload;
}

/** Both copies are durable when this resolves. */
export async function writeTwin(
  disk: Disk,
  path: string,
  kind: TwinKind,
  payload: Uint8Array,
): Promise<void> {
  const before = newestOf(await readCopies(disk, path, kind));
  const copy = { sequence: (before?.sequence ?? 0) + 1, payload: Buffer.from(payload) };
  for (const place of [0, 1]) {
    await replaceFile(disk, copyPath(path, place), encode(kind, copy));
  }
}

type Found = Copy | "missing" | "bad";

async function readCopies(disk: Disk, path: string, kind: TwinKind): Promise<Found[]> {
  return [await readCopy(disk, path, kind, 0), await readCopy(disk, path, kind, 1)];
}

function newestOf(found: readonly Found[]): Copy | undefined {
  const whole = found.filter((copy): copy is Copy => typeof copy === "object");
  return whole.sort((one, other) => other.sequence - one.sequence)[0];
}

function copyPath(path: string, place: number): string {
  return `${path}.${place === 0 ? "a" : "b"}`;
}

function encode(kind: TwinKind, copy: Copy): Buffer {
  const writer = new ByteWriter().raw(Buffer.from(kind.magic, "latin1")).u16(kind.version);
  writer.u64(copy.sequence).raw(copy.payload);
  return writer.u32(crc32(writer.finish())).finish();
}

async function readCopy(disk: Disk, path: string, kind: TwinKind, place: number): Promise<Found> {
  let bytes: Buffer;
  try {
    bytes = await readFile(disk, copyPath(path, place));
  } catch (error) {
    if (isCodedError(error, "DISK_NOT_FOUND")) return "missing";
    // A sector that cannot be read is as bad as one that reads wrong: the other copy decides.
    if (isCodedError(error, "DISK_IO_FAILED")) return "bad";
    throw error;
  }
  if (bytes.length < headBytes + crcBytes) return "bad";
  const body = bytes.subarray(0, bytes.length - crcBytes);
  const isWhole =
    body.toString("latin1", 0, magicBytes) === kind.magic &&
    crc32(body) === bytes.readUInt32BE(body.length);
  if (!isWhole) return "bad";
  const reader = new ByteReader(body, magicBytes);
  const version = reader.u16();
  if (version > kind.version) {
    throw raftErrors.dirNewer({ path, version, known: kind.version });
  }
  return { sequence: reader.u64(), payload: reader.raw(reader.remaining) };
}
