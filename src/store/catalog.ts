// The catalogue of databases, kept in the `meta` database: what each is, and the numbers of its
// shards. Numbers are given once per data directory and never again, since the log and stored
// positions name shards by them.
//
// A database that is dropped keeps its record, marked, until its folders are gone: a start in
// between goes on removing.

import { isCodedError } from "../base/index.ts";
import { parseTopicFilter } from "../topic/index.ts";
import type { MapShard } from "./api.ts";
import { storeErrors } from "./errors.ts";
import type {
  DatabaseChange,
  DatabaseSpec,
  LayoutName,
  LayoutOptions,
  Retention,
} from "./operator-api.ts";

export type DatabaseRecord = {
  readonly name: string;
  readonly layout: LayoutName;
  /** Fixed at creation; the order is the hash partition. */
  readonly shards: readonly number[];
  readonly replicationFactor: number;
  readonly retention: Retention;
  readonly layoutOptions: LayoutOptions;
  readonly topics: readonly string[];
  readonly isDropped: boolean;
};

export const databasesMax = 256;
const shardsMax = 256;
const filtersMax = 1_000;
/** Most streams that a slab may be given: each may hold an open block. */
const streamsLimit = 16_384;
const dayMs = 86_400_000;
export const retentionDefault: Retention = { ageMs: 7 * dayMs, bytes: 0 };
const shardsDefault = 4;

/** What every database has that says nothing else. */
const plain = {
  replicationFactor: 1,
  retention: retentionDefault,
  layoutOptions: {},
  topics: [],
  isDropped: false,
} as const;

/** `meta` itself: its shard has to be open before the catalogue can be read. */
export const metaDatabase: DatabaseRecord = { ...plain, name: "meta", layout: "map", shards: [1] };
/** Made by the node; never dropped. */
export const builtInDatabases: readonly string[] = ["meta", "state", "messages"];

const firstFreeNumber = 2;
const formatVersion = 1;
const prefix = "database/";
const nextNumberKey = "next_shard_number";

/** In order of their first shard. */
export async function readCatalogue(meta: MapShard): Promise<DatabaseRecord[]> {
  const entries = await meta.list(prefix, { countMax: databasesMax + 1 });
  return entries
    .map(({ key, value }) => parseRecord(key.slice(prefix.length), value))
    .sort((a, b) => (a.shards[0] ?? 0) - (b.shards[0] ?? 0));
}

/**
 * The database of that name, created when it does not exist; else brought in line with what may
 * change. @throws STORE_DATABASE_INVALID, STORE_SHARDS_FIXED, STORE_LAYOUT_FIXED.
 */
export async function ensureDatabase(meta: MapShard, spec: DatabaseSpec): Promise<DatabaseRecord> {
  const existing = (await readCatalogue(meta)).find((each) => each.name === spec.name);
  if (existing === undefined || existing.isDropped) return createDatabase(meta, spec);
  const { name, layout, shards } = existing;
  if (spec.layout !== undefined && spec.layout !== layout) {
    throw storeErrors.layoutFixed({ database: name, layout, wanted: spec.layout });
  }
  if (spec.shards !== undefined && spec.shards !== shards.length) {
    throw storeErrors.shardsFixed({ database: name, shards: shards.length, wanted: spec.shards });
  }
  const changed = applyChange(existing, spec);
  if (JSON.stringify(changed) === JSON.stringify(existing)) return existing;
  await putDatabase(meta, changed);
  return changed;
}

/** @throws STORE_DATABASE_EXISTS, STORE_DATABASE_INVALID, STORE_LIMIT_REACHED. */
export async function createDatabase(meta: MapShard, spec: DatabaseSpec): Promise<DatabaseRecord> {
  const wanted = parseSpec(spec);
  const key = prefix + spec.name;
  const databases = await readCatalogue(meta);
  if (databases.length >= databasesMax) {
    throw storeErrors.limitReached({ limit: "the number of databases", max: databasesMax });
  }
  try {
    const { value } = await meta.transact(async (tx) => {
      const next = await tx.get(nextNumberKey);
      const first = next === undefined ? firstFreeNumber : Number(next.value.toString());
      const shards = Array.from({ length: wanted.shardCount }, (_, at) => first + at);
      const record: DatabaseRecord = { ...wanted.record, shards };
      tx.assertAbsent(key);
      tx.put(key, formatRecord(record));
      tx.put(nextNumberKey, Buffer.from(String(first + shards.length)));
      return record;
    });
    return value;
  } catch (error) {
    if (!isCodedError(error, "STORE_PRECONDITION_FAILED")) throw error;
    throw storeErrors.databaseExists({ database: spec.name }, error);
  }
}

export async function putDatabase(meta: MapShard, record: DatabaseRecord): Promise<void> {
  await meta.transact(async (tx) => {
    tx.put(prefix + record.name, formatRecord(record));
  });
}

