// A shard of a map database: latest value per key, blind writes with guards, optimistic
// transactions (docs/architecture.md, "Writing").
//
// Decisions are made in call order against `proposed` (decided, not yet durable) over the slab's
// applied state; a decision that needs a key which is only on disk waits for it, and later ones
// wait behind it. Replay is idempotent: every item holds absolute values.

import {
  assertPresent,
  type ByteReader,
  type ByteWriter,
  type CodedError,
  type Counters,
  createCounters,
} from "../../base/index.ts";
import { parseTopicFilter } from "../../topic/index.ts";
import type {
  MapEntry,
  MapGuard,
  MapShard as MapShardFace,
  MapTransaction,
  MapWrite,
} from "../api.ts";
import { putRecord, type ReadRecord, RecentWrites } from "../core/conflicts.ts";
import { storeErrors } from "../errors.ts";
import { asCodedError } from "../evidence.ts";
import type { CheckpointImage, Shard, ShardMachine } from "../shard.ts";
import type { MapSlab } from "./map-slab.ts";
import { type Commit, runTransaction } from "./transaction.ts";
import type { Version } from "./value.ts";

export const mapItemKind = { write: 1 } as const;

export const mapCounterHelp = {
  keysWritten: "keys put or deleted",
  conflicts: "transactions that had to start again",
  guardsFailed: "writes refused because a guard did not hold",
};

/** A write that waits for its turn to be decided. */
type Decision = {
  /** Keys whose newest version must be known before `decide` runs. */
  readonly needs: readonly string[];
  readonly decide: () => CodedError | undefined;
  readonly writes: readonly MapWrite[];
  readonly done: (error: CodedError | undefined, timeUs: number) => void;
};

export class MapShard implements MapShardFace, ShardMachine {
  readonly counters: Counters<typeof mapCounterHelp> = createCounters(mapCounterHelp);
  readonly #slab: MapSlab;
  #recent = new RecentWrites(0);
  readonly #proposed = new Map<string, Version>();
  readonly #queue: Decision[] = [];
  #onApplied: Array<() => void> = [];
  #pumping = false;
  #shard: Shard | undefined;

  constructor(slab: MapSlab) {
    this.#slab = slab;
  }

  /** Closes the circle of shard and machine; called once, before anything else. */
  attach(shard: Shard): void {
    this.#shard = shard;
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
    const version = await this.#slab.load(key);
    return version.value === undefined
      ? undefined
      : { key, timeUs: version.timeUs, value: version.value };
  }

  list(prefix: string, options: { afterKey?: string; countMax: number }): Promise<MapEntry[]> {
    return this.#slab.list(prefix, options);
  }

  match(
    prefix: string,
    filter: string,
    options: { afterKey?: string; countMax: number },
  ): Promise<{ entries: MapEntry[]; nextAfterKey: string | undefined; keysRead: number }> {
    return this.#slab.match(prefix, filter, options);
  }

  write(
    writes: readonly MapWrite[],
    guards: readonly MapGuard[],
    done: (error: CodedError | undefined, timeUs: number) => void,
  ): void {
    this.#submit({
      needs: guards.map((guard) => guard.key),
      decide: () => this.#checkGuards(guards),
      writes,
      done,
    });
  }

  transact<T>(body: (tx: MapTransaction) => Promise<T>): Promise<{ timeUs: number; value: T }> {
    return runTransaction(
      this,
      body,
      (commit) => this.#commitTransaction(commit),
      () => {
        this.counters.conflicts++;
        return this.#applied();
      },
    );
  }

  /** Resolves when what is proposed now has been applied: only then can a read see it. */
  #applied(): Promise<void> {
    if (this.#proposed.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#onApplied.push(resolve));
  }

  // -------------------------------------------------------------- deciding

  #commitTransaction(commit: Commit): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#submit({
        needs: [...commit.present, ...commit.absent],
        decide: () => this.#checkTransaction(commit),
        writes: commit.writes,
        done: (error, timeUs) => (error === undefined ? resolve(timeUs) : reject(error)),
      });
    });
  }

  #submit(decision: Decision): void {
    if (this.#queue.length === 0 && decision.needs.every((key) => this.#isKnown(key))) {
      this.#decide(decision);
      return;
    }
    this.#queue.push(decision);
    if (!this.#pumping) void this.#pump();
  }

  async #pump(): Promise<void> {
    this.#pumping = true;
    for (;;) {
      const decision = this.#queue[0];
      if (decision === undefined) break;
      try {
        for (const key of decision.needs) {
          if (!this.#isKnown(key)) await this.#slab.load(key);
        }
        // A key that was pushed out of the cache meanwhile is loaded again.
        if (!decision.needs.every((key) => this.#isKnown(key))) continue;
        this.#queue.shift();
        this.#decide(decision);
      } catch (error) {
        this.#queue.shift();
        decision.done(asCodedError(error), 0);
      }
    }
    this.#pumping = false;
  }

  #decide(decision: Decision): void {
    const refusal = this.shard.failure ?? decision.decide();
    if (refusal !== undefined) {
      decision.done(refusal, 0);
      return;
    }
    if (decision.writes.length === 0) {
      decision.done(undefined, this.appliedUs);
      return;
    }
    const { writes, done } = decision;
    const timeUs = this.shard.cook(
      mapItemKind.write,
      (writer) => encodeWrites(writer, writes),
      (error) => done(error, timeUs),
    );
    for (const { key, value } of writes) {
      const bytes = value === undefined ? undefined : Buffer.from(value);
      this.#proposed.set(key, { timeUs, value: bytes });
      this.#recent.record(putRecord(key, timeUs));
    }
    // Proposed at once: a store append of the same turn must come behind it in the log.
    this.shard.flush();
  }

  #isKnown(key: string): boolean {
    return this.#proposed.has(key) || this.#slab.peek(key) !== undefined;
  }

  #newest(key: string): Version {
    const version = this.#proposed.get(key) ?? this.#slab.peek(key);
    return assertPresent(version, "a key that was loaded is known");
  }

  #checkGuards(guards: readonly MapGuard[]): CodedError | undefined {
    for (const { key, timeUs } of guards) {
      const version = this.#newest(key);
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

  #checkTransaction(commit: Commit): CodedError | undefined {
    if (this.#recent.check(readRecords(commit), commit.readUs) !== undefined) {
      return storeErrors.txConflict({ attempts: commit.attempt });
    }
    for (const key of commit.present) {
      if (this.#newest(key).value !== undefined) continue;
      return storeErrors.preconditionFailed({ key, expected: "present" });
    }
    for (const key of commit.absent) {
      if (this.#newest(key).value === undefined) continue;
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

  dispatch(): void {
    if (this.#onApplied.length === 0) return;
    const waiting = this.#onApplied;
    this.#onApplied = [];
    for (const resolve of waiting) resolve();
  }

  entriesMissing(): void {
    // Values are absolute: no entry relies on an earlier one.
  }

  beforeReplay(): Promise<void> | undefined {
    return this.#slab.room();
  }

  capture(): CheckpointImage {
    return {
      prepare: () => this.#slab.sync(),
      addRows: () => undefined,
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

function encodeWrites(writer: ByteWriter, writes: readonly MapWrite[]): void {
  writer.varint(writes.length);
  for (const { key, value } of writes) {
    writer.string(key);
    if (value === undefined) writer.u8(0);
    else writer.u8(1).bytes(value);
  }
}
