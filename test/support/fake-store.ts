// A small in-memory store behind the store's face: arrays, brute-force matching, one log for all
// shards whose flushes take `commitMs` of the simulated clock. Its data outlives `crash()`; what was
// not flushed is gone, or not, as the test says. It is the model in property tests.

import { type Cancel, CodedError, hash32, type SimClock } from "../../src/base/index.ts";
import type {
  AppendDone,
  AppendRequest,
  EvidenceFace,
  InterestFace,
  MapEntry,
  MapGuard,
  MapShard,
  MapTransaction,
  MapWatcher,
  MapWrite,
  MatchTimes,
  Positions,
  PublisherClaim,
  ShardNumber,
  Store,
  Subscriber,
  SubscriberOptions,
  Ttv,
  TtvRef,
  WriterStamp,
} from "../../src/store/index.ts";
import { FakeSubscriber, type Row, topicMatches } from "./fake-subscriber.ts";

export { topicMatches };

type FakeWriter = { epoch: number; results: Map<number, number> };
type Evidence = { ownerEpoch: number; incarnation: number; ids: Set<number> };

/** What lies on the disk. */
export type FakeData = {
  readonly logs: Map<ShardNumber, Row[]>;
  readonly maps: Map<ShardNumber, Map<string, MapEntry>>;
  readonly lastUs: Map<ShardNumber, number>;
  readonly evidence: Map<string, Evidence>;
  readonly writers: Map<string, FakeWriter>;
};

export type FakeOptions = {
  readonly commitMs?: number;
  readonly logShards?: number;
  readonly stateShards?: number;
  /** Whether `wake` offers within the call, as from memory, or later, as from the disk. */
  readonly wake?: "now" | "soon";
  /** As if other nodes wrote as well: what is behind it has come here. */
  readonly barrier?: (shard: ShardNumber) => Promise<void>;
};

type Item = { apply(): () => void };

export function createFakeData(options: FakeOptions = {}): FakeData {
  const logs = new Map<ShardNumber, Row[]>();
  const maps = new Map<ShardNumber, Map<string, MapEntry>>();
  for (let index = 0; index < (options.stateShards ?? 2); index++) maps.set(1 + index, new Map());
  for (let index = 0; index < (options.logShards ?? 2); index++) logs.set(101 + index, []);
  return { logs, maps, lastUs: new Map(), evidence: new Map(), writers: new Map() };
}

export class FakeStore implements Store {
  readonly data: FakeData;
  readonly clock: SimClock;
  readonly options: FakeOptions;
  readonly logShards: readonly ShardNumber[];
  readonly stateShards: readonly FakeMapShard[];
  readonly interest: FakeInterest;
  readonly evidence: EvidenceFace;
  readonly refusal = undefined;

  refusalOf(): undefined {
    return undefined;
  }

  /** Set: writes of maps fail with it. */
  failWrites: CodedError | undefined;
  failFetch: CodedError | undefined;
  writeCount = 0;
  readonly evidenceEnded: string[] = [];
  #queue: Item[] = [];
  #flushing: Item[] = [];
  #scheduled = false;
  #dead = false;
  readonly #subscribers = new Set<FakeSubscriber<unknown>>();

  constructor(clock: SimClock, options: FakeOptions = {}, data = createFakeData(options)) {
    this.clock = clock;
    this.options = options;
    this.data = data;
    this.logShards = [...data.logs.keys()];
    this.stateShards = [...data.maps.keys()].map((number) => new FakeMapShard(this, number));
    this.interest = new FakeInterest(data);
    this.evidence = this.#createEvidence();
  }

  state(ownerKey: string): FakeMapShard {
    return this.stateShards[hash32(ownerKey) % this.stateShards.length]!;
  }

  get isShared(): boolean {
    return this.options.barrier !== undefined;
  }

  barrier(shard: ShardNumber): Promise<void> | undefined {
    return this.options.barrier?.(shard);
  }

  tail(): Map<ShardNumber, number> {
    return new Map(this.logShards.map((shard) => [shard, this.data.lastUs.get(shard) ?? 0]));
  }

  shardOf(_topic: string, publisher: string): ShardNumber {
    return this.logShards[hash32(publisher) % this.logShards.length]!;
  }

