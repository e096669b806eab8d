// The store: databases and their shards over one write-ahead log.
//
// Start order: `meta`, then `state` (open), then, once the owners of durable filters have counted
// their interest, the log shards (`start`). All callbacks run in the log's order.
// The store opens what is under its directory; the log, the disk and the clocks are given.

import {
  assertPresent,
  type Cancel,
  type Clock,
  Closer,
  type CodedError,
  createCounters,
  type Disk,
  hash32,
  joinPath,
  type Logger,
} from "../base/index.ts";
import type { KvDriver } from "../kv/index.ts";
import type { WriteAheadLog } from "../log/index.ts";
import type {
  AppendDone,
  AppendRequest,
  EvidenceFace,
  InterestFace,
  MapShard as MapShardFace,
  ShardNumber,
  Store,
  Subscriber,
  SubscriberOptions,
  Ttv,
  TtvRef,
  WriterStamp,
} from "./api.ts";
import { type DatabaseRecord, ensureDatabase, metaDatabase } from "./catalog.ts";
import { Checkpointer, type CheckpointPolicy } from "./checkpointer.ts";
import { CommitClock } from "./commit-clock.ts";
import { type LtsSettings, ltsSettingsDefault } from "./core/lts.ts";
import { storeErrors } from "./errors.ts";
import { EvidenceTable } from "./evidence.ts";
import { HoldTable } from "./holds.ts";
import { LogShard } from "./log-shard.ts";
import { visitLogged } from "./logged-ttvs.ts";
import type { ShardMachine } from "./machine.ts";
import { MapShard } from "./map/map-shard.ts";
import { MapSlab } from "./map/map-slab.ts";
import { type MendParts, openMended, verifyBytesMax } from "./mending.ts";
import { Operator, shardFolder } from "./operator.ts";
import type { Retention } from "./operator-api.ts";
import { BlockCache } from "./pools/block-cache.ts";
import type { FilterUse } from "./pools/filter-use.ts";
import { InterestTable } from "./pools/interest.ts";
import { poolCounterHelp, SubscriberState } from "./pools/subscriber.ts";
import { type RetainedDatabase, RetentionKeeper, retentionCounterHelp } from "./retention.ts";
import { Shard } from "./shard.ts";
import { LocalLog } from "./shard-log.ts";
import { mapProofKey, type ShardStore } from "./shard-store.ts";
import { openShardStore } from "./shard-store-open.ts";
import { BlockReader } from "./slab/block-reader.ts";
import { Generations } from "./slab/generations.ts";
import { OpenSlabs } from "./slab/open-slabs.ts";
import { WriteGate } from "./write-gate.ts";
import { WriterTable } from "./writers.ts";

export type StoreSettings = {
  /** Folder of the databases. */
  readonly dir: string;
  /** Where damaged bytes are copied to. */
  readonly quarantineDir: string;
  /** Shards of a database made now; existing ones keep theirs. Default 4. */
  readonly shards: number;
  /** Shards of `state`, where they differ. */
  readonly stateShards?: number;
  readonly checkpoint: CheckpointPolicy;
  /** Memory of blocks that are not on disk yet; at its brim appends wait. Default 256 MiB. */
  readonly writeBufferBytesMax: number;
  /** Log bytes queued and not synced, at which appends wait. */
  readonly pendingBytesMax: number;
  /** Decoded blocks kept for readers. Default 64 MiB. */
  readonly blockCacheBytesMax: number;
  /** Sealed slabs open at once for readers; the least used is closed. Default 64. */
  readonly openSlabsMax: number;
  readonly lts: LtsSettings;
  /** What `messages` keeps. Default 7 days. */
  readonly retention: Retention;
  /** Logical bytes at which the generation of one shard ends. Default 1 GiB. */
  readonly generationBytesMax: number;
};

const dayMs = 86_400_000;

export const storeSettingsDefault: Omit<StoreSettings, "dir" | "quarantineDir"> = {
  shards: 4,
  checkpoint: { bytesMax: 64 * 1024 * 1024, ageMsMax: 60_000 },
  writeBufferBytesMax: 256 * 1024 * 1024,
  pendingBytesMax: 32 * 1024 * 1024,
  blockCacheBytesMax: 64 * 1024 * 1024,
  openSlabsMax: 64,
  lts: ltsSettingsDefault,
  retention: { ageMs: 7 * dayMs, bytes: 0 },
  generationBytesMax: 1024 * 1024 * 1024,
};

