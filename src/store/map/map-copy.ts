// The second copy of a map shard's rows: a file beside the store, written anew before each checkpoint
// while the rows are few enough. Sessions live in these rows; a rotten block of the store would take
// dozens of them along.
//
// The copy holds at least what was applied at its index. It is read only when the store was damaged.

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
} from "../../base/index.ts";
import type { DurableKv } from "../durable-kv.ts";
import { decodeMapValue } from "./value.ts";

/** Bytes of rows of which there is a copy: above it a checkpoint would cost too much. */
export const mapCopyBytesMax = 16 * 1024 * 1024;

export type MapCopyPlace = {
  /** Folder of the shard. */
  readonly dir: string;
  readonly quarantineDir: string;
  readonly disk: Disk;
  readonly logger: Logger;
};

/** Everything applied up to here is in the copy. */
export type MapCopyPoint = { readonly index: number; readonly timeUs: number };

type MapCopy = MapCopyPoint & { readonly rows: ReadonlyMap<string, Buffer> };

const fileName = "map.copy";
const version = 1;
const crcBytes = 4;
/** Rows of one batch. */
const batchRowsMax = 1_000;

/** A copy that cannot be written is written by the next checkpoint; one that is too large goes. */
export async function writeMapCopy(
  place: MapCopyPlace,
  kv: DurableKv,
  point: MapCopyPoint,
): Promise<void> {
  const { dir, disk, logger } = place;
  const path = joinPath(dir, fileName);
  const rows: Array<readonly [key: Buffer, value: Buffer]> = [];
  let sizeBytes = 0;
  await kv.scan({}, (key, value) => {
    sizeBytes += key.length + value.length;
    if (sizeBytes <= mapCopyBytesMax) rows.push([key, value]);
  });
  try {
    if (sizeBytes > mapCopyBytesMax) {
      await disk.remove(path);
      return;
    }
    await replaceFile(disk, path, encodeCopy(point, rows));
  } catch (error) {
    logger.warn("store.copy_failed", { path, reason: toError(error).message });
  }
}

function encodeCopy(
  { index, timeUs }: MapCopyPoint,
  rows: ReadonlyArray<readonly [key: Buffer, value: Buffer]>,
): Buffer {
  const writer = new ByteWriter(4096).u8(version).u64(index).u64(timeUs).varint(rows.length);
  for (const [key, value] of rows) writer.bytes(key).bytes(value);
  writer.u32(crc32(writer.finish()));
  return writer.finish();
}

function decodeCopy(bytes: Buffer): MapCopy | undefined {
  const body = bytes.subarray(0, Math.max(0, bytes.length - crcBytes));
  if (bytes.length <= crcBytes || crc32(body) !== bytes.readUInt32BE(body.length)) return undefined;
  try {
    const reader = new ByteReader(body);
    if (reader.u8() !== version) return undefined;
    const point = { index: reader.u64(), timeUs: reader.u64() };
    const rows = new Map<string, Buffer>();
    for (let left = reader.varint(); left > 0; left--) {
      const key = reader.bytes().toString("latin1");
      rows.set(key, reader.bytes());
    }
    return { ...point, rows };
  } catch (error) {
    if (isCodedError(error) && error.code.startsWith("BYTES_")) return undefined;
    throw error;
  }
}

/** "missing" where none was ever written, or the rows are too many. */
export async function readMapCopy(place: MapCopyPlace): Promise<MapCopy | "missing" | "damaged"> {
  const { dir, disk, quarantineDir, logger } = place;
  const path = joinPath(dir, fileName);
  if (!(await disk.exists(path))) return "missing";
  try {
    const bytes = await readFile(disk, path);
    const copy = decodeCopy(bytes);
    if (copy !== undefined) return copy;
    const name = [...dir.split("/").slice(-2), fileName].join("-");
    const quarantinePath = joinPath(quarantineDir, name);
    await disk.makeDir(quarantineDir);
    await replaceFile(disk, quarantinePath, bytes);
    logger.error("store.copy_damaged", { path, quarantinePath });
  } catch (error) {
    logger.error("store.copy_damaged", { path, reason: toError(error).message });
  }
  return "damaged";
}

/**
 * Brings into a store that has lost rows what the copy has: newer rows win. `isExact`: the copy is
 * as new as the checkpoint, so that a row that it does not have had been deleted.
 */
export async function restoreMapCopy(
  kv: DurableKv,
  copy: MapCopy,
  isExact: boolean,
): Promise<{ readonly rowsRestored: number }> {
  const changes: Array<readonly [key: Buffer, value: Buffer | undefined]> = [];
  const there = new Map<string, number>();
  await kv.scan({}, (key, value) => {
    const name = key.toString("latin1");
    const { timeUs } = decodeMapValue(value);
    there.set(name, timeUs);
    if (isExact && !copy.rows.has(name) && timeUs <= copy.timeUs) changes.push([key, undefined]);
  });
  let rowsRestored = 0;
  for (const [name, value] of copy.rows) {
    const known = there.get(name);
    if (known !== undefined && known >= decodeMapValue(value).timeUs) continue;
    rowsRestored++;
    changes.push([Buffer.from(name, "latin1"), value]);
  }
  for (let at = 0; at < changes.length; at += batchRowsMax) {
    await kv.write((batch) => {
      for (const [key, value] of changes.slice(at, at + batchRowsMax)) {
        if (value === undefined) batch.delete(key);
        else batch.put(key, value);
      }
    });
  }
  await kv.sync();
  return { rowsRestored };
}