  append(request: AppendRequest, done: AppendDone): void {
    const shard = this.shardOf(request.topic, request.publisher);
    this.enqueue({
      apply: () => {
        const { evidence } = request;
        if (evidence !== undefined) {
          const known = this.#evidenceOf(request.publisher, evidence);
          if (known === undefined) {
            return () => done(storeError("STORE_OWNER_FENCED", "conflict"), undefined);
          }
          if (known.ids.has(evidence.packetId)) {
            return () => done(undefined, { kind: "repeat" });
          }
          known.ids.add(evidence.packetId);
        }
        const { writer } = request;
        const known = writer === undefined ? undefined : this.data.writers.get(writer.name);
        if (writer !== undefined && known?.epoch !== writer.epoch) {
          return () => done(storeError("STORE_WRITER_FENCED", "conflict"), undefined);
        }
        const before = writer === undefined ? undefined : known?.results.get(writer.sequence);
        if (before !== undefined) return () => done(undefined, { kind: "stored", timeUs: before });
        const timeUs = this.nextUs(shard);
        if (writer !== undefined) known?.results.set(writer.sequence, timeUs);
        if (request.keep) this.data.logs.get(shard)!.push(rowOf(request, shard, timeUs));
        return () => {
          done(undefined, { kind: "stored", timeUs });
          if (request.keep) this.#pumpAll();
        };
      },
    });
  }

  openWriter(name: string, publisher: string): Promise<number> {
    const shard = this.shardOf("", publisher);
    return new Promise((resolve) => {
      this.enqueue({
        apply: () => {
          const epoch = this.nextUs(shard);
          this.data.writers.set(name, { epoch, results: new Map() });
          return () => resolve(epoch);
        },
      });
    });
  }

  writerResult(stamp: WriterStamp): number | undefined {
    const writer = this.data.writers.get(stamp.name);
    return writer?.epoch === stamp.epoch ? writer.results.get(stamp.sequence) : undefined;
  }

  closeWriter(name: string): Promise<void> {
    return new Promise((resolve) => {
      this.enqueue({
        apply: () => {
          this.data.writers.delete(name);
          return resolve;
        },
      });
    });
  }

  onceWritable(listener: () => void): Cancel {
    listener();
    return () => undefined;
  }

