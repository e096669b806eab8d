// Entries of a LevelDB, as they lie in its files: a key, the sequence number of its write, and a value
// or none for a deletion. Of several entries of a key the one with the highest number counts.

import type { LevelLogRecord } from "./log-file.ts";
import { Varints } from "./varints.ts";

export type LevelEntry = {
  readonly key: Buffer;
  readonly sequence: number;
  /** Undefined: deleted. */
  readonly value: Buffer | undefined;
};

const batchHeaderBytes = 12;
const typeDeletion = 0;
const typeValue = 1;

/**
 * The entries of a batch in a write log; those that touch suspect bytes are left out.
 * `isWhole` is false when some were left out, or when the batch does not add up: then only what
 * stands before the first suspect byte is taken.
 */
export function entriesOfBatch(record: LevelLogRecord): {
  entries: LevelEntry[];
  isWhole: boolean;
} {
  const { bytes, suspects } = record;
  const touches = (from: number, to: number): boolean =>
    suspects.some((suspect) => from < suspect.to && suspect.from < to);
  const nothing = { entries: [], isWhole: false };
  if (bytes.length < batchHeaderBytes || touches(0, batchHeaderBytes)) return nothing;
  const first = Number(bytes.readBigUInt64LE(0));
  const count = bytes.readUInt32LE(8);
  const reader = new Varints(bytes, batchHeaderBytes);
  const found: Array<{ entry: LevelEntry; from: number; to: number }> = [];
  let at = 0;
  for (; at < count && !reader.isAtEnd; at++) {
    const from = reader.offset;
    const entry = readOperation(reader, first + at);
    if (entry === undefined) break;
    found.push({ entry, from, to: reader.offset });
  }
  const addsUp = at === count && reader.isAtEnd;
  const suspectFrom = suspects[0]?.from ?? bytes.length;
  const good = found.filter(({ from, to }) => (addsUp ? !touches(from, to) : to <= suspectFrom));
  return { entries: good.map(({ entry }) => entry), isWhole: addsUp && suspects.length === 0 };
}

function readOperation(reader: Varints, sequence: number): LevelEntry | undefined {
  const type = reader.byte();
  const key = reader.string();
  if (key === undefined) return undefined;
  if (type === typeDeletion) return { key, sequence, value: undefined };
  const value = type === typeValue ? reader.string() : undefined;
  return value === undefined ? undefined : { key, sequence, value };
}

/** An entry of a table: its key ends in 8 bytes of sequence number and type. */
export function entryOfTable(internalKey: Buffer, value: Buffer): LevelEntry | undefined {
  const size = internalKey.length - 8;
  if (size < 0) return undefined;
  const key = internalKey.subarray(0, size);
  const tail = internalKey.readBigUInt64LE(size);
  const sequence = Number(tail >> 8n);
  const type = Number(tail & 0xffn);
  if (type === typeDeletion) return { key, sequence, value: undefined };
  return type === typeValue ? { key, sequence, value } : undefined;
}
