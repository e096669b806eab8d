// The catalogue of databases, kept in the `meta` database: name, layout and the numbers of the
// shards. Numbers are given once per data directory and never again, since the log and stored
// positions name shards by them.

import { isCodedError } from "../base/index.ts";
import type { MapShard } from "./api.ts";
import { storeErrors } from "./errors.ts";

export type LayoutName = "log" | "map";

export type DatabaseRecord = {
  readonly name: string;
  readonly layout: LayoutName;
  /** Fixed at creation; the order is the hash partition. */
  readonly shards: readonly number[];
};

/** `meta` itself: its shard has to be open before the catalogue can be read. */
export const metaDatabase: DatabaseRecord = { name: "meta", layout: "map", shards: [1] };

const firstFreeNumber = 2;
const formatVersion = 1;
const prefix = "database/";
const nextNumberKey = "next_shard_number";

/** The database of that name, created when it does not exist. */
export async function ensureDatabase(
  meta: MapShard,
  name: string,
  layout: LayoutName,
  shardCount: number,
): Promise<DatabaseRecord> {
  const key = prefix + name;
  try {
    const { value } = await meta.transact(async (tx) => {
      const existing = await tx.get(key);
      if (existing !== undefined) return parseRecord(name, existing.value);
      const next = await tx.get(nextNumberKey);
      const first = next === undefined ? firstFreeNumber : Number(next.value.toString());
      const shards = Array.from({ length: shardCount }, (_, at) => first + at);
      tx.assertAbsent(key);
      tx.put(key, formatRecord({ name, layout, shards }));
      tx.put(nextNumberKey, Buffer.from(String(first + shardCount)));
      return { name, layout, shards };
    });
    return value;
  } catch (error) {
    if (!isCodedError(error, "STORE_PRECONDITION_FAILED")) throw error;
    return ensureDatabase(meta, name, layout, shardCount);
  }
}

function formatRecord(record: DatabaseRecord): Buffer {
  const { layout, shards } = record;
  return Buffer.from(JSON.stringify({ version: formatVersion, layout, shards }));
}

function parseRecord(name: string, bytes: Buffer): DatabaseRecord {
  const record = JSON.parse(bytes.toString("utf8")) as {
    version: number;
    layout: LayoutName;
    shards: number[];
  };
  if (record.version > formatVersion) {
    throw storeErrors.formatNewer({ what: `database ${name}`, version: record.version });
  }
  return { name, layout: record.layout, shards: record.shards };
}