  subscribe<T>(options: SubscriberOptions<T>): Subscriber<T> {
    const subscriber = new FakeSubscriber<T>(this, options, () => this.#subscribers.delete(owner));
    const owner = subscriber as FakeSubscriber<unknown>;
    this.#subscribers.add(owner);
    this.clock.soon(() => this.run(() => subscriber.pump()));
    return subscriber;
  }

  fetch(refs: readonly TtvRef[]): Promise<Array<Ttv | undefined>> {
    return new Promise((resolve, reject) => {
      this.clock.schedule(this.options.commitMs ?? 1, () =>
        this.run(() => {
          if (this.failFetch !== undefined) {
            reject(this.failFetch);
            return;
          }
          resolve(
            refs.map((ref) =>
              this.data.logs.get(ref.shard)?.find((row) => row.timeUs === ref.timeUs),
            ),
          );
        }),
      );
    });
  }

  rotate(): Promise<void> {
    return Promise.resolve();
  }

  dropUntil(untilUs: number): Promise<void> {
    for (const [shard, rows] of this.data.logs) {
      for (const subscriber of this.#subscribers) subscriber.dropped(shard, untilUs);
      this.data.logs.set(
        shard,
        rows.filter((row) => row.timeUs > untilUs),
      );
    }
    return Promise.resolve();
  }

  checkpoint(): Promise<void> {
    return Promise.resolve();
  }

  start(): Promise<void> {
    return Promise.resolve();
  }

  close(): Promise<void> {
    this.#dead = true;
    return Promise.resolve();
  }

  /**
   * The process dies. Of the flush under way the first `flushed` items are on the disk although
   * nobody was told.
   */
  crash(flushed = 0): FakeStore {
    this.#dead = true;
    for (const item of this.#flushing.slice(0, flushed)) item.apply();
    return new FakeStore(this.clock, this.options, this.data);
  }

  /** Items of the flush under way, that is the most a crash may keep. */
  get flushingCount(): number {
    return this.#flushing.length;
  }

  // ------------------------------------------------------------ for the parts below

  run(task: () => void): void {
    if (!this.#dead) task();
  }

  nextUs(shard: ShardNumber): number {
    const timeUs = Math.max((this.data.lastUs.get(shard) ?? 0) + 1, this.clock.wallUs());
    this.data.lastUs.set(shard, timeUs);
    return timeUs;
  }

  enqueue(item: Item): void {
    if (this.#dead) return;
    this.#queue.push(item);
    this.#flushSoon();
  }

  #flushSoon(): void {
    if (this.#scheduled || this.#queue.length === 0) return;
    this.#scheduled = true;
    this.clock.soon(() => {
      this.#flushing = this.#queue;
      this.#queue = [];
      this.clock.schedule(this.options.commitMs ?? 1, () => this.run(() => this.#flushed()));
    });
  }

  #flushed(): void {
    const flushed = this.#flushing;
    this.#flushing = [];
    for (const item of flushed) {
      const tell = item.apply();
      this.run(tell);
    }
    this.#scheduled = false;
    this.#flushSoon();
  }

  #pumpAll(): void {
    for (const subscriber of [...this.#subscribers]) subscriber.pump();
  }

  #evidenceOf(publisher: string, claim: PublisherClaim): Evidence | undefined {
    const known = this.data.evidence.get(publisher);
    if (known === undefined || known.incarnation < claim.incarnation) {
      const fresh = { ...claim, ids: new Set<number>() };
      this.data.evidence.set(publisher, fresh);
      return fresh;
    }
    if (claim.ownerEpoch < known.ownerEpoch) return undefined;
    known.ownerEpoch = claim.ownerEpoch;
    return known;
  }

  #createEvidence(): EvidenceFace {
    return {
      open: async (publisher, claim) => {
        this.#evidenceOf(publisher, claim);
      },
      list: (publisher) =>
        [...(this.data.evidence.get(publisher)?.ids ?? [])].sort((a, b) => a - b),
      release: (publisher, claim, packetId, done) => {
        this.enqueue({
          apply: () => {
            const known = this.#evidenceOf(publisher, claim)?.ids.delete(packetId) ?? false;
            return () => done(undefined, known);
          },
        });
      },
      close: () => undefined,
      end: (publisher, incarnation) =>
        new Promise((resolve) => {
          this.enqueue({
            apply: () => {
              if (this.data.evidence.get(publisher)?.incarnation === incarnation) {
                this.data.evidence.delete(publisher);
              }
              this.evidenceEnded.push(publisher);
              return resolve;
            },
          });
        }),
    };
  }
}

class FakeInterest implements InterestFace {
  readonly counts = new Map<string, number>();
  readonly #data: FakeData;

  constructor(data: FakeData) {
    this.#data = data;
  }

  wants(topic: string): boolean {
    return [...this.counts.keys()].some((filter) => topicMatches(filter, topic));
  }

  add(filter: string): void {
    this.counts.set(filter, (this.counts.get(filter) ?? 0) + 1);
  }

  remove(filter: string): void {
    const count = this.counts.get(filter) ?? 0;
    if (count === 0) throw new Error(`interest of ${filter} removed once too often`);
    if (count === 1) this.counts.delete(filter);
    else this.counts.set(filter, count - 1);
  }

  lastMatchUs(filter: string, shard: ShardNumber): number | undefined {
    if (!this.counts.has(filter)) return undefined;
    const rows = this.#data.logs.get(shard) ?? [];
    return rows.findLast((row) => topicMatches(filter, row.topic))?.timeUs ?? 0;
  }

  timesOf(filter: string): MatchTimes {
    return { filter: { text: filter } };
  }

  anyWaits(filters: Iterable<MatchTimes | undefined>, after: Positions, nowUs: number): boolean {
    const shards = [...this.#data.logs.keys()];
    return [...filters].some((times) =>
      shards.some((shard) => {
        const when = { afterUs: after.get(shard) ?? 0, nowUs };
        return times === undefined || this.mayWait(times.filter.text, shard, when);
      }),
    );
  }

  mayWait(
    filter: string,
    shard: ShardNumber,
    { afterUs, nowUs }: { readonly afterUs: number; readonly nowUs: number },
  ): boolean | undefined {
    if (!this.counts.has(filter)) return undefined;
    const rows = this.#data.logs.get(shard) ?? [];
    return rows.some(
      ({ timeUs, topic, expiryUs }) =>
        timeUs > afterUs && topicMatches(filter, topic) && (expiryUs === 0 || expiryUs > nowUs),
    );
  }
}

export class FakeMapShard implements MapShard {
  readonly number: ShardNumber;
  readonly #store: FakeStore;

  constructor(store: FakeStore, number: ShardNumber) {
    this.#store = store;
    this.number = number;
  }

  get appliedUs(): number {
    return this.#store.data.lastUs.get(this.number) ?? 0;
  }

  get #map(): Map<string, MapEntry> {
    return this.#store.data.maps.get(this.number)!;
  }

  /** Keys in order, for assertions. */
  keys(): string[] {
    return this.#sorted("").map(([, key]) => key);
  }

  get(key: string): Promise<MapEntry | undefined> {
    return this.#read(() => this.#map.get(key));
  }

  list(prefix: string, options: { afterKey?: string; countMax: number }): Promise<MapEntry[]> {
    return this.#read(() => this.#listNow(prefix, options).slice(0, options.countMax));
  }

  match(prefix: string, filter: string, options: { afterKey?: string; countMax: number }) {
    return this.#read(() => {
      const found = this.#listNow(prefix, options).filter((entry) =>
        topicMatches(filter, entry.key.slice(prefix.length)),
      );
      const entries = found.slice(0, options.countMax);
      const more = found.length > entries.length;
      return { entries, nextAfterKey: more ? entries.at(-1)!.key : undefined, keysRead: 0 };
    });
  }

  write(
    writes: readonly MapWrite[],
    guards: readonly MapGuard[],
    done: (error: CodedError | undefined, timeUs: number) => void,
  ): void {
    // Bytes belong to the caller again after the call.
    const kept = writes.map(({ key, value }) => ({
      key,
      value: value === undefined ? undefined : Buffer.from(value),
    }));
    this.#store.writeCount++;
    const failure = this.#store.failWrites;
    this.#store.enqueue({
      apply: () => {
        if (failure !== undefined) return () => done(failure, 0);
        for (const guard of guards) {
          if (this.#map.get(guard.key)?.timeUs !== guard.timeUs) {
            return () => done(storeError("STORE_GUARD_FAILED", "conflict"), 0);
          }
        }
        const timeUs = this.#apply(kept);
        return () => done(undefined, timeUs);
      },
    });
  }