export type StoreComponents = {
  readonly disk: Disk;
  readonly kv: KvDriver;
  readonly log: WriteAheadLog;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Told each time a named phase is reached: tests stop the process there. */
  readonly phase?: (name: string) => void;
  /** Told once when the store can never write again. */
  readonly onFailure?: (error: CodedError) => void;
};

/** Wait before a failed catch-up read is tried again. */
const readRetryMs = 200;

/** Opens `meta` and `state`; call `start` for the rest. */
export async function openStore(
  settings: StoreSettings,
  components: StoreComponents,
): Promise<LocalStore> {
  const store = new LocalStore(settings, components);
  try {
    await store.openMaps();
    return store;
  } catch (error) {
    await store.close();
    throw error;
  }
}

export class LocalStore implements Store {
  readonly counters = createCounters({ ...poolCounterHelp, ...retentionCounterHelp });
  readonly blockCache: BlockCache;
  readonly openSlabs: OpenSlabs;
  readonly operator = new Operator({ databases: () => [{ name: "messages", logs: this.#logs }] });
  readonly #settings: StoreSettings;
  readonly #components: StoreComponents;
  readonly #checkpointer: Checkpointer;
  readonly #gate: WriteGate;
  readonly #closer = new Closer();
  readonly #turn = new Set<Shard>();
  readonly #shards: Shard[] = [];
  readonly #subscribers = new Set<SubscriberState>();
  #stateShards: readonly MapShard[] = [];
  #messages: DatabaseRecord | undefined;
  #logs: readonly LogShard[] = [];
  #interest: InterestTable<FilterUse> | undefined;
  #failure: CodedError | undefined;
  #retention: RetentionKeeper | undefined;

  constructor(settings: StoreSettings, components: StoreComponents) {
    const { clock, logger } = components;
    this.#settings = settings;
    this.#components = components;
    this.blockCache = new BlockCache(settings.blockCacheBytesMax);
    this.#checkpointer = new Checkpointer(settings.checkpoint, clock, logger);
    this.openSlabs = new OpenSlabs(settings.openSlabsMax);
    const relieve = (): void => {
      for (const log of this.#logs) log.relieve();
    };
    this.#gate = new WriteGate({ settings, log: components.log, clock, relieve });
  }

  async openMaps(): Promise<void> {
    const [meta] = await this.#openMapDatabase(metaDatabase);
    const catalogue = assertPresent(meta, "meta has one shard");
    const { shards, stateShards = shards } = this.#settings;
    const state = await ensureDatabase(catalogue, "state", "map", stateShards);
    this.#messages = await ensureDatabase(catalogue, "messages", "log", shards);
    this.#stateShards = await this.#openMapDatabase(state);
    this.#interest = new InterestTable(
      this.#messages.shards,
      (ordinal) => this.#logs[ordinal]?.appliedUs ?? 0,
    );
  }

  async start(): Promise<void> {
    const messages = assertPresent(this.#messages, "start follows open");
    this.#logs = await openAll(messages.shards, (number, ordinal) =>
      this.#openLogShard(messages, number, ordinal),
    );
    for (const log of this.#logs) this.#checkpointer.watch(log.shard);
    const { clock, logger } = this.#components;
    const databases = (): RetainedDatabase[] => [this.#retained];
    this.#retention = new RetentionKeeper({ clock, logger, databases, counters: this.counters });
  }

  get #retained(): RetainedDatabase {
    const { retention, generationBytesMax } = this.#settings;
    return { name: "messages", logs: this.#logs, retention, generationBytesMax };
  }

  // -------------------------------------------------------------- faces

  get logShards(): readonly ShardNumber[] {
    return assertPresent(this.#messages, "the store is open").shards;
  }

  get stateShards(): readonly MapShardFace[] {
    return this.#stateShards;
  }

  get interest(): InterestFace {
    return this.#interestTable;
  }

  get refusal(): CodedError | undefined {
    return this.#failure ?? this.#gate.refusal;
  }

  readonly evidence: EvidenceFace = {
    open: (publisher, claim) => this.#logOf(publisher).openEvidence(publisher, claim),
    list: (publisher, claim) => this.#logOf(publisher).evidence.list(publisher, claim),
    close: (publisher, claim) => this.#logOf(publisher).evidence.close(publisher, claim),
    end: (publisher, incarnation) => this.#logOf(publisher).endEvidence(publisher, incarnation),
    release: (publisher, claim, packetId, done) =>
      this.#logOf(publisher).release({ publisher, ...claim, packetId }, done),
  };

  state(ownerKey: string): MapShardFace {
    const at = hash32(ownerKey) % this.#stateShards.length;
    return assertPresent(this.#stateShards[at], "the store is open");
  }

  append(request: AppendRequest, done: AppendDone): void {
    if (this.#failure !== undefined) return done(this.#failure, undefined);
    this.#logOf(request.publisher).append(request, done);
  }

  openWriter(name: string, publisher: string): Promise<number> {
    return this.#logOf(publisher).openWriter(name);
  }

  writerResult(stamp: WriterStamp, publisher: string): number | undefined {
    return this.#logOf(publisher).writerResult(stamp);
  }

  closeWriter(name: string, publisher: string): Promise<void> {
    return this.#logOf(publisher).closeWriter(name);
  }

  onceWritable(listener: () => void): Cancel {
    return this.#gate.onceWritable(listener);
  }

  tail(): Map<ShardNumber, number> {
    return new Map(this.#logs.map((log) => [log.number, log.appliedUs]));
  }

  subscribe<T>(options: SubscriberOptions<T>): Subscriber<T> {
    const { clock, logger } = this.#components;
    const parts = {
      sources: this.#logs,
      dispatchedUs: (ordinal: number) => this.#logs[ordinal]?.dispatchedUs ?? 0,
      interest: this.#interestTable,
      counters: this.counters,
      logger,
      nextTurn: () => new Promise<void>((resolve) => clock.soon(resolve)),
      later: (task: () => void) => {
        clock.schedule(readRetryMs, task);
      },
      onClosed: (closed: SubscriberState) => {
        this.#subscribers.delete(closed);
      },
    };
    const subscriber = new SubscriberState(parts, options as SubscriberOptions<unknown>);
    this.#subscribers.add(subscriber);
    // Not at once: the caller has to know the subscriber before it is offered anything.
    clock.soon(() => subscriber.wake());
    return subscriber as unknown as Subscriber<T>;
  }

  fetch(refs: readonly TtvRef[]): Promise<Array<Ttv | undefined>> {
    return Promise.all(
      refs.map((ref) => {
        const log = this.#logs.find((candidate) => candidate.number === ref.shard);
        return log === undefined ? undefined : log.fetch(ref);
      }),
    );
  }

  async rotate(database = "messages"): Promise<void> {
    await Promise.all(this.#logsOf(database).map((log) => log.rotate()));
  }

  async dropUntil(untilUs: number, database = "messages"): Promise<void> {
    await Promise.all(this.#logsOf(database).map((log) => log.dropUntil(untilUs)));
  }

  checkpoint(): Promise<void> {
    return this.#checkpointer.checkpointAll();
  }

  /**
   * Ends without a checkpoint: the log brings back what is not in the slabs. Whoever waits for
   * something that is not durable yet is told STORE_CLOSED.
   */
  async close(): Promise<void> {
    this.#retention?.close();
    this.#checkpointer.close();
    this.#gate.close();
    this.#failure ??= storeErrors.closed();
    for (const subscriber of this.#subscribers) subscriber.close();
    for (const shard of this.#shards) shard.close();
    await this.#closer.close();
  }

  get #interestTable(): InterestTable<FilterUse> {
    return assertPresent(this.#interest, "the store is open");
  }

  #logOf(publisher: string): LogShard {
    const at = hash32(publisher) % this.#logs.length;
    return assertPresent(this.#logs[at], "the store has been started");
  }

  #logsOf(database: string): readonly LogShard[] {
    if (database === "messages") return this.#logs;
    throw storeErrors.databaseMissing({ database });
  }

  // -------------------------------------------------------------- opening

  #openMapDatabase(database: DatabaseRecord): Promise<MapShard[]> {
    return openAll(database.shards, (number) => this.#openMapShard(database, number));
  }

  async #openMapShard(database: DatabaseRecord, number: ShardNumber): Promise<MapShard> {
    const dir = await this.#shardDir(database, number);
    const shardStore = await this.#openShardStore(dir, number);
    const proof = await shardStore.get(mapProofKey);
    const options = { proof, verifyBytesMax };
    const { kv, damage } = await openMended(joinPath(dir, "map"), options, this.#mendParts);
    const map = new MapShard(new MapSlab(kv, (deltaBytes) => this.#gate.addMemory(deltaBytes)));
    this.#closer.own(map);
    const shard = this.#makeShard(number, shardStore, map);
    map.attach(shard);
    const fromIndex = damage === undefined ? undefined : await shard.replayAgain();
    await shard.recover();
    map.claim();
    if (damage !== undefined) {
      const fields = { shard: number, database: database.name, reason: damage.reason };
      const isComplete = damage.isWhole || fromIndex === 1;
      this.#components.logger.error("store.map_mended", { ...fields, fromIndex, isComplete });
    }
    if (damage !== undefined || shardStore.isMended) await this.#proveAgain(shard);
    this.#checkpointer.watch(shard);
    return map;
  }

  async #openLogShard(
    database: DatabaseRecord,
    number: ShardNumber,
    ordinal: number,
  ): Promise<LogShard> {
    const { disk, logger } = this.#components;
    const dir = await this.#shardDir(database, number);
    const shardStore = await this.#openShardStore(dir, number);
    await this.#interestTable.load(ordinal, shardStore);
    const writers = new WriterTable();
    await writers.load(shardStore);
    const reader = new BlockReader({
      cache: this.blockCache,
      disk,
      quarantineDir: this.#settings.quarantineDir,
      logger,
    });
    const generations = await Generations.open(
      {
        dir,
        kv: this.#mendParts,
        logged: (visit) => visitLogged(this.#components.log, number, logger, visit),
        openSlabs: this.openSlabs,
        onSetAside: () => this.#checkpointSoon(number),
        onSealed: () => this.#retention?.grown(log, this.#retained),
        reader,
        lts: this.#settings.lts,
        logger,
        phase: this.#phase,
        onMemory: (deltaBytes) => this.#gate.addMemory(deltaBytes),
      },
      shardStore,
    );
    this.#closer.own(generations);
    const holds = new HoldTable();
    await holds.load(shardStore);
    const log: LogShard = new LogShard({
      ordinal,
      holds,
      evidence: new EvidenceTable(shardStore),
      writers,
      generations,
      interest: this.#interestTable,
      phase: this.#phase,
    });
    const shard = this.#makeShard(number, shardStore, log);
    log.attach(shard);
    await shard.recover();
    await log.begin();
    if (shardStore.isMended) await this.#proveAgain(shard);
    return log;
  }

  async #shardDir(database: DatabaseRecord, number: ShardNumber): Promise<string> {
    const { disk } = this.#components;
    const parent = joinPath(this.#settings.dir, database.name);
    const dir = joinPath(parent, shardFolder(number));
    if (await disk.exists(dir)) return dir;
    await disk.makeDir(dir);
    await disk.syncDir(parent);
    await disk.syncDir(this.#settings.dir);
    return dir;
  }

  async #openShardStore(dir: string, number: ShardNumber): Promise<ShardStore> {
    const store = await openShardStore(dir, number, this.#mendParts);
    this.#closer.own(store);
    return store;
  }

  get #mendParts(): MendParts {
    const { kv, clock, logger, disk } = this.#components;
    return { driver: kv, clock, logger, disk, quarantineDir: this.#settings.quarantineDir };
  }

  /** Without it the next start mends once more, to the same end. */
  async #proveAgain(shard: Shard): Promise<void> {
    await shard.checkpoint().catch(() => undefined); // the shard logged why
  }

  #makeShard(number: ShardNumber, store: ShardStore, machine: ShardMachine): Shard {
    const { log, clock, logger } = this.#components;
    const shardLog = new LocalLog(number, { log, clock, logger, epoch: () => shard.epoch });
    const shard: Shard = new Shard({
      log: shardLog,
      store,
      machine,
      time: new CommitClock(number, clock, logger),
      logger,
      endTurn: (dirty) => this.#endTurn(dirty),
      phase: this.#phase,
      onFailure: (error) => this.#fail(error),
    });
    this.#shards.push(shard);
    return shard;
  }

  /** Entries opened in this turn of the event loop are proposed at its end. */
  #endTurn(shard: Shard): void {
    this.#turn.add(shard);
    if (this.#turn.size > 1) return;
    this.#components.clock.soon(() => {
      const shards = [...this.#turn];
      this.#turn.clear();
      for (const each of shards) each.flush();
    });
  }

  #checkpointSoon(number: ShardNumber): void {
    const shard = this.#shards.find((candidate) => candidate.number === number);
    // A failure is logged by the shard; the next checkpoint will do as well.
    shard?.checkpoint().catch(() => undefined);
  }

  #fail(error: CodedError): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    this.#components.onFailure?.(error);
  }

  readonly #phase = (name: string): void => this.#components.phase?.(name);
}

/** All at once, and to the end of each: what was opened beside a failure is there to be closed. */
async function openAll<T>(
  numbers: readonly ShardNumber[],
  open: (number: ShardNumber, ordinal: number) => Promise<T>,
): Promise<T[]> {
  const opened = await Promise.allSettled(numbers.map(open));
  return opened.map((each) => {
    if (each.status === "rejected") throw each.reason;
    return each.value;
  });
}
