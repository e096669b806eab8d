// Reads a LevelDB table (.ldb) and checks every checksum in it. LevelDB itself does not, as this
// project opens it: a rotten block of a table could hide keys without a word.
//
// A table is data blocks, filter and index blocks, and a footer that says where the index is. Each
// block has a compression byte and a masked CRC-32C behind it. Where index or footer are bad, data
// blocks are found by their checksums, one behind the other.

import { crc32c, endOfChecked, masked } from "./crc32c.ts";
import { entryOfTable, type LevelEntry } from "./entries.ts";
import { unsnap } from "./snappy.ts";
import { Varints } from "./varints.ts";

const footerBytes = 48;
const magic = 0xdb4775248b80fb57n;
const trailerBytes = 5;
const compressionNone = 0;
const compressionSnappy = 1;

type Handle = { readonly offset: number; readonly sizeBytes: number };

export type LevelTable = {
  readonly entries: readonly LevelEntry[];
  /** What is wrong with it; undefined when every checksum is right. */
  readonly fault: string | undefined;
};

export function readTable(file: Buffer): LevelTable {
  const handles = dataHandles(file);
  if (handles === undefined) return { entries: scanBlocks(file), fault: "its index is damaged" };
  const entries: LevelEntry[] = [];
  let fault = filterFault(file);
  for (const handle of handles) {
    const found = entriesOf(file, handle);
    if (found === undefined) fault = `its block at ${handle.offset} is damaged`;
    else entries.push(...found);
  }
  return { entries, fault };
}

/** Like `readTable`, without the entries: undefined when every checksum is right. */
export function tableFault(file: Buffer): string | undefined {
  const handles = dataHandles(file);
  if (handles === undefined) return "its index is damaged";
  for (const handle of handles) {
    if (!isChecked(file, handle)) return `its block at ${handle.offset} is damaged`;
  }
  return filterFault(file);
}

/** Of a table's index and footer alone: what LevelDB needs to open it. */
export async function tableIndexFault(
  read: (position: number, sizeBytes: number) => Promise<Buffer>,
  sizeBytes: number,
): Promise<string | undefined> {
  const fault = "its index is damaged";
  const start = sizeBytes - footerBytes;
  if (start < 0) return fault;
  const footer = await read(start, footerBytes);
  const place = footer.length < footerBytes ? undefined : footerHandle(footer, "index");
  if (place === undefined || place.offset + place.sizeBytes + trailerBytes > start) return fault;
  const block = await read(place.offset, place.sizeBytes + trailerBytes);
  return isChecked(block, { offset: 0, sizeBytes: place.sizeBytes }) ? undefined : fault;
}

function dataHandles(file: Buffer): Handle[] | undefined {
  const index = footerHandle(file, "index");
  const block = index === undefined ? undefined : readBlock(file, index);
  const rows = block === undefined ? undefined : rowsOf(block);
  if (rows === undefined) return undefined;
  const handles: Handle[] = [];
  for (const [, value] of rows) {
    const handle = readHandle(new Varints(value));
    if (handle === undefined) return undefined;
    handles.push(handle);
  }
  return handles;
}

function footerHandle(file: Buffer, which: "filters" | "index"): Handle | undefined {
  const start = file.length - footerBytes;
  if (start < 0 || file.readBigUInt64LE(file.length - 8) !== magic) return undefined;
  const reader = new Varints(file, start);
  const filters = readHandle(reader);
  return which === "filters" ? filters : readHandle(reader);
}

/** A rotten filter makes LevelDB say of a key that is there that it is not. */
function filterFault(file: Buffer): string | undefined {
  const place = footerHandle(file, "filters");
  const block = place === undefined ? undefined : readBlock(file, place);
  const rows = block === undefined ? undefined : rowsOf(block);
  if (rows === undefined) return "its list of filters is damaged";
  for (const [, value] of rows) {
    const handle = readHandle(new Varints(value));
    if (handle === undefined || !isChecked(file, handle)) return "its filter is damaged";
  }
  return undefined;
}

function readHandle(reader: Varints): Handle | undefined {
  const [offset, sizeBytes] = [reader.next(), reader.next()];
  return offset === undefined || sizeBytes === undefined ? undefined : { offset, sizeBytes };
}

function isChecked(file: Buffer, { offset, sizeBytes }: Handle): boolean {
  const end = offset + sizeBytes + 1;
  if (end + 4 > file.length) return false;
  return file.readUInt32LE(end) === masked(crc32c(file, offset, end));
}

function readBlock(file: Buffer, handle: Handle): Buffer | undefined {
  if (!isChecked(file, handle)) return undefined;
  const { offset, sizeBytes } = handle;
  const bytes = file.subarray(offset, offset + sizeBytes);
  const compression = file[offset + sizeBytes];
  if (compression === compressionNone) return bytes;
  return compression === compressionSnappy ? unsnap(bytes) : undefined;
}

function entriesOf(file: Buffer, handle: Handle): LevelEntry[] | undefined {
  const block = readBlock(file, handle);
  const rows = block === undefined ? undefined : rowsOf(block);
  if (rows === undefined) return undefined;
  const entries: LevelEntry[] = [];
  for (const [key, value] of rows) {
    const entry = entryOfTable(key, value);
    if (entry === undefined) return undefined;
    entries.push(entry);
  }
  return entries;
}

/** Rows of a block: each key says how much of the one before it begins with. */
function rowsOf(block: Buffer): Array<[key: Buffer, value: Buffer]> | undefined {
  if (block.length < 4) return undefined;
  const restarts = block.readUInt32LE(block.length - 4);
  const end = block.length - 4 - 4 * restarts;
  if (end < 0) return undefined;
  const reader = new Varints(block.subarray(0, end));
  const rows: Array<[Buffer, Buffer]> = [];
  let before: Buffer = Buffer.alloc(0);
  while (!reader.isAtEnd) {
    const [shared, own, size] = [reader.next(), reader.next(), reader.next()];
    if (shared === undefined || own === undefined || size === undefined) return undefined;
    const rest = reader.take(own);
    const value = reader.take(size);
    if (rest === undefined || value === undefined || shared > before.length) return undefined;
    before = Buffer.concat([before.subarray(0, shared), rest]);
    rows.push([before, value]);
  }
  return rows;
}

/** Data blocks come first: entries up to the first block that is none, or is damaged. */
function scanBlocks(file: Buffer): LevelEntry[] {
  const entries: LevelEntry[] = [];
  for (let offset = 0; ; ) {
    const end = endOfChecked(file, offset);
    if (end === undefined) return entries;
    const found = entriesOf(file, { offset, sizeBytes: end - 1 - offset });
    if (found === undefined) return entries;
    entries.push(...found);
    offset = end + trailerBytes - 1;
  }
}
