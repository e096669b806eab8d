// What an operator sees of the store and does with it (`operator-api.ts`), over the open databases.
//
// Views are made for the call, from memory. Changes go the way of all changes, through the logs of
// the shards concerned; over several shards there is no atomicity, and a call that failed half way
// is repeated.

import { type Clock, joinPath } from "../base/index.ts";
import type { WriteAheadLog } from "../log/index.ts";
import { alarmsOf } from "./alarms.ts";
import type { MapShard, ShardNumber } from "./api.ts";
import { builtInDatabases } from "./catalog.ts";
import { type Amount, type Generation, totalOf } from "./core/generations.ts";
import type { Databases, OpenDatabase } from "./databases.ts";
import { storeErrors } from "./errors.ts";
import { explainFilter } from "./explain.ts";
import type { Group } from "./group.ts";
import type { Groups } from "./groups.ts";
import type { LogShard } from "./log-shard.ts";
import { hashLogShard, hashMapShard } from "./logical-hash.ts";
import { compactStores, repackSlabs, verifySlabs } from "./long-work.ts";
import type {
  Alarm,
  CompactReport,
  DatabaseChange,
  DatabaseInfo,
  DatabaseSpec,
  DropOptions,
  ExplainOptions,
  Explanation,
  GenerationInfo,
  GroupInfo,
  HoldInfo,
  RepackOptions,
  RepackReport,
  ShardInfo,
  StoreOperator,
  StreamInfo,
  VerifyReport,
  WorkOptions,
} from "./operator-api.ts";
import { defaultDatabase } from "./routes.ts";
import { type OpenLogShard, type OpenMapShard, shardFolder } from "./shard-opener.ts";
import { folderName } from "./slab/slab-name.ts";

export type OperatorParts = {
  readonly databases: Databases;
  readonly groups: Groups;
  readonly log: WriteAheadLog;
  readonly clock: Clock;
};

type HoldOptions = {
  readonly database?: string;
  readonly afterUs?: ReadonlyMap<ShardNumber, number>;
};

export class Operator implements StoreOperator {
  readonly #databases: Databases;
  readonly #groups: Groups;
  readonly #log: WriteAheadLog;
  readonly #clock: Clock;

  constructor(parts: OperatorParts) {
    this.#databases = parts.databases;
    this.#groups = parts.groups;
    this.#log = parts.log;
    this.#clock = parts.clock;
  }

  // -------------------------------------------------------------- databases and groups

  databases(): DatabaseInfo[] {
    return this.#databases.list.map(describeDatabase);
  }

