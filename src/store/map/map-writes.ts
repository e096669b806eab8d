// What a map shard's writes look like in an entry, and what a transaction's reads are judged by.

import type { ByteWriter } from "../../base/index.ts";
import { parseTopicFilter } from "../../topic/index.ts";
import type { MapWrite } from "../api.ts";
import type { ReadRecord } from "../core/conflicts.ts";
import type { Commit } from "./transaction.ts";

/** Keys are longer than topics: only their wildcards matter here. */
const branchLimits = { levelsMax: 65_535, controlCharacters: "allow" } as const;

/** Whole values are read, whatever their time. A prefix is covered by the filter of its branch. */
export function readRecords(commit: Commit): ReadRecord[] {
  const always = { fromUs: 0, toUs: Number.MAX_SAFE_INTEGER };
  const keys = commit.reads.keys.map((target) => ({ target, ...always }));
  const branches = commit.reads.prefixes.map((prefix) => {
    const branch = prefix.slice(0, prefix.lastIndexOf("/") + 1);
    return { target: parseTopicFilter(`${branch}#`, branchLimits), ...always };
  });
  return [...keys, ...branches];
}

const utf8BytesMax = 3;
/** Lengths and marks of a write. */
const writeOverheadBytes = 16;

/** At least what `encodeWrites` writes. */
export function writesBytesMax(writes: readonly MapWrite[]): number {
  let sizeBytes = writeOverheadBytes;
  for (const { key, value } of writes) {
    sizeBytes += writeOverheadBytes + key.length * utf8BytesMax + (value?.length ?? 0);
  }
  return sizeBytes;
}

export function encodeWrites(writer: ByteWriter, writes: readonly MapWrite[]): void {
  writer.varint(writes.length);
  for (const { key, value } of writes) {
    writer.string(key);
    if (value === undefined) writer.u8(0);
    else writer.u8(1).bytes(value);
  }
}
