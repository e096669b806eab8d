// A shard of a map database: latest value per key, blind writes with guards, optimistic
// transactions (docs/architecture.md, "Writing").
//
// Decisions are made in call order against `proposed` (decided, not yet durable) over the slab's
// applied state; a decision that needs a key which is only on disk waits for it, and later ones
// wait behind it, but for writes without conditions to other keys. Replay is idempotent: every item
// holds absolute values.

import {
  assertPresent,
  type ByteReader,
  type Cancel,
  type CodedError,
  type Counters,
  createCounters,
  isCodedError,
  toError,
} from "../../base/index.ts";
import type { KvEntry } from "../../kv/index.ts";
import type {
  MapEntry,
  MapGuard,
  MapShard as MapShardFace,
  MapTransaction,
  MapWatcher,
  MapWrite,
  WriterStamp,
} from "../api.ts";
import type { CopySource } from "../copies/copy-source.ts";
import type { StagedMap } from "../copies/map-staging.ts";
import { MapSupply } from "../copies/map-supply.ts";
import type { StagedState } from "../copies/staged.ts";
import { putRecord, RecentWrites } from "../core/conflicts.ts";
import { storeErrors } from "../errors.ts";
import { asCodedError } from "../evidence.ts";
import type { MapReplica } from "../fronts.ts";
import { namesBytesMax } from "../log-items.ts";
import type { CheckpointImage, Item, ShardMachine } from "../machine.ts";
import type { Shard } from "../shard.ts";
import { mapProofKey, rowPrefix, type ShardStore } from "../shard-store.ts";
import { readStamped, Stamping } from "../stamped.ts";
import { type Decided, refusalOf, refusals, type ShardRequest } from "../verdict.ts";
import { WriterTable } from "../writers.ts";
import { mapKeyError } from "./keys.ts";
import type { MapSlab } from "./map-slab.ts";
import { encodeWrites, readRecords, writesBytesMax } from "./map-writes.ts";
import { type Commit, TransactionRunner } from "./transaction.ts";
import type { Version } from "./value.ts";
import { MapWatches } from "./watches.ts";

/** All but the first are of replicas alone. */
export const mapItemKind = { write: 1, stamped: 2, openWriter: 3 } as const;

export const mapCounterHelp = {
  keysWritten: "keys put or deleted",
  conflicts: "transactions that had to start again",
  guardsFailed: "writes refused because a guard did not hold",
};

/** Copies the rows of another replica into a new slab; `settle` removes the old one. */
export type StageMap = (
  source: CopySource,
) => Promise<
  Pick<StagedMap, "rows" | "counts"> & { readonly slab: MapSlab; settle(): Promise<void> }
>;

/** The newest version of a key, proposed ones included. */
type Newest = (key: string) => Version;

/** A write that waits for its turn to be decided. */
type Decision = {
  /** Keys whose newest version must be known before `decide` runs. */
  readonly needs: readonly string[];
  readonly decide: (newest: Newest) => CodedError | undefined;
  readonly writes: readonly MapWrite[];
  readonly done: (error: CodedError | undefined, timeUs: number) => void;
  /** Asked for by another node: decided once under its stamp, whatever comes of it. */
  readonly asked?: Asked;
};

type Asked = {
  readonly stamp: WriterStamp;
  readonly request: ShardRequest;
  readonly decided: Decided;
};

/** What becomes of a shard that is replicated. */
export type MapReplicaParts = {
  readonly stage: StageMap;
  /** Loads them anew, once the stores hold what another replica had. */
  readonly loadWriters: () => Promise<WriterTable>;
};

