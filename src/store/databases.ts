// The open databases: their shards, who they share resources with, and where topics go. Databases
// come and go while the store runs: readers get their shards as they are made.
//
// Invariants: a topic is routed to a database only when its shards are open, and no longer once its
// drop has begun; shard numbers are never reused; what a dropped database leaves on disk is removed
// by this process or by a later one.

import {
  assertPresent,
  type Clock,
  Closer,
  type CodedError,
  hash32,
  type Logger,
  toError,
} from "../base/index.ts";
import type { WriteAheadLog } from "../log/index.ts";
import type { MapShard as MapShardFace, ShardNumber } from "./api.ts";
import {
  applyChange,
  builtInDatabases,
  createDatabase,
  type DatabaseRecord,
  forgetDatabase,
  putDatabase,
  readCatalogue,
} from "./catalog.ts";
import type { Checkpointer } from "./checkpointer.ts";
import type { LtsSettings } from "./core/lts.ts";
import { storeErrors } from "./errors.ts";
import type { LogFront, ShardFronts } from "./fronts.ts";
import type { Group } from "./group.ts";
import { ltsSettingsOf } from "./layout-options.ts";
import { LedLog } from "./log-replica.ts";
import type { LogShard } from "./log-shard.ts";
import type { MapShard } from "./map/map-shard.ts";
import type { DatabaseChange, DatabaseSpec } from "./operator-api.ts";
import type { UseTable } from "./pools/filter-use.ts";
import { defaultDatabase, Routes } from "./routes.ts";
import type { OpenLogShard, OpenMapShard, ShardOpener } from "./shard-opener.ts";

export type OpenDatabase = {
  record: DatabaseRecord;
  readonly group: Group;
  readonly logs: readonly LogShard[];
  readonly maps: readonly MapShard[];
  /** Where writes go: to `logs` and `maps`, or to what is put in front of each of them. */
  readonly logFronts: readonly LogFront[];
  readonly mapFronts: readonly MapShardFace[];
  readonly shards: ReadonlyArray<OpenLogShard | OpenMapShard>;
  readonly closer: Closer;
};

export type DatabasesParts = {
  readonly opener: ShardOpener;
  readonly groupOf: (database: string) => Group;
  readonly interest: UseTable;
  readonly checkpointer: Checkpointer;
  readonly log: WriteAheadLog;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly lts: LtsSettings;
  readonly onSealed: (database: OpenDatabase, log: LogShard) => void;
  /** Shards of a log database were opened while the store runs, or are about to be closed. */
  readonly onOpened: (database: OpenDatabase) => Promise<void>;
  readonly onClosing: (database: OpenDatabase) => void;
  /** The state of a log shard is another replica's; its tail was at `tailUs`. */
  readonly onMoved: (log: LogShard, tailUs: number) => void;
  /** Of replicas. */
  readonly fronts: ShardFronts | undefined;
};

export class Databases {
  readonly routes = new Routes();
  readonly #parts: DatabasesParts;
  readonly #open = new Map<string, OpenDatabase>();
  /** Ordinals of log shards, given before filters are counted. */
  readonly #ordinals = new Map<ShardNumber, number>();
  readonly #removals = new Set<Promise<void>>();
  /** Changes of the catalogue, one at a time. */
  #changing: Promise<unknown> = Promise.resolve();

  constructor(parts: DatabasesParts) {
    this.#parts = parts;
  }

  /** In order of their shards, whichever opened first. */
  get list(): readonly OpenDatabase[] {
    return [...this.#open.values()].sort(
      (a, b) => (a.record.shards[0] ?? 0) - (b.record.shards[0] ?? 0),
    );
  }

  get logs(): readonly LogShard[] {
    return this.list.flatMap(({ logs }) => logs);
  }

  /** @throws STORE_DATABASE_NOT_FOUND. */
  get(name: string): OpenDatabase {
    const found = this.#open.get(name);
    if (found === undefined) throw storeErrors.databaseMissing({ database: name });
    return found;
  }

  find(name: string): OpenDatabase | undefined {
    return this.#open.get(name);
  }

