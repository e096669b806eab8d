// Opens the shards of databases: folder, shard store, slabs or map, replay. What was opened is closed
// by the closer that comes back with it.

import {
  type Clock,
  Closer,
  type CodedError,
  type Disk,
  joinPath,
  type Logger,
} from "../base/index.ts";
import type { KvDriver } from "../kv/index.ts";
import type { WriteAheadLog } from "../log/index.ts";
import type { ShardNumber } from "./api.ts";
import { Backlogs } from "./backlogs.ts";
import type { DatabaseRecord } from "./catalog.ts";
import { CommitClock, StoreTime } from "./commit-clock.ts";
import { stageLog } from "./copies/log-staging.ts";
import { stageMap } from "./copies/map-staging.ts";
import { stagedFolders } from "./copies/staged.ts";
import type { LtsSettings } from "./core/lts.ts";
import type { DurableKv } from "./durable-kv.ts";
import { storeErrors } from "./errors.ts";
import { EvidenceTable } from "./evidence.ts";
import type { Group } from "./group.ts";
import type { GroupShard } from "./group-keeper.ts";
import { HoldTable } from "./holds.ts";
import { LogShard } from "./log-shard.ts";
import type { LogState } from "./log-state.ts";
import { visitLogged } from "./logged-ttvs.ts";
import type { ShardMachine } from "./machine.ts";
import { MapCopier, type MapCopySizes } from "./map/map-copy.ts";
import { removeMaps } from "./map/map-folder.ts";
import { MapShard, type StageMap } from "./map/map-shard.ts";
import { MapSlab } from "./map/map-slab.ts";
import { openMapStore } from "./map/map-store.ts";
import type { MendParts } from "./mending.ts";
import type { UseTable } from "./pools/filter-use.ts";
import { rebuildLogStore, rebuildMapStore } from "./rebuild.ts";
import { Shard } from "./shard.ts";
import { LocalLog, LogSender, type ShardLog, type ShardLogs } from "./shard-log.ts";
import type { ShardStore } from "./shard-store.ts";
import { openShardStore } from "./shard-store-open.ts";
import type { BlockReader } from "./slab/block-reader.ts";
import { Generations } from "./slab/generations.ts";
import type { OpenSlabs } from "./slab/open-slabs.ts";
import { parseFolderName } from "./slab/slab-name.ts";
import { storeNames } from "./slab/slab-pair.ts";
import type { SlabCounters } from "./slab/slab-stores.ts";
import { WriterTable } from "./writers.ts";

export type ShardOpenerParts = {
  readonly dir: string;
  readonly quarantineDir: string;
  readonly disk: Disk;
  readonly kv: KvDriver;
  readonly log: WriteAheadLog;
  readonly shardLogs: ShardLogs | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly reader: BlockReader;
  readonly openSlabs: OpenSlabs;
  readonly slabCounters: SlabCounters;
  readonly mapCopySizes: MapCopySizes;
  readonly phase: (name: string) => void;
  readonly endTurn: (dirty: Shard) => void;
  readonly onFailure: (error: CodedError) => void;
};

/** What a log shard needs of its database. */
export type LogShardContext = {
  readonly group: Group;
  readonly interest: UseTable;
  readonly ordinal: number;
  readonly lts: () => LtsSettings;
  /** A block of it was sealed. */
  readonly onSealed: (log: LogShard) => void;
  /** Its state is another replica's: readers at the tail, which was at `tailUs`, are behind. */
  readonly onMoved: (log: LogShard, tailUs: number) => void;
};

type OpenShard = GroupShard & { readonly store: ShardStore; readonly closer: Closer };
export type OpenMapShard = OpenShard & { readonly map: MapShard };
export type OpenLogShard = OpenShard & { readonly log: LogShard };

export class ShardOpener {
  readonly #parts: ShardOpenerParts;
  readonly #sender: LogSender;
  readonly #time: StoreTime;

  constructor(parts: ShardOpenerParts) {
    this.#parts = parts;
    this.#sender = new LogSender(parts.clock);
    this.#time = new StoreTime(parts.clock, parts.logger);
  }