  async transact<T>(
    body: (tx: MapTransaction) => Promise<T>,
  ): Promise<{ timeUs: number; value: T }> {
    const writes: MapWrite[] = [];
    const value = await body({
      get: (key) => this.get(key),
      list: (prefix, countMax) => this.list(prefix, { countMax }),
      put: (key, bytes) => writes.push({ key, value: bytes }),
      delete: (key) => writes.push({ key, value: undefined }),
      assertPresent: () => undefined,
      assertAbsent: () => undefined,
    });
    return new Promise((resolve, reject) => {
      this.write(writes, [], (error, timeUs) =>
        error === undefined ? resolve({ timeUs, value }) : reject(error),
      );
    });
  }

  readonly #watches = new Set<{ prefix: string; watcher: MapWatcher }>();

  watch(prefix: string, watcher: MapWatcher): Cancel {
    const watch = { prefix, watcher };
    this.#watches.add(watch);
    return () => void this.#watches.delete(watch);
  }

  barrier(): Promise<void> | undefined {
    return this.#store.barrier(this.number);
  }

  #apply(writes: readonly MapWrite[]): number {
    const timeUs = this.#store.nextUs(this.number);
    for (const { key, value } of writes) {
      if (value === undefined) this.#map.delete(key);
      else this.#map.set(key, { key, timeUs, value: Buffer.from(value) });
      const written = this.#map.get(key)?.value;
      this.#store.run(() => {
        for (const { prefix, watcher } of this.#watches) {
          if (key.startsWith(prefix)) watcher.applied(key, written);
        }
      });
    }
    return timeUs;
  }

  #listNow(prefix: string, options: { afterKey?: string }): MapEntry[] {
    const after = options.afterKey === undefined ? "" : sortKey(options.afterKey);
    return this.#sorted(prefix)
      .filter(([order]) => order > after)
      .map(([, key]) => this.#map.get(key)!);
  }

  #sorted(prefix: string): Array<readonly [order: string, key: string]> {
    const keys: Array<readonly [string, string]> = [];
    for (const key of this.#map.keys()) {
      if (key.startsWith(prefix)) keys.push([sortKey(key), key]);
    }
    return keys.sort(([a], [b]) => (a < b ? -1 : 1));
  }

  #read<T>(read: () => T): Promise<T> {
    return new Promise((resolve) => {
      this.#store.clock.soon(() => this.#store.run(() => resolve(read())));
    });
  }
}

export function storeError(code: string, kind: CodedError["kind"]): CodedError {
  return new CodedError(code, kind, `fake store: ${code}`, {});
}

function rowOf(request: AppendRequest, shard: ShardNumber, timeUs: number): Row {
  const { topic, publisher, form, qos, retain, expiryUs, expiryOffset } = request;
  const frame = Buffer.from(request.frame);
  const ref = { shard, generation: 1, stream: 1, timeUs };
  return { topic, publisher, form, qos, retain, expiryUs, expiryOffset, frame, timeUs, ref };
}

/** Sorts level by level: the separator counts as lower than every character. */
function sortKey(key: string): string {
  return key.replaceAll("/", "\u0000");
}