/** Its folders are gone. */
export async function forgetDatabase(meta: MapShard, name: string): Promise<void> {
  await meta.transact(async (tx) => {
    tx.delete(prefix + name);
  });
}

/** @throws STORE_DATABASE_INVALID. */
export function applyChange(record: DatabaseRecord, change: DatabaseChange): DatabaseRecord {
  const changed: DatabaseRecord = {
    ...record,
    retention: { ...record.retention, ...change.retention },
    layoutOptions: change.layoutOptions ?? record.layoutOptions,
    topics: change.topics ?? record.topics,
  };
  check(changed, changed.shards.length);
  return changed;
}

function parseSpec(spec: DatabaseSpec): {
  record: Omit<DatabaseRecord, "shards">;
  shardCount: number;
} {
  const shardCount = spec.shards ?? shardsDefault;
  const record = {
    ...plain,
    name: spec.name,
    layout: spec.layout ?? "log",
    replicationFactor: spec.replicationFactor ?? 1,
    retention: { ...retentionDefault, ...spec.retention },
    layoutOptions: spec.layoutOptions ?? {},
    topics: spec.topics ?? [],
  };
  check(record, shardCount);
  return { record, shardCount };
}

function check(record: Omit<DatabaseRecord, "shards">, shardCount: number): void {
  const reason = faultOf(record, shardCount);
  if (reason !== undefined) {
    throw storeErrors.databaseInvalid({ database: record.name.slice(0, 80), reason });
  }
}

function faultOf(record: Omit<DatabaseRecord, "shards">, shardCount: number): string | undefined {
  const { name, layout, retention, topics, layoutOptions } = record;
  if (!/^[a-z][a-z0-9_-]{0,63}$/.test(name)) return "its name is not 1 to 64 of a-z, 0-9, _ and -";
  if (layout !== "log" && layout !== "map") return `there is no layout ${JSON.stringify(layout)}`;
  if (!isCount(shardCount, 1, shardsMax)) return `shards are 1 to ${shardsMax}`;
  if (record.replicationFactor !== 1) return "replicationFactor is 1 on a single node";
  if (!isCount(retention.ageMs, 0) || !isCount(retention.bytes, 0)) {
    return "retention is whole numbers from 0 on";
  }
  if (layout === "map" && topics.length > 0) return "topics go to databases of layout log";
  const patterns = layoutOptions.patterns ?? [];
  if (topics.length > filtersMax || patterns.length > filtersMax) {
    return `it has more than ${filtersMax} filters`;
  }
  for (const filter of [...topics, ...patterns]) {
    try {
      parseTopicFilter(filter);
    } catch (error) {
      return `${JSON.stringify(String(filter).slice(0, 80))}: ${(error as Error).message}`;
    }
  }
  return layoutFault(layoutOptions);
}

function layoutFault(options: LayoutOptions): string | undefined {
  const lists = [options.thresholds, ...Object.values(options.rootThresholds ?? {})];
  for (const thresholds of lists) {
    if (thresholds === undefined) continue;
    if (thresholds.length === 0 || !thresholds.every((each) => isCount(each, 1))) {
      return "thresholds are whole numbers from 1 on";
    }
  }
  const { streamsMax = 3, trieBytesMax = 65_536 } = options;
  if (!isCount(streamsMax, 3, streamsLimit)) return `streamsMax is 3 to ${streamsLimit}`;
  return isCount(trieBytesMax, 65_536) ? undefined : "trieBytesMax is 64 KiB or more";
}

function isCount(value: unknown, min: number, max = Number.MAX_SAFE_INTEGER): boolean {
  return typeof value === "number" && Number.isInteger(value) && value >= min && value <= max;
}

function formatRecord({ name: _, ...record }: DatabaseRecord): Buffer {
  return Buffer.from(JSON.stringify({ version: formatVersion, ...record }));
}

/** @throws STORE_FORMAT_NEWER, STORE_ROW_CORRUPT. */
function parseRecord(name: string, bytes: Buffer): DatabaseRecord {
  let record: { version: number } & Partial<DatabaseRecord>;
  try {
    record = JSON.parse(bytes.toString("utf8"));
  } catch (error) {
    const reason = `${name}: ${(error as Error).message}`;
    throw storeErrors.rowCorrupt({ row: "database", reason }, error);
  }
  if (record.version > formatVersion) {
    throw storeErrors.formatNewer({ what: `database ${name}`, version: record.version });
  }
  const { layout, shards } = record;
  if (layout === undefined || shards === undefined) {
    throw storeErrors.rowCorrupt({ row: "database", reason: `${name} is not whole` });
  }
  if (layout !== "log" && layout !== "map") {
    throw storeErrors.layoutUnknown({ what: `database ${name}`, layout: String(layout) });
  }
  const { replicationFactor, retention, layoutOptions, topics, isDropped } = {
    ...plain,
    ...record,
  };
  return { name, layout, shards, replicationFactor, retention, layoutOptions, topics, isDropped };
}
