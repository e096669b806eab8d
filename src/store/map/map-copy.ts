// The second copy of a map shard's rows: a file beside the store, written anew before each checkpoint
// while the rows are few enough. Sessions live in these rows; a rotten block of the store would take
// dozens of them along.
//
// The copy holds at least what was applied at its index. It is read only when the store was damaged.

import {
  beginCopy,
  type CopyPlace,
  readCopy,
  readRows,
  removeCopy,
  writeCopy,
} from "../copy-file.ts";
import type { DurableKv } from "../durable-kv.ts";
import { decodeMapValue } from "./value.ts";

/** Bytes of rows of which there is a copy: above it a checkpoint would cost too much. */
export const mapCopyBytesMax = 16 * 1024 * 1024;

/** Everything applied up to here is in the copy. */
export type MapCopyPoint = { readonly index: number; readonly timeUs: number };

type MapCopy = MapCopyPoint & { readonly rows: ReadonlyMap<string, Buffer> };

const fileName = "map.copy";
/** Rows of one batch. */
const batchRowsMax = 1_000;

/** One that would be too large goes. */
export async function writeMapCopy(
  place: CopyPlace,
  kv: DurableKv,
  { index, timeUs }: MapCopyPoint,
): Promise<void> {
  const rows: Array<readonly [key: Buffer, value: Buffer]> = [];
  let sizeBytes = 0;
  await kv.scan({}, (key, value) => {
    sizeBytes += key.length + value.length;
    if (sizeBytes <= mapCopyBytesMax) rows.push([key, value]);
  });
  if (sizeBytes > mapCopyBytesMax) return removeCopy(place, fileName);
  const body = beginCopy().u64(index).u64(timeUs).varint(rows.length);
  for (const [key, value] of rows) body.bytes(key).bytes(value);
  return writeCopy(place, fileName, body);
}

/** "missing" where none was ever written, or the rows are too many. */
export function readMapCopy(place: CopyPlace): Promise<MapCopy | "missing" | "damaged"> {
  return readCopy(place, fileName, (reader) => {
    const [index, timeUs] = [reader.u64(), reader.u64()];
    return { index, timeUs, rows: readRows(reader) };
  });
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
