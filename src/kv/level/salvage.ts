// Brings every intact entry of a damaged LevelDB over to a new store, by reading its files.
//
// Invariants: an entry is taken only when the checksum over it is right; of several entries of a key
// the newest counts, deletions included; the damaged folder is not written to.
// Where the manifest is whole only its live tables count. Where it cannot be read, or has lost its end
// (it misses a table, or there is one that it never spoke of), all files do: what a compaction
// removed just before the end may then come back, as with LevelDB's own repair.

import type { Disk } from "../../base/index.ts";
import { readState } from "./check.ts";
import { entriesOfBatch, type LevelEntry } from "./entries.ts";
import { type LevelFiles, listLevel, logName, readLevelFile } from "./folder.ts";
import { readLevelLog } from "./log-file.ts";
import type { LevelState } from "./manifest.ts";
import { readTable } from "./table.ts";

export type Salvage = {
  /** What could not be read, in words of files. */
  readonly faults: readonly string[];
  /** Every file that holds entries was there, as far as can be told, and whole. */
  readonly isWhole: boolean;
};

/** `take` gets the newest entry of each key, in no order, and is awaited. */
export async function salvageLevel(
  disk: Disk,
  path: string,
  take: (entry: LevelEntry) => Promise<void> | undefined,
): Promise<Salvage> {
  const sources = await sourcesOf(disk, path);
  const newest = new Map<string, number>();
  const faults = [...sources.faults];
  let isWhole = !sources.isMissingOne;
  for (const source of sources.list) {
    const { entries, fault } = await source();
    if (fault !== undefined) {
      faults.push(fault);
      isWhole = false;
    }
    for (const { key, sequence } of entries) {
      const name = key.toString("latin1");
      if (sequence >= (newest.get(name) ?? -1)) newest.set(name, sequence);
    }
  }
  // Read twice, so that only keys have to be held in memory.
  for (const source of sources.list) {
    for (const entry of (await source()).entries) {
      const name = entry.key.toString("latin1");
      if (newest.get(name) !== entry.sequence) continue;
      newest.set(name, Number.POSITIVE_INFINITY);
      if (entry.value !== undefined) await take(entry);
    }
  }
  return { faults, isWhole };
}

type Source = () => Promise<{
  readonly entries: readonly LevelEntry[];
  readonly fault: string | undefined;
}>;

type Sources = {
  readonly list: readonly Source[];
  readonly faults: readonly string[];
  readonly isMissingOne: boolean;
};

async function sourcesOf(disk: Disk, path: string): Promise<Sources> {
  const files = await listLevel(disk, path);
  const state = files.hasCurrent ? await readState(disk, path, files) : "CURRENT is missing";
  const faults = typeof state === "string" ? [state] : [];
  const known = typeof state === "string" || !isComplete(state, files) ? undefined : state;
  const missing =
    typeof state === "string"
      ? []
      : [...state.tables.keys()].filter((number) => !files.tables.has(number));
  faults.push(...missing.map((number) => `table ${number} is missing`));
  const tables = [...files.tables].filter(([number]) => known?.tables.has(number) ?? true);
  const logs = files.logs.filter((number) => number >= (known?.logNumber ?? 0)).map(logName);
  return {
    list: [
      ...logs.map((name) => () => readLog(disk, path, name)),
      ...tables.map(
        ([, name]) =>
          () =>
            readOneTable(disk, path, name),
      ),
    ],
    faults,
    isMissingOne: missing.length > 0,
  };
}

function isComplete(state: LevelState, files: LevelFiles): boolean {
  for (const number of state.tables.keys()) if (!files.tables.has(number)) return false;
  for (const number of files.tables.keys()) if (!state.mentioned.has(number)) return false;
  return true;
}

async function readLog(disk: Disk, path: string, name: string): ReturnType<Source> {
  const log = readLevelLog(await readLevelFile(disk, path, name));
  const entries: LevelEntry[] = [];
  for (const record of log.records) entries.push(...entriesOfBatch(record).entries);
  const fault = log.badOffset === undefined ? undefined : `${name} at offset ${log.badOffset}`;
  return { entries, fault };
}

async function readOneTable(disk: Disk, path: string, name: string): ReturnType<Source> {
  const { entries, fault } = readTable(await readLevelFile(disk, path, name));
  return { entries, fault: fault === undefined ? undefined : `${name}: ${fault}` };
}
