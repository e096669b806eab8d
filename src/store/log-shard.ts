// A shard of a log database: what its items mean, where its generations are, and what readers see.
//
// Two views of the current generation: items are cooked against `#cooking` and applied to
// `#current`; they differ only while a rotation is on its way through the log.
// Invariants: a topic's stream is decided while cooking and travels in the entry; evidence and
// writer results are part of the same entry as their message; a directory goes only after the
// checkpoint that no longer names it.

import {
  assertPresent,
  type ByteReader,
  type ByteWriter,
  type CodedError,
  type Counters,
  createCounters,
} from "../base/index.ts";
import type { KvBatch } from "../kv/index.ts";
import type {
  AppendDone,
  AppendRequest,
  DeliverableTtv,
  MissedReport,
  Ttv as PublicTtv,
  PublisherClaim,
  ShardNumber,
  TtvRef,
} from "./api.ts";
import { readLtsRecords, writeLtsRecords } from "./core/lts-codec.ts";
import type { LtsRecord } from "./core/lts-trie.ts";
import { flagsOf, toPublicTtv } from "./deliverable.ts";
import { storeErrors } from "./errors.ts";
import {
  asCodedError,
  type EvidenceItem,
  type EvidenceTable,
  readEvidence,
  writeEvidence,
} from "./evidence.ts";
import { type AppendItem, logItemKind, readAppend, writeAppend } from "./log-items.ts";
import type { UseEntry, UseOwner, UseTable } from "./pools/filter-use.ts";
import type { ShardSource, SlabSource } from "./pools/source.ts";
import type { CheckpointImage, Shard, ShardMachine } from "./shard.ts";
import type { Generations } from "./slab/generations.ts";
import type { LogSlab } from "./slab/log-slab.ts";
import type { Ttv } from "./types.ts";
import type { WriterTable } from "./writers.ts";

export const logShardCounterHelp = {
  ttvsAppended: "TTVs applied, replayed ones included",
  ttvsSkipped: "replayed TTVs whose generation is gone",
  repeatsAnswered: "appends that evidence or a writer showed to be repeats",
};

export type LogShardParts = {
  readonly ordinal: number;
  readonly evidence: EvidenceTable;
  readonly writers: WriterTable;
  readonly generations: Generations;
  readonly interest: UseTable;
  readonly phase: (name: string) => void;
};

/** Unwritten blocks above which replay waits for the disk. */
const replayMemoryBytesMax = 32 * 1024 * 1024;

export class LogShard implements ShardMachine, ShardSource {
  readonly ordinal: number;
  readonly evidence: EvidenceTable;
  readonly generations: Generations;
  readonly counters: Counters<typeof logShardCounterHelp> = createCounters(logShardCounterHelp);
  readonly #writers: WriterTable;
  readonly #interest: UseTable;
  readonly #phase: (name: string) => void;
  #shard: Shard | undefined;
  #dispatchedUs = 0;
  /** The TTV that was applied last, for `dispatch`, and the filters it matched. */
  #applied: DeliverableTtv | undefined;
  readonly #matched: UseEntry[] = [];
  #isAfterLoss = false;
  #rotation: Promise<void> | undefined;

  constructor(parts: LogShardParts) {
    this.ordinal = parts.ordinal;
    this.evidence = parts.evidence;
    this.generations = parts.generations;
    this.#writers = parts.writers;
    this.#interest = parts.interest;
    this.#phase = parts.phase;
  }

  /** Closes the circle of shard and machine; called once, before anything else. */
  attach(shard: Shard): void {
    this.#shard = shard;
    this.#dispatchedUs = shard.appliedUs;
  }

