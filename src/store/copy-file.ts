// Second copies of rows that a shard cannot do without: small files beside its stores, replaced as a
// whole and ended by a CRC-32 (docs/formats/shard-store.md, docs/formats/map.md).
//
// A copy that cannot be written is no failure: the older one stands until the next checkpoint. One that
// is damaged is set aside and said; whoever asked has the store itself.

import {
  ByteReader,
  ByteWriter,
  crc32,
  type Disk,
  isCodedError,
  joinPath,
  type Logger,
  readFile,
  replaceFile,
  toError,
} from "../base/index.ts";

export type CopyPlace = {
  /** Folder of the shard. */
  readonly dir: string;
  readonly quarantineDir: string;
  readonly disk: Disk;
  readonly logger: Logger;
};

const version = 1;
const crcBytes = 4;

/** The body of a copy, with its version; the CRC comes when it is written. */
export function beginCopy(): ByteWriter {
  return new ByteWriter(4096).u8(version);
}

/** False when it could not be written, which is logged. */
export async function writeCopy(
  { dir, disk, logger }: CopyPlace,
  fileName: string,
  body: ByteWriter,
): Promise<boolean> {
  const path = joinPath(dir, fileName);
  body.u32(crc32(body.finish()));
  try {
    await replaceFile(disk, path, body.finish());
    return true;
  } catch (error) {
    logger.warn("store.copy_failed", { path, reason: toError(error).message });
    return false;
  }
}

export async function removeCopy({ dir, disk, logger }: CopyPlace, fileName: string) {
  const path = joinPath(dir, fileName);
  try {
    await disk.remove(path);
  } catch (error) {
    logger.warn("store.copy_failed", { path, reason: toError(error).message });
  }
}

/** `read` gets what stands behind the version. "damaged" has been set aside already. */
export async function readCopy<T>(
  { dir, disk, quarantineDir, logger }: CopyPlace,
  fileName: string,
  read: (reader: ByteReader) => T,
): Promise<T | "missing" | "damaged"> {
  const path = joinPath(dir, fileName);
  if (!(await disk.exists(path))) return "missing";
  try {
    const bytes = await readFile(disk, path);
    const copy = decodeCopy(bytes, read);
    if (copy !== undefined) return copy;
    const name = [...dir.split("/").slice(-2), fileName].join("-");
    const quarantinePath = joinPath(quarantineDir, name);
    await disk.makeDir(quarantineDir);
    await replaceFile(disk, quarantinePath, bytes);
    logger.error("store.copy_damaged", { path, quarantinePath });
  } catch (error) {
    // Not even readable: the next checkpoint writes it anew.
    logger.error("store.copy_damaged", { path, reason: toError(error).message });
  }
  return "damaged";
}

/** Undefined for anything but a whole copy of this version. */
function decodeCopy<T>(bytes: Buffer, read: (reader: ByteReader) => T): T | undefined {
  const body = bytes.subarray(0, Math.max(0, bytes.length - crcBytes));
  if (bytes.length <= crcBytes || crc32(body) !== bytes.readUInt32BE(body.length)) return undefined;
  try {
    const reader = new ByteReader(body);
    return reader.u8() === version ? read(reader) : undefined;
  } catch (error) {
    if (isCodedError(error) && error.code.startsWith("BYTES_")) return undefined;
    throw error;
  }
}

/** By key, as latin1. */
export function readRows(reader: ByteReader): Map<string, Buffer> {
  const rows = new Map<string, Buffer>();
  for (let left = reader.varint(); left > 0; left--) {
    const key = reader.bytes().toString("latin1");
    rows.set(key, reader.bytes());
  }
  return rows;
}
