// Reads a file in LevelDB's log format: write logs and manifests. Finds every record that is whole,
// and says where the first one is that is not.
//
// The file is cut into blocks of 32 KiB; a record lies in one of them or in fragments over several,
// each with a masked CRC-32C of type and bytes, a length and a type. LevelDB itself gives up the
// rest of a block at a bad checksum; here the next good fragment is looked for. A record with a bad
// fragment is kept where its place and size can be told from its neighbours: its bytes are marked
// as suspect, and the reader of the record decides.

import { crc32c, masked } from "./crc32c.ts";

const blockBytes = 32 * 1024;
const headerBytes = 7;
const typeFull = 1;
const typeFirst = 2; // 3: in the middle
const typeLast = 4;

/** Part of a record whose checksum is bad. */
export type Suspect = { readonly from: number; readonly to: number };

export type LevelLogRecord = {
  readonly bytes: Buffer;
  readonly suspects: readonly Suspect[];
  /** Offset in the file behind the record. */
  readonly endOffset: number;
};

export type LevelLog = {
  readonly records: readonly LevelLogRecord[];
  /** Where the first bad bytes are; undefined when all is well up to a torn end. */
  readonly badOffset: number | undefined;
  /** End of the last whole record before `badOffset`. */
  readonly goodBytes: number;
};

type Fragment = {
  readonly type: number;
  readonly bytes: Buffer;
  readonly isGood: boolean;
  readonly endOffset: number;
};

export function readLevelLog(file: Buffer): LevelLog {
  const records: LevelLogRecord[] = [];
  let badOffset: number | undefined;
  let goodBytes = 0;
  const bad = (offset: number): void => {
    badOffset ??= offset;
  };
  let parts: Fragment[] = [];
  for (const fragment of fragmentsOf(file, bad)) {
    const { type } = fragment;
    const begins = type === typeFull || type === typeFirst;
    if (begins && parts.length > 0) bad(fragment.endOffset - fragment.bytes.length);
    if (begins) parts = [];
    else if (parts.length === 0) {
      bad(fragment.endOffset - fragment.bytes.length);
      continue;
    }
    parts.push(fragment);
    if (type !== typeFull && type !== typeLast) continue;
    const record = join(parts);
    parts = [];
    records.push(record);
    if (badOffset === undefined) goodBytes = record.endOffset;
  }
  return { records, badOffset, goodBytes };
}

function join(parts: readonly Fragment[]): LevelLogRecord {
  const suspects: Suspect[] = [];
  let at = 0;
  for (const { bytes, isGood } of parts) {
    if (!isGood) suspects.push({ from: at, to: at + bytes.length });
    at += bytes.length;
  }
  const bytes = Buffer.concat(parts.map((part) => part.bytes));
  return { bytes, suspects, endOffset: (parts.at(-1) as Fragment).endOffset };
}

function* fragmentsOf(file: Buffer, bad: (offset: number) => void): Generator<Fragment> {
  for (let start = 0; start < file.length; start += blockBytes) {
    const end = Math.min(file.length, start + blockBytes);
    const isLast = end === file.length;
    let at = start;
    while (at + headerBytes <= end) {
      const fragment = fragmentAt(file, at, end);
      if (fragment?.isGood === true) {
        yield fragment;
        at = fragment.endOffset;
        continue;
      }
      // Zeros are space that was never written; what the end of the file cuts was never finished.
      if (isLast && fragment === undefined && isTorn(file, at, end)) break;
      bad(at);
      const next = nextGood(file, at + 1, end);
      // A bad fragment that ends where a good one or the next block begins is in its place.
      if (fragment !== undefined && fragment.endOffset === (next ?? end)) yield fragment;
      if (next === undefined) break;
      at = next;
    }
  }
}

function fragmentAt(file: Buffer, at: number, end: number): Fragment | undefined {
  const size = file.readUInt16LE(at + 4);
  const type = file[at + 6] as number;
  const endOffset = at + headerBytes + size;
  if (type < typeFull || type > typeLast || endOffset > end) return undefined;
  const isGood = file.readUInt32LE(at) === masked(crc32c(file, at + 6, endOffset));
  return { type, bytes: file.subarray(at + headerBytes, endOffset), isGood, endOffset };
}

function isTorn(file: Buffer, at: number, end: number): boolean {
  const type = file[at + 6] as number;
  const size = file.readUInt16LE(at + 4);
  if (type === 0 && size === 0) return true;
  return type >= typeFull && type <= typeLast && at + headerBytes + size > end;
}

function nextGood(file: Buffer, from: number, end: number): number | undefined {
  for (let at = from; at + headerBytes <= end; at++) {
    if (fragmentAt(file, at, end)?.isGood === true) return at;
  }
  return undefined;
}
