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
  type ByteWriter,
  type CodedError,
  type Counters,
  createCounters,
  isCodedError,
  toError,
} from "../../base/index.ts";
import { parseTopicFilter } from "../../topic/index.ts";
import type {
  MapEntry,
  MapGuard,
  MapShard as MapShardFace,
  MapTransaction,
  MapWrite,
} from "../api.ts";
import type { CopySource } from "../copies/copy-source.ts";
import type { StagedMap } from "../copies/map-staging.ts";
import { MapSupply } from "../copies/map-supply.ts";
import type { StagedState } from "../copies/staged.ts";
import { putRecord, type ReadRecord, RecentWrites } from "../core/conflicts.ts";
import { storeErrors } from "../errors.ts";
import type { CheckpointImage, ShardMachine } from "../machine.ts";
import type { Shard } from "../shard.ts";
import { mapProofKey, type ShardStore } from "../shard-store.ts";
import { mapKeyError } from "./keys.ts";
import type { MapSlab } from "./map-slab.ts";
import { type Commit, TransactionRunner } from "./transaction.ts";
import type { Version } from "./value.ts";

export const mapItemKind = { write: 1 } as const;

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
};

export class MapShard implements MapShardFace, ShardMachine {
  readonly counters: Counters<typeof mapCounterHelp> = createCounters(mapCounterHelp);
  /** Another one once its rows were copied from another replica. */
  #slab: MapSlab;
  readonly #stage: StageMap | undefined;
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
  #proposedUs = 0;
  /** Counts how often this process was deposed. */
  #reign = 0;
  #pumping = false;
  #shard: Shard | undefined;

  constructor(slab: MapSlab, stage?: StageMap) {
    this.#slab = slab;
    this.#stage = stage;
  }

  /** Closes the circle of shard and machine; called once, before anything else. */
  attach(shard: Shard): void {
    this.#shard = shard;
    this.#watch(this.#slab);
  }

  #watch(slab: MapSlab): void {
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

  #submit(decision: Decision): void {
    const error = this.#writesError(decision.writes);
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
  #waitsForNobody({ needs, writes }: Decision): boolean {
    if (this.#queue.length === 0) return true;
    if (needs.length > 0) return false;
    const keys = new Set(writes.map(({ key }) => key));
    return !this.#queue.some(
      (other) =>
        other.needs.some((key) => keys.has(key)) || other.writes.some(({ key }) => keys.has(key)),
    );
  }

  #areKnown(keys: readonly string[]): boolean {
    return keys.every((key) => this.#peek(key) !== undefined);
  }

  #writesError(writes: readonly MapWrite[]): CodedError | undefined {
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
    const refusal = this.shard.refusal ?? decision.decide(newest);
    if (refusal !== undefined) {
      decision.done(refusal, 0);
      return;
    }
    if (decision.writes.length === 0) this.#answer(decision);
    else this.#propose(decision);
  }

  /** Writes nothing. What it was decided on may not be durable yet: then neither is the answer. */
  #answer({ needs, done }: Decision): void {
    if (!needs.some((key) => this.#proposed.has(key))) return done(undefined, this.appliedUs);
    const resolve = (): void => done(this.shard.refusal, this.appliedUs);
    this.#onApplied.push({ untilUs: this.#proposedUs, resolve });
  }

  #propose({ writes, done }: Decision): void {
    const reign = this.#reign;
    const timeUs = this.shard.cook({
      kind: mapItemKind.write,
      sizeBytes: writesBytesMax(writes),
      encode: (writer) => encodeWrites(writer, writes),
      done: (error) => {
        // Nothing more will be applied: whoever waits for it goes on, and meets the failure.
        if (this.shard.failure !== undefined) this.dispatch(Number.MAX_SAFE_INTEGER);
        done(error, error === undefined ? timeUs : 0);
      },
    });
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
    if (kind !== mapItemKind.write) {
      throw storeErrors.shardCorrupt({ shard: this.number, reason: `item of kind ${kind}` });
    }
    for (let left = body.varint(); left > 0; left--) {
      const key = body.string();
      // Copied: the entry's bytes go back to the log when it has been applied.
      const value = body.u8() === 0 ? undefined : Buffer.from(body.bytes());
      this.#slab.set(key, { timeUs, value });
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

  async stage(source: CopySource): Promise<StagedState> {
    const staged = await assertPresent(this.#stage, "a replica can copy")(source);
    const old = this.#slab;
    return {
      ...{ rows: async () => staged.rows, counts: staged.counts },
      leave: async () => undefined,
      enter: async () => () => {
        this.#slab = staged.slab;
        this.#watch(staged.slab);
        this.depose();
        this.claim();
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

  depose(): void {
    this.#reign++;
    this.#proposed.clear();
    this.dispatch(Number.MAX_SAFE_INTEGER);
  }

  capture(): CheckpointImage {
    this.#recent.forgetThrough(this.appliedUs);
    let proof: Uint8Array | undefined;
    const point = { index: this.shard.appliedIndex, timeUs: this.appliedUs };
    return {
      prepare: async () => {
        proof = await this.#slab.sync();
        await this.#slab.copy(point);
      },
      addRows: (batch) => {
        if (proof !== undefined) batch.put(mapProofKey, proof);
      },
      finish: () => undefined,
    };
  }

  close(): Promise<void> {
    return this.#slab.close();
  }
}

/** Keys are longer than topics: only their wildcards matter here. */
const branchLimits = { levelsMax: 65_535, controlCharacters: "allow" } as const;

/** Whole values are read, whatever their time. A prefix is covered by the filter of its branch. */
function readRecords(commit: Commit): ReadRecord[] {
  const always = { fromUs: 0, toUs: Number.MAX_SAFE_INTEGER };
  const keys = commit.reads.keys.map((target) => ({ target, ...always }));
  const branches = commit.reads.prefixes.map((prefix) => {
    const branch = prefix.slice(0, prefix.lastIndexOf("/") + 1);
    return { target: parseTopicFilter(`${branch}#`, branchLimits), ...always };
  });
  return [...keys, ...branches];
}

const nothingLoaded: ReadonlyMap<string, Version> = new Map();
const utf8BytesMax = 3;
/** Lengths and marks of a write. */
const writeOverheadBytes = 16;

/** At least what `encodeWrites` writes. */
function writesBytesMax(writes: readonly MapWrite[]): number {
  let sizeBytes = writeOverheadBytes;
  for (const { key, value } of writes) {
    sizeBytes += writeOverheadBytes + key.length * utf8BytesMax + (value?.length ?? 0);
  }
  return sizeBytes;
}

function encodeWrites(writer: ByteWriter, writes: readonly MapWrite[]): void {
  writer.varint(writes.length);
  for (const { key, value } of writes) {
    writer.string(key);
    if (value === undefined) writer.u8(0);
    else writer.u8(1).bytes(value);
  }
}
