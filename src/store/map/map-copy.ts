// The second copy of a map shard's rows: files beside the store, written before each checkpoint.
// Sessions live in these rows; a rotten block of the store would take dozens of them along.
//
// Few rows are one file, written anew each time. Many are parts: all rows once, then what changed up
// to each checkpoint, until the changes are as large as the rows and all are written once more. The
// file `map.copy` names the parts that count; parts that it does not name are removed.
// The copy holds at least what was applied at its index. It is read only when the store was damaged.

import { type ByteReader, joinPath, toError } from "../../base/index.ts";
import {
  beginCopy,
  type CopyPlace,
  readCopy,
  readRows,
  removeCopy,
  writeCopy,
} from "../copy-file.ts";
import type { DurableKv } from "../durable-kv.ts";
import { encodeMapKey } from "./keys.ts";
import { decodeMapValue } from "./value.ts";

export type MapCopySizes = {
  /** Bytes of rows that are one file. */
  readonly wholeBytesMax: number;
  /** Bytes of rows of one part of all rows. */
  readonly partBytes: number;
  /** Bytes of rows of which there is a copy: mending holds them in memory. */
  readonly bytesMax: number;
};

const mib = 1024 * 1024;
export const mapCopySizesDefault: MapCopySizes = {
  wholeBytesMax: 16 * mib,
  partBytes: 4 * mib,
  bytesMax: 1024 * mib,
};
/** Keys changed since the last copy that are remembered; beyond it all rows are written. */
const changedKeysMax = 100_000;
/** Parts of changes between two copies of all rows. */
const changePartsMax = 240;

/** Everything applied up to here is in the copy. */
export type MapCopyPoint = { readonly index: number; readonly timeUs: number };

/** By key, as latin1; undefined for a row that was deleted. */
export type MapCopyRows = ReadonlyMap<string, Buffer | undefined>;
export type MapCopy = MapCopyPoint & { readonly rows: MapCopyRows };

type Head = MapCopyPoint &
  ({ readonly rows: MapCopyRows } | { readonly group: number; readonly parts: number });

const headName = "map.copy";
/** Rows of one batch. */
const batchRowsMax = 1_000;
const partPattern = /^map\.copy-(\d+)-(\d+)$/;
const partName = (group: number, part: number): string => `${headName}-${group}-${part}`;

type Row = readonly [key: Buffer, value: Buffer];

/** Writes the copy of one shard. One write at a time. */
export class MapCopier {
  readonly #place: CopyPlace;
  readonly #sizes: MapCopySizes;
  /** Since the last copy; undefined when there were too many, or none was written by this process. */
  #changed: Set<string> | undefined;
  #group = 0;
  #parts = 0;
  #changeParts = 0;
  /** Of all rows, and of the parts behind them. */
  #rowsBytes = 0;
  #changesBytes = 0;

  constructor(place: CopyPlace, sizes: MapCopySizes = mapCopySizesDefault) {
    this.#place = place;
    this.#sizes = sizes;
  }