  /** The shard of `messages` that a publisher belongs to. */
  home(publisher: string): LogFront {
    const open = assertPresent(this.#open.get(defaultDatabase), "the store has been started");
    return shardOf(open.logFronts, publisher);
  }

  /** Its shards in all other log databases. */
  others(publisher: string): LogFront[] {
    const found: LogFront[] = [];
    for (const { record, logFronts: logs } of this.#open.values()) {
      if (logs.length > 0 && record.name !== defaultDatabase) found.push(shardOf(logs, publisher));
    }
    return found;
  }

  /** The open database that a topic is routed to. */
  byTopic(topic: string): OpenDatabase {
    const routed = this.#open.get(this.routes.databaseOf(topic));
    return assertPresent(routed ?? this.#open.get(defaultDatabase), "the store has been started");
  }

  mapShard(name: string, ownerKey: string): MapShardFace {
    const { mapFronts: maps } = this.get(name);
    if (maps.length === 0) throw storeErrors.databaseMissing({ database: name });
    return assertPresent(maps[hash32(ownerKey) % maps.length], "a database has shards");
  }

  // -------------------------------------------------------------- opening

  /** Gives the shards of a log database their ordinals. Before filters are counted. */
  announce(record: DatabaseRecord): void {
    for (const number of record.shards) {
      this.#ordinals.set(number, this.#parts.interest.addShard(number));
    }
  }

  async open(record: DatabaseRecord): Promise<OpenDatabase> {
    const group = this.#parts.groupOf(record.name);
    const closer = new Closer();
    const opened = await Promise.allSettled(
      record.shards.map((number) =>
        record.layout === "map"
          ? this.#parts.opener.openMap(record, number, group)
          : this.#openLog(record, number, group),
      ),
    );
    const shards = opened.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
    for (const shard of shards) closer.own(shard.closer);
    const failed = opened.find((each) => each.status === "rejected");
    if (failed !== undefined) {
      await closer.close();
      throw failed.reason;
    }
    const { fronts } = this.#parts;
    const logs = shards.flatMap(({ log }) => (log === undefined ? [] : [log]));
    const maps = shards.flatMap((shard) => ("map" in shard ? [shard.map] : []));
    const gate = (): CodedError | undefined =>
      group.state === "full" ? group.gate.refusal : undefined;
    const database: OpenDatabase = {
      ...{ record, group, shards, closer, logs, maps },
      logFronts: logs.map((log) => fronts?.log(new LedLog(log, gate)) ?? log),
      mapFronts: maps.map((map) => fronts?.map(map) ?? map),
    };
    this.#open.set(record.name, database);
    for (const { shard } of shards) this.#parts.checkpointer.watch(shard);
    return database;
  }

  #openLog(record: DatabaseRecord, number: ShardNumber, group: Group): Promise<OpenLogShard> {
    const { opener, interest, lts, onSealed, onMoved } = this.#parts;
    return opener.openLog(record, number, {
      ...{ group, interest, onMoved },
      ordinal: assertPresent(this.#ordinals.get(number), "a log shard has its ordinal"),
      lts: () =>
        ltsSettingsOf(
          lts,
          this.#open.get(record.name)?.record.layoutOptions ?? record.layoutOptions,
        ),
      onSealed: (log) => {
        const database = this.#open.get(record.name);
        if (database !== undefined) onSealed(database, log);
      },
    });
  }

  /** Topics go there from now on. */
  activate({ record }: OpenDatabase): void {
    this.routes.set(record.name, record.topics);
  }

  /** Goes on removing what a process before this one has not finished. */
  async resumeRemovals(): Promise<void> {
    for (const record of await readCatalogue(this.#meta)) {
      if (record.isDropped) this.#removeSoon(record);
    }
  }

  // -------------------------------------------------------------- changes

  create(spec: DatabaseSpec): Promise<OpenDatabase> {
    return this.#change(async () => {
      const record = await createDatabase(this.#meta, spec);
      if (record.layout === "log") this.announce(record);
      const database = await this.open(record);
      await this.#parts.onOpened(database);
      this.activate(database);
      this.#parts.logger.info("store.database_created", { database: record.name });
      return database;
    });
  }

  /** A change of how topics are learned ends the current generations. */
  alter(name: string, change: DatabaseChange): Promise<OpenDatabase> {
    return this.#change(async () => {
      const database = this.get(name);
      const record = applyChange(database.record, change);
      await putDatabase(this.#meta, record);
      const isLaidOutAnew =
        JSON.stringify(record.layoutOptions) !== JSON.stringify(database.record.layoutOptions);
      database.record = record;
      this.activate(database);
      if (isLaidOutAnew) await Promise.all(database.logFronts.map((log) => log.rotate()));
      return database;
    });
  }

  /** Resolves when the drop is durable; the folders go in the background. */
  drop(name: string): Promise<void> {
    return this.#change(async () => {
      const database = this.get(name);
      if (builtInDatabases.includes(name)) throw storeErrors.databaseBuiltIn({ database: name });
      const record = { ...database.record, isDropped: true };
      await putDatabase(this.#meta, record);
      this.routes.remove(name);
      this.#open.delete(name);
      this.#parts.onClosing(database);
      for (const { shard } of database.shards) {
        this.#parts.checkpointer.unwatch(shard);
        shard.close(storeErrors.databaseDropped({ database: name }));
      }
      await database.closer.close();
      for (const { shard } of database.shards) {
        this.#parts.log.forget(shard.number);
        this.#parts.interest.removeShard(shard.number);
      }
      this.#parts.logger.info("store.database_dropped", { database: name });
      this.#removeSoon(record);
    });
  }

  async close(): Promise<void> {
    await Promise.allSettled([this.#changing, ...this.#removals]);
    for (const { closer } of [...this.#open.values()].reverse()) await closer.close();
  }

  get #meta(): MapShardFace {
    return this.mapShard("meta", "");
  }

  #change<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#changing.then(work, work);
    this.#changing = done.catch(() => undefined);
    return done;
  }

  #removeSoon(record: DatabaseRecord): void {
    const removal = this.#remove(record)
      .catch((error: unknown) => {
        // The record stays, marked: the next start goes on.
        const fields = { database: record.name, reason: toError(error).message };
        this.#parts.logger.warn("store.database_removal_failed", fields);
      })
      .finally(() => this.#removals.delete(removal));
    this.#removals.add(removal);
  }

  #remove(record: DatabaseRecord): Promise<void> {
    const { opener, groupOf } = this.#parts;
    return groupOf(record.name).slots.run(async () => {
      for (const number of record.shards) {
        this.#parts.log.forget(number);
        await opener.remove(record.name, number);
      }
      await forgetDatabase(this.#meta, record.name);
    });
  }
}

/** The shard of a publisher. */
export function shardOf<T extends object>(logs: readonly T[], publisher: string): T {
  return assertPresent(logs[hash32(publisher) % logs.length], "a database has shards");
}