export class MapShard implements MapShardFace, ShardMachine, MapReplica {
  readonly counters: Counters<typeof mapCounterHelp> = createCounters(mapCounterHelp);
  /** Another one once its rows were copied from another replica. */
  #slab: MapSlab;
  readonly #replica: MapReplicaParts | undefined;
  /** Of the nodes that ask for writes. */
  #writers = new WriterTable();
  readonly #stamping = new Stamping(mapItemKind.stamped);
  #recent = new RecentWrites(0);
  readonly #proposed = new Map<string, Version>();
  readonly #queue: Decision[] = [];
  readonly #transactions = new TransactionRunner({
    ...{ get: (key) => this.get(key), list: (prefix, options) => this.list(prefix, options) },
    ...{ commit: (commit) => this.#commit(commit), afterConflict: () => this.#afterConflict() },
    readUs: () => this.appliedUs,
  });
  /** Those who wait for what was proposed when they came, in order. */
  readonly #onApplied: Array<{ readonly untilUs: number; readonly resolve: () => void }> = [];
  readonly #watches = new MapWatches(
    (call) => this.shard.callSafely(call),
    (error) => this.shard.fail(storeErrors.failed({ reason: toError(error).message }, error)),
  );
  #proposedUs = 0;
  /** Counts how often this process was deposed. */
  #reign = 0;
  #pumping = false;
  #shard: Shard | undefined;

  constructor(slab: MapSlab, replica?: MapReplicaParts) {
    this.#slab = slab;
    this.#replica = replica;
  }

  /** Before anything is replayed. */
  async load(): Promise<void> {
    if (this.#replica !== undefined) this.#writers = await this.#replica.loadWriters();
  }

  /** Closes the circle of shard and machine; called once, before anything else. */
  attach(shard: Shard): void {
    this.#shard = shard;
    this.#superintend(this.#slab);
  }

  #superintend(slab: MapSlab): void {
    slab.onFailure((error) => {
      this.shard.fail(storeErrors.failed({ reason: error.message }, error));
    });
  }

  /** Replay is over: transactions read from now on, and are judged by writes from now on. */
  claim(): void {
    this.#recent = new RecentWrites(this.appliedUs);
  }

  get number(): number {
    return this.shard.number;
  }

  get appliedUs(): number {
    return this.shard.appliedUs;
  }

  get shard(): Shard {
    return assertPresent(this.#shard, "map shard without its engine");
  }

  get failure(): CodedError | undefined {
    return this.shard.failure;
  }

  whenApplied(timeUs: number, then: () => void): void {
    this.shard.whenApplied(timeUs, then);
  }

  callSafely(call: () => void): void {
    this.shard.callSafely(call);
  }

  sizeError(sizeBytes: number): CodedError | undefined {
    return this.shard.sizeError(sizeBytes);
  }

  /** For the logical hash. */
  writerStates(): string[] {
    return this.#writers.states();
  }

  async get(key: string): Promise<MapEntry | undefined> {
    const version = await this.#read((slab) => slab.load(key));
    return version.value === undefined
      ? undefined
      : { key, timeUs: version.timeUs, value: version.value };
  }

  list(prefix: string, options: { afterKey?: string; countMax: number }): Promise<MapEntry[]> {
    return this.#read((slab) => slab.list(prefix, options));
  }

  match(
    prefix: string,
    filter: string,
    options: { afterKey?: string; countMax: number },
  ): Promise<{ entries: MapEntry[]; nextAfterKey: string | undefined; keysRead: number }> {
    return this.#read((slab) => slab.match(prefix, filter, options));
  }

  /** The copy that the next checkpoint writes says nothing of deleted rows. */
  renewCopy(): void {
    this.#slab.renewCopy();
  }

  /** Deleted rows give their room back. */
  compact(): Promise<void> {
    return this.#read((slab) => slab.compact());
  }

  /** Once more where the slab gave way to another while it was read. */
  async #read<T>(read: (slab: MapSlab) => Promise<T>): Promise<T> {
    for (;;) {
      const slab = this.#slab;
      try {
        return await read(slab);
      } catch (error) {
        if (slab === this.#slab) throw error;
      }
    }
  }

  write(
    writes: readonly MapWrite[],
    guards: readonly MapGuard[],
    done: (error: CodedError | undefined, timeUs: number) => void,
  ): void {
    this.#submit({
      needs: guards.map((guard) => guard.key),
      decide: (newest) => this.#checkGuards(guards, newest),
      writes,
      done,
    });
  }

  transact<T>(body: (tx: MapTransaction) => Promise<T>): Promise<{ timeUs: number; value: T }> {
    return this.#transactions.run(body);
  }

  watch(prefix: string, watcher: MapWatcher): Cancel {
    return this.#watches.add(prefix, watcher);
  }

  barrier(): Promise<void> | undefined {
    return this.shard.barrier()?.then(() => this.#watches.settled);
  }

  /** Resolves when what is proposed now has been applied: only then can a read see it. */
  #afterConflict(): Promise<void> {
    this.counters.conflicts++;
    if (this.#proposed.size === 0 || this.shard.refusal !== undefined) return Promise.resolve();
    const untilUs = this.#proposedUs;
    return new Promise((resolve) => this.#onApplied.push({ untilUs, resolve }));
  }

  // -------------------------------------------------------------- deciding

  #commit(commit: Commit): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#submit({
        needs: [...commit.present, ...commit.absent],
        decide: (newest) => this.#checkTransaction(commit, newest),
        writes: commit.writes,
        done: (error, timeUs) => (error === undefined ? resolve(timeUs) : reject(error)),
      });
    });
  }

  takes(kind: ShardRequest["kind"]): boolean {
    return kind === "write" || kind === "commit";
  }

  prepare(): undefined {
    return undefined;
  }

  /** Opens a writer; its epoch is the commit time of the opening. */
  async openWriter(name: string): Promise<number> {
    const sizeBytes = namesBytesMax(name);
    const refusal = this.shard.refusal ?? this.shard.sizeError(sizeBytes);
    if (refusal !== undefined) throw refusal;
    this.#writers.decideOpen(name, this.appliedUs);
    return new Promise((resolve, reject) => {
      const timeUs = this.shard.cook({
        ...{ kind: mapItemKind.openWriter, sizeBytes },
        encode: (writer) => void writer.string(name),
        done: (error) => (error === undefined ? resolve(timeUs) : reject(error)),
      });
    });
  }

  take(stamp: WriterStamp, request: ShardRequest, decided: Decided): void {
    const done = (error: CodedError | undefined): void => decided(error, 0, 0);
    const asked = { stamp, request, decided };
    if (request.kind === "write") {
      const { writes, guards } = request;
      const decide = (newest: Newest) => this.#checkGuards(guards, newest);
      this.#submit({ needs: guards.map(({ key }) => key), decide, writes, done, asked });
    } else if (request.kind === "commit") {
      const { commit } = request;
      const decide = (newest: Newest) => this.#checkTransaction(commit, newest);
      const needs = [...commit.present, ...commit.absent];
      this.#submit({ needs, decide, writes: commit.writes, done, asked });
    }
  }

  #submit(decision: Decision): void {
    const error = this.writesError(decision.writes);
    if (error !== undefined) {
      decision.done(error, 0);
      return;
    }
    if (this.#waitsForNobody(decision) && this.#areKnown(decision.needs)) {
      this.#decide(decision, nothingLoaded);
      return;
    }
    this.#queue.push(decision);
    if (!this.#pumping) void this.#pump();
  }

  /**
   * A write without conditions passes those that wait for the disk, unless they share a key: a
   * retained put must be in the log before the message that its caller appends next.
   */
  #waitsForNobody({ needs, writes, asked }: Decision): boolean {
    if (this.#queue.length === 0) return true;
    // Those of another node are decided in its order.
    if (needs.length > 0 || asked !== undefined) return false;
    const keys = new Set(writes.map(({ key }) => key));
    return !this.#queue.some(
      (other) =>
        other.needs.some((key) => keys.has(key)) || other.writes.some(({ key }) => keys.has(key)),
    );
  }

  #areKnown(keys: readonly string[]): boolean {
    return keys.every((key) => this.#peek(key) !== undefined);
  }

  writesError(writes: readonly MapWrite[]): CodedError | undefined {
    for (const { key } of writes) {
      const error = mapKeyError(key);
      if (error !== undefined) return error;
    }
    return this.shard.sizeError(writesBytesMax(writes));
  }

  async #pump(): Promise<void> {
    this.#pumping = true;
    for (let next = this.#queue[0]; next !== undefined; next = this.#queue[0]) {
      const decision = next;
      // Nothing is decided before this one, so what is loaded now stays the newest.
      const loaded = new Map<string, Version>();
      try {
        // What was known may be forgotten again while others are loaded: pushed out of the cache, or
        // deleted and written.
        for (let isComplete = false; !isComplete; ) {
          isComplete = true;
          for (const key of decision.needs) {
            if ((this.#peek(key) ?? loaded.get(key)) !== undefined) continue;
            isComplete = false;
            loaded.set(key, await this.#read((slab) => slab.load(key)));
          }
        }
        this.#queue.shift();
        this.shard.callSafely(() => this.#decide(decision, loaded));
      } catch (error) {
        this.#queue.shift();
        const failure = isCodedError(error)
          ? error
          : storeErrors.failed({ reason: toError(error).message }, error);
        this.shard.callSafely(() => decision.done(failure, 0));
      }
    }
    this.#pumping = false;
  }

  #decide(decision: Decision, loaded: ReadonlyMap<string, Version>): void {
    const newest = (key: string): Version =>
      assertPresent(this.#peek(key) ?? loaded.get(key), "a key that was loaded is known");
    if (decision.asked !== undefined) return this.#decideAsked(decision.asked, decision, newest);
    const refusal = this.shard.refusal ?? decision.decide(newest);
    if (refusal !== undefined) {
      decision.done(refusal, 0);
      return;
    }
    if (decision.writes.length === 0) this.#answer(decision);
    else this.#propose(decision);
  }

  #decideAsked(asked: Asked, { decide, writes }: Decision, newest: Newest): void {
    const { stamp, request, decided } = asked;
    if (this.shard.refusal !== undefined) return decided(this.shard.refusal, 0, 0);
    let error: CodedError | undefined;
    try {
      const known = this.#writers.decide(stamp, (lost, timeUs, why) => {
        this.shard.callSafely(() => decided(lost, timeUs, why));
      });
      if (known === "repeat") return;
      error = decide(newest);
    } catch (fault) {
      this.#writers.undecide(stamp);
      return decided(asCodedError(fault), 0, 0);
    }
    const refusal = error === undefined ? refusals.none : refusalOf(error, request);
    if (refusal === undefined) {
      this.#writers.undecide(stamp);
      return decided(error, 0, 0);
    }
    this.#stamping.begin({
      stamp,
      decided: (lost, timeUs, why) => {
        if (lost !== undefined) this.#writers.refuse(stamp, lost);
        decided(lost, timeUs, why);
      },
    });
    if (refusal === refusals.none) return this.#propose({ writes, done: () => undefined });
    const left = assertPresent(this.#stamping.end(), "what was begun");
    this.shard.cook(this.#stamping.item(left, undefined, refusal));
    this.shard.flush();
  }

  /** Writes nothing. What it was decided on may not be durable yet: then neither is the answer. */
  #answer({ needs, done }: Decision): void {
    if (!needs.some((key) => this.#proposed.has(key))) return done(undefined, this.appliedUs);
    const resolve = (): void => done(this.shard.refusal, this.appliedUs);
    this.#onApplied.push({ untilUs: this.#proposedUs, resolve });
  }

  #propose({ writes, done }: Pick<Decision, "writes" | "done">): void {
    const reign = this.#reign;
    const item: Item = {
      kind: mapItemKind.write,
      sizeBytes: writesBytesMax(writes),
      encode: (writer) => encodeWrites(writer, writes),
      done: (error) => {
        // Nothing more will be applied: whoever waits for it goes on, and meets the failure.
        if (this.shard.failure !== undefined) this.dispatch(Number.MAX_SAFE_INTEGER);
        done(error, error === undefined ? timeUs : 0);
      },
    };
    const timeUs = this.shard.cook(this.#stamping.wrap(item));
    // Deposed within it, by an entry that was refused: it never happens.
    if (reign !== this.#reign) return;
    this.#proposedUs = timeUs;
    for (const { key, value } of writes) {
      const bytes = value === undefined ? undefined : Buffer.from(value);
      this.#proposed.set(key, { timeUs, value: bytes });
      this.#recent.record(putRecord(key, timeUs));
    }
    // Proposed at once: a store append of the same turn must come behind it in the log.
    this.shard.flush();
  }

  /** The newest version as far as it is in memory. */
  #peek(key: string): Version | undefined {
    return this.#proposed.get(key) ?? this.#slab.peek(key);
  }

  #checkGuards(guards: readonly MapGuard[], newest: Newest): CodedError | undefined {
    for (const { key, timeUs } of guards) {
      const version = newest(key);
      const holds =
        timeUs === undefined
          ? version.value === undefined
          : version.value !== undefined && version.timeUs === timeUs;
      if (holds) continue;
      this.counters.guardsFailed++;
      return storeErrors.guardFailed({ key });
    }
    return undefined;
  }

  #checkTransaction(commit: Commit, newest: Newest): CodedError | undefined {
    if (this.#recent.check(readRecords(commit), commit.readUs) !== undefined) {
      return storeErrors.txConflict({ attempts: commit.attempt });
    }
    for (const key of commit.present) {
      if (newest(key).value !== undefined) continue;
      return storeErrors.preconditionFailed({ key, expected: "present" });
    }
    for (const key of commit.absent) {
      if (newest(key).value === undefined) continue;
      return storeErrors.preconditionFailed({ key, expected: "absent" });
    }
    return undefined;
  }

  // -------------------------------------------------------------- machine

  apply(kind: number, timeUs: number, body: ByteReader): void {
    if (kind === mapItemKind.stamped) {
      const { stamp, refusal, kind: inner } = readStamped(body);
      if (inner !== 0) this.apply(inner, timeUs, body);
      return this.#writers.applyResult(stamp, timeUs, refusal);
    }
    if (kind === mapItemKind.openWriter) return this.#writers.applyOpen(body.string(), timeUs);
    if (kind !== mapItemKind.write) {
      throw storeErrors.shardCorrupt({ shard: this.number, reason: `item of kind ${kind}` });
    }
    for (let left = body.varint(); left > 0; left--) {
      const key = body.string();
      // Copied: the entry's bytes go back to the log when it has been applied.
      const value = body.u8() === 0 ? undefined : Buffer.from(body.bytes());
      this.#slab.set(key, { timeUs, value });
      this.#watches.applied(key, value);
      if (this.#proposed.get(key)?.timeUs === timeUs) this.#proposed.delete(key);
      this.counters.keysWritten++;
    }
  }

  dispatch(timeUs: number): void {
    for (let first = this.#onApplied[0]; first !== undefined; first = this.#onApplied[0]) {
      if (first.untilUs > timeUs) return;
      this.#onApplied.shift();
      first.resolve();
    }
  }

  beforeReplay(): Promise<void> | undefined {
    return this.#slab.room();
  }

  supply(store: ShardStore): CopySource {
    return new MapSupply(store, () => this.#slab);
  }

  async stage(source: CopySource, facts: readonly KvEntry[]): Promise<StagedState> {
    const { stage, loadWriters } = assertPresent(this.#replica, "a replica can copy");
    const staged = await stage(source);
    const old = this.#slab;
    const copied = facts.filter(([key]) => key[0] === rowPrefix.writer);
    return {
      ...{ rows: async () => [...staged.rows, ...copied], counts: staged.counts },
      leave: async () => undefined,
      enter: async () => {
        const writers = await loadWriters();
        return () => {
          this.depose(storeErrors.fateUnknown({ shard: this.number }));
          this.#slab = staged.slab;
          this.#writers = writers;
          this.#superintend(staged.slab);
          this.claim();
          this.#watches.replaced();
        };
      },
      settle: async () => {
        // Whoever reads it reads the new one instead.
        await old.close();
        await staged.settle();
      },
      abandon: () => staged.slab.close(),
    };
  }

  entriesLost(): void {
    // Items hold absolute values: what follows a loss builds on nothing before it.
  }

  depose(reason: CodedError): void {
    this.#reign++;
    this.#writers.depose(reason);
    this.#proposed.clear();
    this.dispatch(Number.MAX_SAFE_INTEGER);
  }

  capture(): CheckpointImage {
    this.#recent.forgetThrough(this.appliedUs);
    let proof: Uint8Array | undefined;
    const addWriters = this.#writers.capture();
    const point = { index: this.shard.appliedIndex, timeUs: this.appliedUs };
    return {
      prepare: async () => {
        proof = await this.#slab.sync();
        await this.#slab.copy(point);
      },
      addRows: (batch) => {
        if (proof !== undefined) batch.put(mapProofKey, proof);
        addWriters(batch);
      },
      finish: (committed) => this.#writers.finish(committed),
    };
  }

  close(): Promise<void> {
    return this.#slab.close();
  }
}

const nothingLoaded: ReadonlyMap<string, Version> = new Map();