  changed(key: string): void {
    if (this.#changed === undefined) return;
    this.#changed.add(key);
    if (this.#changed.size > changedKeysMax) this.#changed = undefined;
  }

  /** The next copy is of all rows: what the last ones say of deleted rows goes. */
  renew(): void {
    this.#changed = undefined;
  }

  /** Before the checkpoint of `point`. If it cannot be written, the older copy stands: logged. */
  async write(kv: DurableKv, point: MapCopyPoint): Promise<void> {
    const changed = this.#changed;
    this.#changed = new Set();
    const wantsAll =
      changed === undefined ||
      this.#parts === 0 ||
      this.#changeParts >= changePartsMax ||
      this.#changesBytes >= this.#rowsBytes;
    const isWritten = wantsAll
      ? await this.#writeAll(kv, point)
      : await this.#writeChanges(kv, changed, point);
    // What was taken of the changes is in no copy: all rows are.
    if (!isWritten) this.#changed = undefined;
  }

  async #writeAll(kv: DurableKv, point: MapCopyPoint): Promise<boolean> {
    const group = this.#group + 1;
    let rows: Row[] = [];
    let [rowsBytes, waitingBytes, parts] = [0, 0, 0];
    for await (const row of rowsOf(kv)) {
      rows.push(row);
      const rowBytes = row[0].length + row[1].length;
      rowsBytes += rowBytes;
      waitingBytes += rowBytes;
      if (rowsBytes > this.#sizes.bytesMax) {
        await this.#giveUp();
        return false;
      }
      if (rowsBytes <= this.#sizes.wholeBytesMax || waitingBytes < this.#sizes.partBytes) continue;
      if (!(await this.#writePart(group, parts++, rows))) return false;
      rows = [];
      waitingBytes = 0;
    }
    if (parts > 0 && rows.length > 0) {
      if (!(await this.#writePart(group, parts++, rows))) return false;
    }
    this.#rowsBytes = rowsBytes;
    this.#changesBytes = 0;
    this.#changeParts = 0;
    this.#group = group;
    this.#parts = parts;
    if (!(await this.#writeHead(point, rows))) return false;
    await this.#removeOthers();
    return true;
  }

  async #writeChanges(
    kv: DurableKv,
    changed: ReadonlySet<string>,
    point: MapCopyPoint,
  ): Promise<boolean> {
    if (changed.size > 0) {
      const rows: Array<readonly [Buffer, Buffer | undefined]> = [];
      for (const key of changed) {
        const name = encodeMapKey(key);
        const value = await kv.get(name);
        rows.push([name, value]);
        this.#changesBytes += name.length + (value?.length ?? 0);
      }
      // Where all rows have become too many for a copy is found by counting them.
      if (this.#rowsBytes + this.#changesBytes > this.#sizes.bytesMax) {
        return this.#writeAll(kv, point);
      }
      if (!(await this.#writePart(this.#group, this.#parts, rows))) return false;
      this.#parts++;
      this.#changeParts++;
    }
    return this.#writeHead(point, []);
  }

  async #writePart(
    group: number,
    part: number,
    rows: ReadonlyArray<readonly [Buffer, Buffer | undefined]>,
  ): Promise<boolean> {
    const body = beginCopy().varint(rows.length);
    for (const [key, value] of rows) {
      body.bytes(key).u8(value === undefined ? 0 : 1);
      if (value !== undefined) body.bytes(value);
    }
    return writeCopy(this.#place, partName(group, part), body);
  }

  /** `rows` are written where there are no parts. */
  async #writeHead({ index, timeUs }: MapCopyPoint, rows: readonly Row[]): Promise<boolean> {
    const body = beginCopy().u64(index).u64(timeUs);
    if (this.#parts > 0) {
      body.varint(0).varint(this.#group).varint(this.#parts);
    } else {
      body.varint(rows.length);
      for (const [key, value] of rows) body.bytes(key).bytes(value);
    }
    return writeCopy(this.#place, headName, body);
  }

  async #giveUp(): Promise<void> {
    this.#parts = 0;
    await removeCopy(this.#place, headName);
    await this.#removeOthers();
    const fields = { path: this.#place.dir, limitBytes: this.#sizes.bytesMax };
    this.#place.logger.warn("store.map_too_large_to_copy", fields);
  }

  /** Parts of older groups, of this process or others. */
  async #removeOthers(): Promise<void> {
    const { disk, dir } = this.#place;
    for (const { name } of await disk.list(dir)) {
      const match = partPattern.exec(name);
      if (match === null) continue;
      const isNamed = Number(match[1]) === this.#group && Number(match[2]) < this.#parts;
      if (isNamed) continue;
      // One that stays is removed behind the next copy of all rows.
      await disk.remove(joinPath(dir, name)).catch((error: unknown) => {
        this.#place.logger.warn("store.copy_failed", { name, reason: toError(error).message });
      });
    }
  }
}

async function* rowsOf(kv: DurableKv): AsyncGenerator<Row> {
  const cursor = await kv.cursor({});
  try {
    for (;;) {
      const entries = await cursor.next(batchRowsMax);
      if (entries.length === 0) return;
      yield* entries;
    }
  } finally {
    await cursor.close();
  }
}

/** "missing" where none was ever written, or the rows are too many. A damaged part ends the copy. */
export async function readMapCopy(place: CopyPlace): Promise<MapCopy | "missing" | "damaged"> {
  const head = await readMapCopyHead(place);
  if (typeof head === "string" || "rows" in head) return head;
  const rows = new Map<string, Buffer | undefined>();
  for (let part = 0; part < head.parts; part++) {
    const found = await readCopy(place, partName(head.group, part), readPart);
    if (typeof found === "string") return "damaged";
    for (const [key, value] of found) rows.set(key, value);
  }
  return { index: head.index, timeUs: head.timeUs, rows };
}

/** Only whether there is one, and how far it goes: parts are read when they are needed. */
export function readMapCopyHead(place: CopyPlace): Promise<Head | "missing" | "damaged"> {
  return readCopy(place, headName, readHead);
}

function readHead(reader: ByteReader): Head {
  const point = { index: reader.u64(), timeUs: reader.u64() };
  const rows = readRows(reader);
  // Parts stand behind a count of no rows.
  if (rows.size > 0 || reader.remaining === 0) return { ...point, rows };
  return { ...point, group: reader.varint(), parts: reader.varint() };
}

function readPart(reader: ByteReader): MapCopyRows {
  const rows = new Map<string, Buffer | undefined>();
  for (let left = reader.varint(); left > 0; left--) {
    const key = reader.bytes().toString("latin1");
    rows.set(key, reader.u8() === 1 ? reader.bytes() : undefined);
  }
  return rows;
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
    const isGone = copy.rows.get(name) === undefined;
    if (isExact && isGone && timeUs <= copy.timeUs) changes.push([key, undefined]);
  });
  let rowsRestored = 0;
  for (const [name, value] of copy.rows) {
    if (value === undefined) continue;
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