  get shard(): Shard {
    return assertPresent(this.#shard, "log shard without its engine");
  }

  get number(): ShardNumber {
    return this.shard.number;
  }

  get appliedUs(): number {
    return this.shard.appliedUs;
  }

  /** Everything up to here has been offered to the readers at the tail. */
  get dispatchedUs(): number {
    return this.#dispatchedUs;
  }

  /** Replay is over: dispatch begins behind it. */
  begin(): void {
    this.#isAfterLoss = false;
    this.#dispatchedUs = this.appliedUs;
  }

  // -------------------------------------------------------------- cooking

  append(request: AppendRequest, done: AppendDone): void {
    const failure = this.shard.failure;
    if (failure !== undefined) return done(failure, undefined);
    try {
      if (this.#isRepeat(request, done)) return;
    } catch (error) {
      return done(asCodedError(error), undefined);
    }
    const learned: LtsRecord[] = [];
    const slab = this.generations.cooking;
    const stream = request.keep ? slab.lts.place(request.topic, learned).stream : 0;
    const timeUs = this.shard.cook(
      logItemKind.append,
      (writer) => writeAppend(writer, { request, flags: flagsOf(request), stream, learned }),
      (error) => done(error, error === undefined ? { kind: "stored", timeUs } : undefined),
    );
  }

  release(item: EvidenceItem, done: (error: CodedError | undefined, known: boolean) => void): void {
    const failure = this.shard.failure;
    if (failure !== undefined) return done(failure, false);
    try {
      if (!this.evidence.decideRelease(item)) return done(undefined, false);
    } catch (error) {
      return done(asCodedError(error), false);
    }
    this.shard.cook(
      logItemKind.release,
      (writer) => writeEvidence(writer, item),
      (error) => done(error, true),
    );
  }

  /** Removes all evidence of an incarnation that has ended. Resolves when durable. */
  async endEvidence(publisher: string, incarnation: number): Promise<void> {
    const ids = await this.evidence.listStored(publisher, incarnation);
    if (ids.length === 0) return;
    await this.#commit(logItemKind.endEvidence, (writer) => {
      writer.string(publisher).u64(incarnation).varint(ids.length);
      for (const id of ids) writer.u16(id);
    });
  }

  /** Opens a writer; its epoch is the commit time of the opening. */
  openWriter(name: string): Promise<number> {
    this.#writers.admitOpen(name);
    return this.#commit(logItemKind.openWriter, (writer) => writer.string(name));
  }