  async createDatabase(spec: DatabaseSpec): Promise<DatabaseInfo> {
    return describeDatabase(await this.#databases.create(spec));
  }

  async alterDatabase(name: string, change: DatabaseChange): Promise<DatabaseInfo> {
    return describeDatabase(await this.#databases.alter(name, change));
  }

  dropDatabase(name: string): Promise<void> {
    return this.#databases.drop(name);
  }

  mapShard(database: string, ownerKey: string): MapShard {
    return this.#databases.mapShard(database, ownerKey);
  }

  groups(): GroupInfo[] {
    return this.#groups.list.map((group) => this.#describeGroup(group));
  }

  shards(database?: string): ShardInfo[] {
    const databases = database === undefined ? this.#databases.list : [this.#database(database)];
    return databases.flatMap((each) =>
      each.shards.map((shard) => this.#describeShard(each, shard)),
    );
  }

  alarms(): Alarm[] {
    return alarmsOf(this.#groups, this.#databases);
  }

  // -------------------------------------------------------------- generations

  generations(shard: ShardNumber): GenerationInfo[] {
    const { database, log } = this.#shard(shard);
    return log.generations.list.map((each) => describeGeneration(each, database, log));
  }

  async streams(shard: ShardNumber, generation: number): Promise<StreamInfo[]> {
    const { log } = this.#shard(shard);
    const found = log.generations.list.find(({ number }) => number === generation);
    if (found === undefined) throw storeErrors.generationUnknown({ generation });
    return [...found.streams].map(([stream, { structure, ttvs, sizeBytes }]) => {
      return {
        shard,
        generation,
        stream,
        structure: structure.join("/"),
        ttvs,
        logicalBytes: sizeBytes,
      };
    });
  }

  async rotate(database = defaultDatabase): Promise<void> {
    await Promise.all(this.#database(database).logFronts.map((log) => log.rotate()));
  }

  async dropUntil(untilUs: number, options: DropOptions = {}): Promise<number> {
    const { logFronts: logs } = this.#database(options.database ?? defaultDatabase);
    const dropped = await Promise.all(logs.map((log) => log.dropUntil(untilUs, options)));
    return dropped.reduce((sum, count) => sum + count, 0);
  }

  // -------------------------------------------------------------- holds

  holds(): HoldInfo[] {
    return this.#databases.list.flatMap(holdsOf);
  }

  async hold(name: string, options: HoldOptions = {}): Promise<HoldInfo> {
    const database = this.#database(options.database ?? defaultDatabase);
    for (const log of database.logs) log.holds.checkRoom(name);
    await Promise.all(
      database.logFronts.map((log) => log.hold(name, options.afterUs?.get(log.number) ?? 0)),
    );
    return this.#hold(name, database);
  }

  async releaseHold(name: string, database = defaultDatabase): Promise<void> {
    const open = this.#database(database);
    this.#hold(name, open);
    await Promise.all(open.logFronts.map((log) => log.releaseHold(name)));
  }

  // -------------------------------------------------------------- looking through

  async explain(filter: string, options: ExplainOptions = {}): Promise<Explanation> {
    return explainFilter(this.#chosen(options.database), filter, options);
  }

  async verify(options: WorkOptions = {}): Promise<VerifyReport> {
    return verifySlabs(this.#chosen(options.database), options);
  }

  async repack(options: RepackOptions = {}): Promise<RepackReport> {
    return repackSlabs(this.#chosen(options.database), options, this.#clock);
  }

  async compact(options: WorkOptions = {}): Promise<CompactReport> {
    return compactStores(this.#chosen(options.database), options, this.#log);
  }

  async logicalHash(number: ShardNumber): Promise<string> {
    for (const { shards } of this.#databases.list) {
      const found = shards.find(({ shard }) => shard.number === number);
      if (found === undefined) continue;
      return "map" in found ? hashMapShard(found.map) : hashLogShard(found.log);
    }
    throw storeErrors.shardMissing({ shard: number });
  }

  // -------------------------------------------------------------- inside

  #chosen(database: string | undefined): readonly OpenDatabase[] {
    return database === undefined ? this.#databases.list : [this.#database(database)];
  }

  #hold(name: string, database: OpenDatabase): HoldInfo {
    const found = holdsOf(database).find((hold) => hold.name === name);
    if (found !== undefined) return found;
    throw storeErrors.holdMissing({ hold: name, database: database.record.name });
  }

  #database(name: string): OpenDatabase {
    return this.#databases.get(name);
  }

  #shard(number: ShardNumber): { database: OpenDatabase; log: LogShard } {
    for (const database of this.#databases.list) {
      const log = database.logs.find((each) => each.number === number);
      if (log !== undefined) return { database, log };
    }
    throw storeErrors.shardMissing({ shard: number });
  }

  #describeGroup(group: Group): GroupInfo {
    const databases = this.#groups.databasesOf(group);
    let logicalBytes = 0;
    for (const { logs } of databases) logicalBytes += amountOf(logs).sizeBytes;
    return {
      name: group.name,
      databases: databases.map(({ record }) => record.name),
      quotaBytes: group.quotaBytes,
      onFull: group.onFull,
      fsync: group.fsync,
      state: group.state,
      physicalBytes: group.physicalBytes,
      logicalBytes,
      logBytes: group.logBytes,
      writeBufferBytes: group.gate.memoryBytes,
      writeBufferBytesMax: group.writeBufferBytesMax,
      workSlots: group.slots.slotsMax,
      workSlotsUsed: group.slots.used,
      counters: { ...group.counters },
    };
  }

  #describeShard(
    { record, group }: OpenDatabase,
    { shard, log, sizeBytes }: OpenLogShard | OpenMapShard,
  ): ShardInfo {
    const amount = amountOf(log === undefined ? [] : [log]);
    return {
      number: shard.number,
      database: record.name,
      group: group.name,
      epoch: shard.epoch,
      appliedIndex: shard.appliedIndex,
      appliedUs: shard.appliedUs,
      checkpointIndex: shard.checkpointIndex,
      checkpointUs: shard.checkpointUs,
      logBytes: shard.bytesSinceCheckpoint,
      generations: log?.generations.list.length ?? 0,
      ttvs: amount.ttvs,
      logicalBytes: amount.sizeBytes,
      physicalBytes: sizeBytes(),
      consumedUs: this.#groups.keeper?.floorOf(shard.number),
      missing: (log?.generations.missing.length ?? 0) + shard.recoveries.length,
      failure: shard.failure?.message,
    };
  }
}

function describeDatabase({ record, group, logs, shards }: OpenDatabase): DatabaseInfo {
  const { isDropped: _, ...facts } = record;
  const { ttvs, sizeBytes } = amountOf(logs);
  let physicalBytes = 0;
  for (const shard of shards) physicalBytes += shard.sizeBytes();
  const isBuiltIn = builtInDatabases.includes(record.name);
  const amount = { ttvs, logicalBytes: sizeBytes, physicalBytes };
  return { ...facts, group: group.name, isBuiltIn, ...amount };
}

function describeGeneration(
  generation: Generation,
  { record }: OpenDatabase,
  log: LogShard,
): GenerationInfo {
  const { number, layout, state, fromUs, toUs } = generation;
  const { ttvs, sizeBytes } = totalOf(generation);
  return {
    ...{ shard: log.number, number, layout, state, fromUs, toUs, ttvs },
    logicalBytes: sizeBytes,
    physicalBytes: log.generations.physicalOf(number),
    streams: generation.streams.size,
    folder: joinPath(record.name, shardFolder(log.number), folderName(generation)),
    isOpen: log.generations.isOpen(number),
    heldBy: log.holds.keeping((toUs ?? Number.MAX_SAFE_INTEGER) - 1),
  };
}

/** What readers may read, as far as blocks are sealed. */
function amountOf(logs: readonly LogShard[]): Amount {
  let ttvs = 0;
  let sizeBytes = 0;
  for (const log of logs) {
    for (const each of log.generations.readable) {
      const total = totalOf(each);
      ttvs += total.ttvs;
      sizeBytes += total.sizeBytes;
    }
  }
  return { ttvs, sizeBytes };
}

function holdsOf({ record, logs }: OpenDatabase): HoldInfo[] {
  const found = new Map<string, { afterUs: Map<ShardNumber, number>; lostTtvs: number }>();
  for (const log of logs) {
    for (const hold of log.holds.list) {
      const known = found.get(hold.name) ?? { afterUs: new Map(), lostTtvs: 0 };
      known.afterUs.set(log.number, hold.afterUs);
      known.lostTtvs += hold.lostTtvs;
      found.set(hold.name, known);
    }
  }
  return [...found].map(([name, hold]) => ({ name, database: record.name, ...hold }));
}