  async openMap(
    database: DatabaseRecord,
    number: ShardNumber,
    group: Group,
  ): Promise<OpenMapShard> {
    const closer = new Closer();
    try {
      const dir = await this.#makeDir(database.name, number);
      const store = await this.#openStore(dir, number, closer);
      const { kv, damage, copy, folder } = await openMapStore(dir, store, this.#mendParts);
      const isLocal = this.#parts.shardLogs === undefined;
      if (isLocal) {
        const log = this.#makeLocalLog(dir, number);
        await rebuildMapStore({ ...this.#mendParts, dir, store, log }, kv);
      } else if (damage !== undefined) {
        // What is left of it would differ from the other replicas.
        throw storeErrors.slabCorrupt({ slab: dir, reason: damage.reason });
      }
      const makeSlab = (opened: DurableKv): MapSlab =>
        new MapSlab(
          opened,
          (deltaBytes) => group.gate.addMemory(deltaBytes),
          new MapCopier({ dir, ...this.#mendParts }, this.#parts.mapCopySizes),
        );
      let place = folder;
      const stage: StageMap = async (source) => {
        const { phase } = this.#parts;
        const staged = await stageMap(source, { dir, store, phase, kv: this.#mendParts });
        const settle = async (): Promise<void> => {
          place = staged.folder;
          await removeMaps(dir, place, this.#mendParts);
        };
        return { ...staged, settle, slab: makeSlab(staged.kv) };
      };
      const replica = { stage, loadWriters: () => WriterTable.open(store) };
      const map = new MapShard(makeSlab(kv), isLocal ? undefined : replica);
      closer.own(map);
      await map.load();
      const shard = this.#makeShard(dir, store, map);
      map.attach(shard);
      const fromIndex = damage === undefined ? undefined : await shard.replayAgain();
      await shard.recover();
      map.claim();
      if (damage !== undefined) {
        const { index } = store.checkpoint;
        const knownIndex = typeof copy === "string" ? 0 : copy.index;
        const isComplete =
          damage.isWhole || knownIndex >= index || (fromIndex ?? index + 1) <= knownIndex + 1;
        const fields = { shard: number, database: database.name, reason: damage.reason };
        this.#parts.logger.error("store.map_mended", { ...fields, fromIndex, isComplete });
      }
      if (damage !== undefined || copy === "damaged" || store.isMended) await proveAgain(shard);
      const size = remembered(
        async () => (await this.#sizeOf(dir, place)) + (await this.#besideBytes(dir)),
      );
      return { shard, map, log: undefined, store, ...size, closer };
    } catch (error) {
      await closer.close();
      throw error;
    }
  }

  async openLog(
    database: DatabaseRecord,
    number: ShardNumber,
    context: LogShardContext,
  ): Promise<OpenLogShard> {
    const closer = new Closer();
    try {
      const dir = await this.#makeDir(database.name, number);
      const store = await this.#openStore(dir, number, closer);
      if (this.#parts.shardLogs === undefined) {
        const log = this.#makeLocalLog(dir, number);
        await rebuildLogStore({ ...this.#mendParts, dir, store, log });
      }
      const log = await this.#recoverLog(dir, store, context, closer);
      const size = remembered(
        async () => (await log.generations.measure()) + (await this.#besideBytes(dir)),
      );
      return { shard: log.shard, log, store, ...size, closer };
    } catch (error) {
      await closer.close();
      throw error;
    }
  }

  /** Removes what a shard left on disk. REQUIRES: it is closed. */
  async remove(database: string, number: ShardNumber): Promise<void> {
    const { disk, kv } = this.#parts;
    const dir = this.#dirOf(database, number);
    if (!(await disk.exists(dir))) return;
    for (const entry of await disk.list(dir)) {
      if (parseFolderName(entry.name) === undefined) continue;
      for (const name of storeNames) await kv.destroy(joinPath(dir, entry.name, name));
    }
    await removeMaps(dir, undefined, this.#mendParts);
    await kv.destroy(joinPath(dir, "store"));
    await disk.removeDir(dir);
    await disk.syncDir(joinPath(this.#parts.dir, database));
  }

  async #recoverLog(
    dir: string,
    store: ShardStore,
    context: LogShardContext,
    closer: Closer,
  ): Promise<LogShard> {
    const { ordinal, interest, group } = context;
    const acksEarly = group.fsync === "interval";
    await interest.load(ordinal, store);
    const load = (): Promise<LogState> => this.#loadLog(dir, store, context, () => log);
    const { phase } = this.#parts;
    const place = { dir, store, phase, kv: this.#mendParts };
    const log: LogShard = new LogShard({
      ...{ ordinal, interest, acksEarly, phase, load, state: await load() },
      stage: (source, facts) => stageLog(source, facts, { ...place, generations: log.generations }),
      onMoved: (tailUs) => context.onMoved(log, tailUs),
    });
    closer.own(log);
    const shard = this.#makeShard(dir, store, log, acksEarly);
    log.attach(shard);
    await shard.recover();
    await log.begin();
    if (store.isMended) await proveAgain(shard);
    return log;
  }

  async #loadLog(
    dir: string,
    store: ShardStore,
    context: LogShardContext,
    log: () => LogShard,
  ): Promise<LogState> {
    const writers = await WriterTable.open(store);
    const holds = new HoldTable();
    await holds.load(store);
    const generations = await this.#openGenerations(dir, store, context, log);
    return { writers, holds, generations, evidence: new EvidenceTable(store) };
  }

  #openGenerations(
    dir: string,
    store: ShardStore,
    { group, interest, ordinal, lts, onSealed }: LogShardContext,
    log: () => LogShard,
  ): Promise<Generations> {
    const { log: wal, shardLogs, logger, reader, openSlabs, slabCounters, phase } = this.#parts;
    return Generations.open(
      {
        ...{ dir, openSlabs, slabCounters, reader, lts, logger, phase, kv: this.#mendParts },
        whenCopied: (run) => store.whenCopied(run),
        staged: () => stagedFolders({ dir, ...this.#mendParts }, store.checkpoint.index),
        logged: async (visit) => {
          // Entries of a replicated log are judged by their fences, which are not known here.
          if (shardLogs === undefined) await visitLogged(wal, store.shard, logger, visit);
        },
        onLost: (lost) => interest.lost(ordinal, lost),
        onSetAside: () => void checkpointFor(log()).catch(() => undefined), // the shard logged why
        onFailure: (error) =>
          log().shard.fail(storeErrors.failed({ reason: error.message }, error)),
        onSealed: (sizeBytes) => {
          group.grown(sizeBytes);
          onSealed(log());
        },
        onMemory: (deltaBytes) => group.gate.addMemory(deltaBytes),
      },
      store,
    );
  }

  #dirOf(database: string, number: ShardNumber): string {
    return joinPath(this.#parts.dir, database, shardFolder(number));
  }

  async #makeDir(database: string, number: ShardNumber): Promise<string> {
    const { disk, dir: root } = this.#parts;
    const dir = this.#dirOf(database, number);
    if (await disk.exists(dir)) return dir;
    await disk.makeDir(dir);
    await disk.syncDir(joinPath(root, database));
    await disk.syncDir(root);
    return dir;
  }

  async #openStore(dir: string, number: ShardNumber, closer: Closer): Promise<ShardStore> {
    return closer.own(await openShardStore(dir, number, this.#mendParts));
  }

  get #mendParts(): MendParts {
    const { kv, clock, logger, disk, quarantineDir } = this.#parts;
    return { driver: kv, clock, logger, disk, quarantineDir };
  }

  #sizeOf(dir: string, name: string): Promise<number> {
    return this.#parts.kv.sizeBytes(joinPath(dir, name));
  }

  /** The shard store, and the files beside it: copies of rows, what was copied out of the log. */
  async #besideBytes(dir: string): Promise<number> {
    const { disk } = this.#parts;
    let sizeBytes = await this.#sizeOf(dir, "store");
    for (const { name, isDirectory } of await disk.list(dir)) {
      if (!isDirectory) sizeBytes += await disk.usedBytes(joinPath(dir, name));
    }
    return sizeBytes;
  }

  #makeLog(dir: string, number: ShardNumber, epoch: () => number): ShardLog {
    return this.#parts.shardLogs?.open(number) ?? this.#makeLocalLog(dir, number, epoch);
  }

  #makeLocalLog(dir: string, number: ShardNumber, epoch = (): number => 0): LocalLog {
    const { log, logger } = this.#parts;
    const backlogs = new Backlogs({ dir, ...this.#mendParts });
    return new LocalLog(number, { log, logger, backlogs, sender: this.#sender, epoch });
  }

  #makeShard(dir: string, store: ShardStore, machine: ShardMachine, acksEarly = false): Shard {
    const { logger, endTurn, phase, onFailure } = this.#parts;
    const number = store.shard;
    const shard: Shard = new Shard({
      ...{ log: this.#makeLog(dir, number, () => shard.epoch), store, machine, acksEarly },
      ...{ logger, endTurn, phase, onFailure },
      time: new CommitClock(this.#time),
    });
    return shard;
  }
}

/** Without it the next start mends once more, to the same end. */
async function proveAgain(shard: Shard): Promise<void> {
  await shard.checkpoint().catch(() => undefined); // the shard logged why
}

async function checkpointFor({ shard }: LogShard): Promise<void> {
  await shard.checkpoint();
  // One that was under way had begun before.
  while (shard.isAwaited) await shard.checkpoint();
}

function remembered(measure: () => Promise<number>): Pick<GroupShard, "measure" | "sizeBytes"> {
  let sizeBytes = 0;
  return {
    measure: async () => {
      sizeBytes = await measure();
      return sizeBytes;
    },
    sizeBytes: () => sizeBytes,
  };
}

export function shardFolder(number: ShardNumber): string {
  return `s${String(number).padStart(4, "0")}`;
}
