// The store: databases and their shards over one write-ahead log.
//
// Start order: `meta`, then the other map databases (open), then, once the owners of durable filters
// have counted their interest, the log databases (`start`). All callbacks run in the log's order.
// The store opens what is under its directory; the log, the disk and the clocks are given.

import {
  assertPresent,
  type Cancel,
  type Clock,
  type CodedError,
  createCounters,
  type Disk,
  isCodedError,
  type Logger,
} from "../base/index.ts";
import type { KvDriver } from "../kv/index.ts";
import type { WriteAheadLog } from "../log/index.ts";
import type {
  AppendDone,
  AppendRequest,
  AppendRun,
  AppendRunDone,
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
import { ensureDatabase, metaDatabase, readCatalogue } from "./catalog.ts";
import { Checkpointer } from "./checkpointer.ts";
import { requestOf } from "./cooked-run.ts";
import { Databases, type OpenDatabase, shardOf } from "./databases.ts";
import { storeErrors } from "./errors.ts";
import { EvidenceRouter } from "./evidence-router.ts";
import type { LogFront, ShardFronts } from "./fronts.ts";
import { groupCounterHelp } from "./group.ts";
import type { ConsumedFloors } from "./group-keeper.ts";
import { Groups } from "./groups.ts";
import type { LogShard } from "./log-shard.ts";
import { Operator } from "./operator.ts";
import type { DatabaseSpec } from "./operator-api.ts";
import { BlockCache } from "./pools/block-cache.ts";
import type { FilterUse } from "./pools/filter-use.ts";
import { InterestTable } from "./pools/interest.ts";
import { ReadAhead } from "./pools/read-ahead.ts";
import { type PoolState, poolCounterHelp, SubscriberState } from "./pools/subscriber.ts";
import { type RetainedDatabase, RetentionKeeper, retentionCounterHelp } from "./retention.ts";
import { defaultDatabase } from "./routes.ts";
import type { StoreSettings } from "./settings.ts";
import type { Shard } from "./shard.ts";
import type { ShardLogs } from "./shard-log.ts";
import { ShardOpener } from "./shard-opener.ts";
import { BlockReader } from "./slab/block-reader.ts";
import { OpenSlabs } from "./slab/open-slabs.ts";
import { slabCounterHelp } from "./slab/slab-stores.ts";

export type StoreComponents = {
  readonly disk: Disk;
  readonly kv: KvDriver;
  readonly log: WriteAheadLog;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Replicated logs of the shards, in the place of local ones. */
  readonly shardLogs?: ShardLogs;
  /** What sends writes to those who lead the shards. */
  readonly fronts?: ShardFronts;
  /** Told each time a named phase is reached: tests stop the process there. */
  readonly phase?: (name: string) => void;
  /** Told once when the store can never write again. */
  readonly onFailure?: (error: CodedError) => void;
};

/** Wait before a failed catch-up read is tried again. */
const readRetryMs = 200;
/** Wait before a replica looks again whether the catalogue has what it needs. */
const leaderWaitMs = 50;

/** Opens the map databases; call `start` for the rest. */
export async function openStore(
  settings: StoreSettings,
  components: StoreComponents,
): Promise<LocalStore> {
  await components.disk.makeDir(settings.dir);
  const { totalBytes } = await components.disk.space(settings.dir);
  const store = new LocalStore(settings, components, totalBytes);
  try {
    await store.openMaps();
    return store;
  } catch (error) {
    await store.close();
    throw error;
  }
}

export class LocalStore implements Store {
  readonly counters = createCounters({
    ...poolCounterHelp,
    ...retentionCounterHelp,
    ...groupCounterHelp,
  });
  readonly blockCache: BlockCache;
  readonly readAhead: ReadAhead;
  readonly openSlabs: OpenSlabs;
  readonly slabCounters = createCounters(slabCounterHelp);
  /** Counters of those who read slabs. */
  readonly reading: Readonly<Record<"cache" | "blocks" | "slabs" | "open", object>>;
  readonly evidence: EvidenceRouter;
  readonly operator: Operator;
  readonly #settings: StoreSettings;
  readonly #components: StoreComponents;
  readonly #checkpointer: Checkpointer;
  readonly #interest: InterestTable<FilterUse>;
  readonly #databases: Databases;
  readonly #groups: Groups;
  readonly #turn = new Set<Shard>();
  readonly #subscribers = new Set<SubscriberState>();
  /** By ordinal. */
  readonly #sources: LogShard[] = [];
  #retention: RetentionKeeper | undefined;
  #consumed: (() => Promise<ConsumedFloors>) | undefined;
  #failure: CodedError | undefined;

  constructor(settings: StoreSettings, components: StoreComponents, volumeBytes: number) {
    const { disk, kv, log, clock, logger } = components;
    const { dir, quarantineDir } = settings;
    this.#settings = settings;
    this.#components = components;
    this.blockCache = new BlockCache(settings.blockCacheBytesMax);
    this.readAhead = new ReadAhead(settings.readAheadBytesMax, this.counters);
    this.openSlabs = new OpenSlabs(settings.openSlabsMax, settings.restingTriesBytesMax);
    this.#interest = new InterestTable((ordinal) => this.#sources[ordinal]?.appliedUs ?? 0);
    this.#groups = new Groups(settings, {
      ...{ log, clock, logger, disk, volumeBytes, counters: this.counters },
      databases: () => this.#databases.list,
      consumed: () => this.#consumed,
    });
    const checkpoint = this.#groups.checkpointPolicy(settings.checkpoint);
    this.#checkpointer = new Checkpointer(checkpoint, clock, logger);
    const reader = new BlockReader({ cache: this.blockCache, disk, quarantineDir, logger });
    this.reading = {
      cache: this.blockCache.counters,
      blocks: reader.counters,
      slabs: this.slabCounters,
      open: this.openSlabs.counters,
    };
    const opener = new ShardOpener({
      reader,
      ...{ dir, quarantineDir, disk, kv, log, clock, logger, openSlabs: this.openSlabs },
      shardLogs: components.shardLogs,
      ...{ slabCounters: this.slabCounters, mapCopySizes: settings.mapCopySizes },
      phase: (name) => components.phase?.(name),
      endTurn: (shard) => this.#endTurn(shard),
      onFailure: (error) => this.#fail(error),
    });
    this.#databases = new Databases({
      ...{ opener, log, clock, logger, lts: settings.lts, interest: this.#interest },
      fronts: components.fronts,
      checkpointer: this.#checkpointer,
      groupOf: (name) => this.#groups.of(name),
      onSealed: (database, shard) => this.#grown(database, shard),
      onOpened: (database) => this.#opened(database),
      onClosing: (database) => this.#closing(database),
      onMoved: ({ ordinal, appliedUs }, tailUs) => {
        this.#interest.mayHaveMatched(ordinal, appliedUs);
        for (const subscriber of this.#subscribers) subscriber.moved(ordinal, tailUs);
      },
    });
    this.evidence = new EvidenceRouter({
      home: (publisher) => this.#databases.home(publisher),
      others: (publisher) => this.#databases.others(publisher),
    });
    const [databases, groups] = [this.#databases, this.#groups];
    this.operator = new Operator({ databases, groups, log, clock });
  }

  async openMaps(): Promise<void> {
    const { shards, stateShards = shards, retention, topics, databases } = this.#settings;
    const { maps } = await this.#databases.open(metaDatabase);
    const catalogue = assertPresent(maps[0], "meta has one shard");
    await this.#databases.resumeRemovals();
    await this.#ensure(catalogue, { name: "state", layout: "map", shards: stateShards });
    const messages = { name: defaultDatabase, layout: "log", shards, retention, topics } as const;
    await this.#ensure(catalogue, messages);
    for (const spec of databases) await this.#ensure(catalogue, spec);
    for (const record of await readCatalogue(catalogue)) {
      if (record.isDropped) continue;
      if (record.layout === "log") this.#databases.announce(record);
      else await this.#databases.open(record);
    }
  }

  /** A replica waits until whoever leads `meta` has made it. */
  async #ensure(catalogue: MapShardFace, spec: DatabaseSpec): Promise<void> {
    for (;;) {
      try {
        await ensureDatabase(catalogue, spec);
        return;
      } catch (error) {
        if (this.#components.shardLogs === undefined || this.#failure !== undefined) throw error;
        if (!isCodedError(error) || error.kind !== "retry") throw error;
        await new Promise<void>((resolve) => {
          this.#components.clock.schedule(leaderWaitMs, resolve);
        });
      }
    }
  }

  async start(): Promise<void> {
    const catalogue = assertPresent(this.#databases.get("meta").maps[0], "meta has one shard");
    const records = await readCatalogue(catalogue);
    const opened = await Promise.allSettled(
      records
        .filter(({ layout, isDropped }) => layout === "log" && !isDropped)
        .map(async (record) => this.#databases.open(record)),
    );
    for (const each of opened) {
      if (each.status === "rejected") throw each.reason;
      this.#databases.activate(each.value);
      for (const log of each.value.logs) this.#sources[log.ordinal] = log;
    }
    const { clock, logger } = this.#components;
    const retained = (): RetainedDatabase[] =>
      this.#databases.list.map((each) => this.#retained(each));
    this.#retention = new RetentionKeeper({
      ...{ clock, logger, counters: this.counters },
      databases: retained,
    });
    this.#groups.start();
  }

  // -------------------------------------------------------------- faces

  get logShards(): readonly ShardNumber[] {
    return this.#interest.shards;
  }

  /** The database `meta`: what belongs to the node or cluster as a whole. One shard. */
  get meta(): MapShardFace {
    return assertPresent(this.#databases.get("meta").mapFronts[0], "meta has one shard");
  }

  get stateShards(): readonly MapShardFace[] {
    return this.#databases.get("state").mapFronts;
  }

  get interest(): InterestFace {
    return this.#interest;
  }

  get refusal(): CodedError | undefined {
    return this.#failure ?? this.#groups.of(defaultDatabase).gate.refusal;
  }

  refusalOf(topic: string): CodedError | undefined {
    return this.#failure ?? this.#databases.byTopic(topic).group.gate.refusal;
  }

  state(ownerKey: string): MapShardFace {
    return this.#databases.mapShard("state", ownerKey);
  }

  append(request: AppendRequest, done: AppendDone): void {
    if (this.#failure !== undefined) return done(this.#failure, undefined);
    const { group, logFronts, record } = this.#databases.byTopic(request.topic);
    if (request.keep && group.state === "full") {
      const { refusal } = group.gate;
      if (refusal !== undefined) {
        this.counters.quotaRefusals++;
        return done(refusal, undefined);
      }
    }
    const { publisher, keep, writer } = request;
    if (record.name === defaultDatabase || (!keep && writer === undefined)) {
      this.#databases.home(publisher).append(request, done);
      return;
    }
    this.evidence.appendAway(request, shardOf(logFronts, publisher), done);
  }

  /** The same for many at once, and for much less. */
  appendRun(run: AppendRun, done: AppendRunDone): void {
    const { group } = this.#databases.get(defaultDatabase);
    const isPlain = this.#failure === undefined && group.state !== "full";
    const home = isPlain ? this.#databases.home(run.publisher) : undefined;
    if (home?.appendRun !== undefined && this.#databases.routes.keepsAll(run.topics)) {
      home.appendRun(run, done);
      return;
    }
    // One by one each finds its database, or hears why it is refused.
    for (let from = 0; from < run.topics.length; from++) {
      this.append(requestOf(run, from), (error, outcome) => {
        const timeUs = outcome?.kind === "stored" ? outcome.timeUs : 0;
        done(error, { from, count: 1, timeUs });
      });
    }
  }

  shardOf(topic: string, publisher: string): ShardNumber {
    return shardOf(this.#databases.byTopic(topic).logs, publisher).number;
  }

  openWriter(name: string, publisher: string, topic?: string): Promise<number> {
    return this.#writerShard(publisher, topic).openWriter(name);
  }

  writerResult(stamp: WriterStamp, publisher: string, topic?: string): number | undefined {
    return this.#writerShard(publisher, topic).writerResult(stamp);
  }

  closeWriter(name: string, publisher: string, topic?: string): Promise<void> {
    return this.#writerShard(publisher, topic).closeWriter(name);
  }

  get isShared(): boolean {
    return this.#components.shardLogs !== undefined;
  }

  barrier(number: ShardNumber): Promise<void> | undefined {
    const { list } = this.#databases;
    const map = list.flatMap(({ mapFronts }) => mapFronts).find((each) => each.number === number);
    if (map !== undefined) return map.barrier();
    const log = list.flatMap(({ logs }) => logs).find((each) => each.number === number);
    if (log === undefined) throw storeErrors.shardMissing({ shard: number });
    return log.shard.barrier();
  }

  onceWritable(listener: () => void, topic?: string): Cancel {
    const group =
      topic === undefined ? this.#groups.of(defaultDatabase) : this.#databases.byTopic(topic).group;
    return group.gate.onceWritable(listener);
  }

  /** Who says up to where the sessions have everything: asked near a quota. */
  useConsumed(look: () => Promise<ConsumedFloors>): void {
    this.#consumed = look;
  }

  tail(): Map<ShardNumber, number> {
    return new Map(this.#databases.logs.map((log) => [log.number, log.appliedUs]));
  }

  subscribe<T>(options: SubscriberOptions<T>): Subscriber<T> {
    const { clock, logger } = this.#components;
    const parts = {
      sources: this.#databases.logs,
      interest: this.#interest,
      counters: this.counters,
      readAhead: this.readAhead,
      wideStreamsMin: this.#settings.wideStreamsMin,
      logger,
      nowMs: () => clock.elapsedMs(),
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
    const { logs } = this.#databases;
    return Promise.all(
      refs.map((ref) => logs.find((candidate) => candidate.number === ref.shard)?.fetch(ref)),
    );
  }

  /** How its readers stand now. */
  pools(): PoolState {
    const state: PoolState = { tail: 0, behind: 0, stuck: 0, lagUsMax: 0 };
    for (const subscriber of this.#subscribers) subscriber.addTo(state);
    return state;
  }

  async rotate(database?: string): Promise<void> {
    await this.operator.rotate(database);
  }

  async dropUntil(untilUs: number, database = defaultDatabase): Promise<void> {
    await this.operator.dropUntil(untilUs, { database });
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
    this.#groups.close();
    this.#failure ??= storeErrors.closed();
    for (const subscriber of this.#subscribers) subscriber.close();
    for (const { shards } of this.#databases.list) for (const { shard } of shards) shard.close();
    await this.#databases.close();
  }

  // -------------------------------------------------------------- inside

  /** A writer's results are where its topics go. */
  #writerShard(publisher: string, topic: string | undefined): LogFront {
    if (topic === undefined) return this.#databases.home(publisher);
    return shardOf(this.#databases.byTopic(topic).logFronts, publisher);
  }

  #retained({ record, logs, group }: OpenDatabase): RetainedDatabase {
    const { name, retention } = record;
    const { generationBytesMax } = this.#settings;
    const ownBytes = this.#groups.generationBytes(group, retention);
    return { name, logs, retention, generationBytesMax: generationBytesMax || ownBytes };
  }

  #grown(database: OpenDatabase, log: LogShard): void {
    this.#retention?.grown(log, this.#retained(database));
    this.#groups.grown(database.group);
  }

  async #opened({ logs, logFronts }: OpenDatabase): Promise<void> {
    if (logs.length === 0) return;
    await this.evidence.cover((publisher) => shardOf(logFronts, publisher));
    for (const log of logs) {
      this.#sources[log.ordinal] = log;
      for (const subscriber of this.#subscribers) subscriber.addSource(log);
    }
  }

  #closing({ logs }: OpenDatabase): void {
    for (const log of logs) {
      for (const subscriber of this.#subscribers) subscriber.removeSource(log);
    }
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

  #fail(error: CodedError): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    this.#components.onFailure?.(error);
  }
}