  /** Ends the current generation and begins the next. Resolves when that is checkpointed. */
  rotate(): Promise<void> {
    this.#rotation ??= this.#rotate().finally(() => {
      this.#rotation = undefined;
    });
    return this.#rotation;
  }

  /** Drops sealed generations that end at or before `untilUs`; resolves when that is durable. */
  async dropUntil(untilUs: number): Promise<void> {
    const numbers = this.generations.droppable(untilUs);
    if (numbers.length === 0) return;
    await this.#commit(logItemKind.drop, (writer) => {
      writer.varint(numbers.length);
      for (const number of numbers) writer.u32(number);
    });
    await this.shard.checkpoint();
  }

  async #rotate(): Promise<void> {
    const next = await this.generations.prepareNext();
    const records = next.lts.records();
    await this.#commit(
      logItemKind.rotate,
      (writer) => writeLtsRecords(writer.u32(next.generation), records),
      () => this.generations.cookInto(next),
    );
    this.#phase("generation.rotated");
    await this.shard.checkpoint();
    this.#phase("generation.sealed");
  }

  #commit(
    kind: number,
    encode: (writer: ByteWriter) => void,
    onCooked: () => void = () => undefined,
  ): Promise<number> {
    return new Promise((resolve, reject) => {
      const failure = this.shard.failure;
      if (failure !== undefined) return reject(failure);
      const timeUs = this.shard.cook(kind, encode, (error) =>
        error === undefined ? resolve(timeUs) : reject(error),
      );
      onCooked();
    });
  }

  #isRepeat(request: AppendRequest, done: AppendDone): boolean {
    const { evidence, writer } = request;
    const onRepeat = (): void => done(undefined, { kind: "repeat" });
    if (evidence !== undefined) {
      const decision = this.evidence.decide(
        { publisher: request.publisher, ...evidence },
        onRepeat,
      );
      if (decision !== "new") this.counters.repeatsAnswered++;
      if (decision === "repeat_applied") onRepeat();
      return decision !== "new";
    }
    if (writer === undefined) return false;
    const decision = this.#writers.decide(writer, (timeUs) =>
      done(undefined, { kind: "stored", timeUs }),
    );
    if (decision === "repeat") this.counters.repeatsAnswered++;
    return decision === "repeat";
  }

  // -------------------------------------------------------------- machine

  apply(kind: number, timeUs: number, body: ByteReader): void {
    switch (kind) {
      case logItemKind.append:
        return this.#applyAppend(readAppend(body, timeUs), timeUs);
      case logItemKind.release:
        return this.evidence.applyReleased(readEvidence(body));
      case logItemKind.endEvidence: {
        const publisher = body.string();
        const incarnation = body.u64();
        const ids = Array.from({ length: body.varint() }, () => body.u16());
        return this.evidence.applyEnded(publisher, incarnation, ids);
      }
      case logItemKind.openWriter:
        return this.#writers.applyOpen(body.string(), timeUs);
      case logItemKind.rotate:
        return this.generations.applyRotate(body.u32(), timeUs, readLtsRecords(body));
      case logItemKind.drop: {
        const numbers = Array.from({ length: body.varint() }, () => body.u32());
        return this.generations.applyDrop(numbers);
      }
      default:
        throw storeErrors.shardCorrupt({ shard: this.number, reason: `item of kind ${kind}` });
    }
  }

  dispatch(timeUs: number): void {
    const ttv = this.#applied;
    if (ttv !== undefined) {
      this.#applied = undefined;
      const receivers: UseOwner[] = [];
      for (const entry of this.#matched.splice(0)) {
        for (const use of entry.uses) {
          if (use.subscriber.collect(use, this.number, timeUs)) receivers.push(use.subscriber);
        }
      }
      for (const receiver of receivers) receiver.offerLive(this.ordinal, ttv);
    }
    this.#dispatchedUs = timeUs;
  }

  entriesMissing(): void {
    this.#isAfterLoss = true;
  }

  beforeReplay(kind: number, peek: () => ByteReader): Promise<void> | undefined {
    if (kind === logItemKind.rotate) {
      return this.generations.prepareNext(peek().u32()).then(() => undefined);
    }
    if (this.generations.memoryBytes < replayMemoryBytesMax) return undefined;
    return this.generations.current.flush();
  }

  capture(): CheckpointImage {
    const addEvidence = this.evidence.capture();
    const addWriters = this.#writers.capture();
    const addMatches = this.#interest.capture(this.ordinal);
    const slabs = this.generations.capture();
    return {
      prepare: () => slabs.prepare(),
      addRows: (batch: KvBatch) => {
        addEvidence(batch);
        addWriters(batch);
        addMatches(batch);
        slabs.addRows(batch);
      },
      finish: (committed) => {
        this.evidence.finish(committed);
        this.#writers.finish(committed);
        this.#interest.finish(this.ordinal, committed);
        slabs.finish(committed);
      },
    };
  }

  #applyAppend(item: AppendItem, timeUs: number): void {
    if (item.evidence !== undefined) this.evidence.applyTaken(item.evidence);
    if (item.writer !== undefined) this.#writers.applyResult(item.writer, timeUs);
    const { ttv } = item;
    if (ttv === undefined) return;
    const slab = this.generations.forApply(timeUs);
    if (slab === undefined) {
      this.counters.ttvsSkipped++;
      return;
    }
    const stream = this.#streamOf(slab, item, ttv);
    this.#store(slab, stream, ttv);
    this.#interest.match(this.ordinal, ttv.topic, timeUs, this.#matched);
    const anybody = this.#matched.some((entry) => entry.uses.size > 0);
    if (!anybody) {
      this.#matched.length = 0;
      return;
    }
    const ref: TtvRef = {
      shard: this.number,
      generation: slab.generation,
      stream,
      timeUs,
    };
    this.#applied = { ...toPublicTtv(ttv), ref };
  }

  /** What an entry says of streams holds while all entries before it are there. */
  #streamOf(slab: LogSlab, item: AppendItem, ttv: Ttv): number {
    if (this.#isAfterLoss) return slab.relearn(item.learned, ttv);
    slab.learn(item.learned, ttv.timeUs);
    return item.stream;
  }

  #store(slab: LogSlab, stream: number, ttv: Ttv): void {
    const place = assertPresent(slab.lts.lookup(ttv.topic), "an applied topic has its place");
    slab.append(stream, ttv, place.varying);
    this.counters.ttvsAppended++;
  }

  // -------------------------------------------------------------- reading

  slabAfter(positionUs: number): SlabSource | undefined | Promise<SlabSource | undefined> {
    return this.generations.slabAfter(positionUs);
  }

  missedAfter(positionUs: number): MissedReport | undefined {
    const missed = this.generations.missedAfter(positionUs);
    return missed === undefined ? undefined : { shard: this.number, ...missed };
  }

  async fetch(ref: TtvRef): Promise<PublicTtv | undefined> {
    const ttv = await this.generations.fetch(ref);
    return ttv === undefined ? undefined : toPublicTtv(ttv);
  }

  openEvidence(publisher: string, claim: PublisherClaim): Promise<void> {
    return this.evidence.open(publisher, claim);
  }

  close(): Promise<void> {
    return this.generations.close();
  }
}
