// Reads a LevelDB's manifest: which tables are live, and which write logs count.

import type { LevelLog } from "./log-file.ts";
import { Varints } from "./varints.ts";

export type LevelState = {
  /** Live tables: number and size in bytes. */
  readonly tables: ReadonlyMap<number, number>;
  /** Every table that it speaks of, removed ones included. */
  readonly mentioned: ReadonlySet<number>;
  /** Write logs with this number or a higher one are not in tables yet. */
  readonly logNumber: number;
};

/** Numbers of the fields of an edit, from LevelDB's format. */
const tag = {
  comparator: 1,
  logNumber: 2,
  nextFile: 3,
  lastSequence: 4,
  compactPointer: 5,
  deletedFile: 6,
  newFile: 7,
  prevLogNumber: 9,
} as const;

/** Undefined when an edit does not read as one, or has bytes that fail their checksum. */
export function readManifest(log: LevelLog): LevelState | undefined {
  const tables = new Map<number, number>();
  const mentioned = new Set<number>();
  let logNumber: number | undefined;
  for (const { bytes, suspects } of log.records) {
    if (suspects.length > 0) return undefined;
    const edit = readEdit(bytes);
    if (edit === undefined) return undefined;
    for (const number of edit.deleted) tables.delete(number);
    for (const [number, sizeBytes] of edit.added) {
      tables.set(number, sizeBytes);
      mentioned.add(number);
    }
    logNumber = edit.logNumber ?? logNumber;
  }
  return logNumber === undefined ? undefined : { tables, mentioned, logNumber };
}

type Edit = {
  logNumber: number | undefined;
  readonly deleted: number[];
  readonly added: Array<[number: number, sizeBytes: number]>;
};

function readEdit(bytes: Buffer): Edit | undefined {
  const reader = new Varints(bytes);
  const edit: Edit = { logNumber: undefined, deleted: [], added: [] };
  while (!reader.isAtEnd) {
    if (!readField(reader, edit)) return undefined;
  }
  return edit;
}

function readField(reader: Varints, edit: Edit): boolean {
  switch (reader.next()) {
    case tag.comparator:
      return reader.string() !== undefined;
    case tag.logNumber:
      edit.logNumber = reader.next();
      return edit.logNumber !== undefined;
    case tag.nextFile:
    case tag.lastSequence:
    case tag.prevLogNumber:
      return reader.next() !== undefined;
    case tag.compactPointer:
      return reader.next() !== undefined && reader.string() !== undefined;
    case tag.deletedFile: {
      const [level, number] = [reader.next(), reader.next()];
      if (level === undefined || number === undefined) return false;
      edit.deleted.push(number);
      return true;
    }
    case tag.newFile: {
      const [level, number, sizeBytes] = [reader.next(), reader.next(), reader.next()];
      if (level === undefined || number === undefined || sizeBytes === undefined) return false;
      edit.added.push([number, sizeBytes]);
      return reader.string() !== undefined && reader.string() !== undefined;
    }
    default:
      return false;
  }
}
