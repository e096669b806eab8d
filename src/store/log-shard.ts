// A shard of a log database: what its items mean, where its generations are, and what readers see.
//
// Two views of the current generation: items are cooked against `#cooking` and applied to
// `#current`; they differ only while a rotation is on its way through the log.
// Invariants: a topic's stream is decided while cooking and travels in the entry; evidence and
// writer results are part of the same entry as their message; a directory goes only after the
// checkpoint that no longer names it.

import {
  assert,
  assertPresent,
  type ByteReader,
  type ByteSource,
  type ByteWriter,
  type CodedError,
  type Counters,
  createCounters,
} from "../base/index.ts";
import type { KvEntry } from "../kv/index.ts";
import type {
  AppendDone,
  AppendOutcome,
  AppendRequest,
  AppendRun,
  AppendRunDone,
  MissedReport,
  Ttv as PublicTtv,
  PublisherClaim,
  ShardNumber,
  TtvRef,
  WriterStamp,
} from "./api.ts";
import { tellStore } from "./channel.ts";
import { CookedAppend, type CookingReign } from "./cooked-append.ts";
import { CookedRun, cookRun } from "./cooked-run.ts";
import type { CopySource } from "./copies/copy-source.ts";
import { LogMove } from "./copies/log-move.ts";
import type { StagedLog } from "./copies/log-staging.ts";
import { LogSupply } from "./copies/log-supply.ts";
import type { StagedState } from "./copies/staged.ts";
import type { Lts } from "./core/lts.ts";
import { writeLtsRecords } from "./core/lts-codec.ts";
import type { LtsRecord } from "./core/lts-trie.ts";
import { countMissed, type MissingWant } from "./core/missing.ts";
import { toPublicTtv } from "./deliverable.ts";
import { storeErrors } from "./errors.ts";
import { asCodedError, type EvidenceItem, type EvidenceTable, writeEvidence } from "./evidence.ts";
import type { LogFront } from "./fronts.ts";
import { type HoldTable, writeHold } from "./holds.ts";
import { LiveOffers } from "./live-offers.ts";
import {
  type AppendItem,
  learnedBytesMax,
  logItemKind,
  namesBytesMax,
  readAppend,
} from "./log-items.ts";
import { applyToState, captureLog, type LogState } from "./log-state.ts";
import type { CheckpointImage, Item, ShardMachine } from "./machine.ts";
import { MissedSpans } from "./missed-spans.ts";
import type { UseTable } from "./pools/filter-use.ts";
import type { ShardSource, SlabSource } from "./pools/source.ts";
import type { Shard } from "./shard.ts";
import type { ShardStore } from "./shard-store.ts";
import type { Generations } from "./slab/generations.ts";
import type { LogSlab } from "./slab/log-slab.ts";
import type { RepackCounts, RepackParts } from "./slab/repack.ts";
import { gainsByRepack, repackGeneration } from "./slab/repack-generation.ts";
import { readStamped, Stamping } from "./stamped.ts";
import { sourceOf, type TtvSource } from "./types.ts";
import type { WriterTable } from "./writers.ts";

export const logShardCounterHelp = {
  ttvsAppended: "TTVs applied, replayed ones included",
  ttvsSkipped: "replayed TTVs whose generation is gone",
  repeatsAnswered: "appends that evidence or a writer showed to be repeats",
};

export type LogShardParts = {
  readonly ordinal: number;
  readonly state: LogState;
  /** Loads it anew, once the stores hold what another replica had. */
  readonly load: () => Promise<LogState>;
  /** Copies the slabs that are lacking. */
  readonly stage: (source: CopySource, facts: readonly KvEntry[]) => Promise<StagedLog>;
  /** The state is another, later one: readers at the tail, which was at `tailUs`, are behind. */
  readonly onMoved: (tailUs: number) => void;
  readonly interest: UseTable;
  /** Appends are told before they are synced. */
  readonly acksEarly: boolean;
  readonly phase: (name: string) => void;
};

/** Unwritten blocks above which replay waits for the disk. */
const replayMemoryBytesMax = 32 * 1024 * 1024;

export class LogShard implements ShardMachine, ShardSource, LogFront {
  readonly ordinal: number;
  readonly counters: Counters<typeof logShardCounterHelp> = createCounters(logShardCounterHelp);
  readonly #parts: LogShardParts;
  #state: LogState;
  readonly #interest: UseTable;
  readonly #acksEarly: boolean;
  /** Another one once this process was deposed: what an earlier reign decided is forgotten. */
  #reign: CookingReign;
  readonly #phase: (name: string) => void;
  #shard: Shard | undefined;
  readonly #live: LiveOffers;
  #rotation: Promise<void> | undefined;
  /** Replay passed a loss: streams of later entries may build on what is gone. */
  #relearns: boolean;
  readonly #missed = new MissedSpans();
  readonly #move = new LogMove();
  /** What is cooked for other nodes carries their stamps. */
  readonly stamping = new Stamping(logItemKind.stamped);

  constructor(parts: LogShardParts) {
    this.ordinal = parts.ordinal;
    this.#parts = parts;
    this.#state = parts.state;
    this.#interest = parts.interest;
    this.#live = new LiveOffers(parts.interest, parts.ordinal, () => this.number);
    this.#acksEarly = parts.acksEarly;
    this.#reign = this.#newReign();
    this.#phase = parts.phase;
    this.#relearns = parts.state.generations.isCurrentLost;
  }

  /** Closes the circle of shard and machine; called once, before anything else. */
  attach(shard: Shard): void {
    this.#shard = shard;
    this.#live.dispatchedUs = shard.appliedUs;
  }

  get shard(): Shard {
    return assertPresent(this.#shard, "log shard without its engine");
  }

  get evidence(): EvidenceTable {
    return this.#state.evidence;
  }

  get generations(): Generations {
    return this.#state.generations;
  }

  get holds(): HoldTable {
    return this.#state.holds;
  }

  get writers(): WriterTable {
    return this.#state.writers;
  }

  get number(): ShardNumber {
    return this.shard.number;
  }

  get appliedUs(): number {
    return this.shard.appliedUs;
  }

  /** Everything up to here has been offered to the readers at the tail. */
  get dispatchedUs(): number {
    return this.#live.dispatchedUs;
  }

  get isAwaited(): boolean {
    return this.generations.waits.isAny;
  }

  /** Replay is over: dispatch begins behind it. */
  async begin(): Promise<void> {
    this.#live.dispatchedUs = this.appliedUs;
    // What was replayed in another way than it stands in the log must not be replayed again.
    if (this.#relearns) await this.shard.checkpoint();
    this.#relearns = false;
  }

  // -------------------------------------------------------------- cooking

  /** REQUIRES: evidence or a writer's stamp, not both. */
  append(request: AppendRequest, done: AppendDone): void {
    assert(request.evidence === undefined || request.writer === undefined, "two kinds of repeats");
    const item = new CookedAppend(this.#reign, request, done);
    const refusal = this.shard.refusal ?? this.shard.sizeError(item.sizeBytes);
    if (refusal !== undefined) return done(refusal, undefined);
    try {
      if (this.#isRepeat(request, done)) return;
    } catch (error) {
      return done(asCodedError(error), undefined);
    }
    if (request.keep) item.placeIn(this.generations.cooking.lts);
    this.shard.cook(this.stamping.wrap(item));
  }

  /** Many appends of one publisher; see `AppendRun`. */
  appendRun(run: AppendRun, done: AppendRunDone): void {
    const lts = (): Lts => this.generations.cooking.lts;
    cookRun(this.shard, { run, lts, isEarly: this.#acksEarly, done });
  }

  release(item: EvidenceItem, done: (error: CodedError | undefined, known: boolean) => void): void {
    const { refusal } = this.shard;
    if (refusal !== undefined) return done(refusal, false);
    const onDurable = (error: CodedError | undefined): void =>
      this.shard.callSafely(() => done(error, true));
    try {
      const decision = this.evidence.decideRelease(item, onDurable);
      if (decision === "unknown") return done(undefined, false);
      if (decision === "pending") return;
    } catch (error) {
      return done(asCodedError(error), false);
    }
    const sizeBytes = namesBytesMax(item.publisher);
    const reign = this.#reign;
    const release: Item = {
      ...{ kind: logItemKind.release, sizeBytes },
      encode: (writer) => writeEvidence(writer, item),
      done: (error) => {
        const isLost = error !== undefined && reign === this.#reign;
        if (isLost) this.evidence.refuseReleased(item, error);
        done(error, true);
      },
    };
    this.shard.cook(this.stamping.wrap(release));
  }

  /** Removes all evidence of an incarnation that has ended. Resolves when durable. */
  async endEvidence(publisher: string, incarnation: number): Promise<void> {
    const ids = await this.evidence.decideEnd(publisher, incarnation);
    if (ids.length === 0) return;
    await this.#commit({
      kind: logItemKind.endEvidence,
      sizeBytes: namesBytesMax(publisher) + 2 * ids.length,
      encode: (writer) => {
        writer.string(publisher).u64(incarnation).varint(ids.length);
        for (const id of ids) writer.u16(id);
      },
    });
  }

  /** Opens a writer; its epoch is the commit time of the opening. */
  async openWriter(name: string): Promise<number> {
    const sizeBytes = namesBytesMax(name);
    const refusal = this.shard.refusal ?? this.shard.sizeError(sizeBytes);
    if (refusal !== undefined) throw refusal;
    this.writers.decideOpen(name, this.appliedUs);
    const encode = (writer: ByteWriter): void => void writer.string(name);
    return this.#commit({ kind: logItemKind.openWriter, sizeBytes, encode });
  }

  /** Removes a writer and its results. Resolves when durable. */
  async closeWriter(name: string): Promise<void> {
    const encode = (writer: ByteWriter): void => void writer.string(name);
    await this.#commit({ kind: logItemKind.closeWriter, sizeBytes: namesBytesMax(name), encode });
  }

  writerResult(stamp: WriterStamp): number | undefined {
    return this.writers.resultOf(stamp);
  }

  /** For the logical hash: each writer as text, in order of their names. */
  writerStates(): string[] {
    return this.writers.states();
  }

  /** Ends the current generation and begins the next. Resolves when that is checkpointed. */
  rotate(): Promise<void> {
    this.#rotation ??= this.#rotate().finally(() => {
      this.#rotation = undefined;
    });
    return this.#rotation;
  }

  /**
   * Drops sealed generations that end at or before `untilUs`; those that a hold keeps only by
   * force. Resolves with how many, when that is durable.
   */
  async dropUntil(untilUs: number, options: { readonly force?: boolean } = {}): Promise<number> {
    const numbers = this.generations
      .droppable(untilUs)
      .filter(({ toUs }) => options.force === true || this.holds.keeping(toUs - 1).length === 0)
      .map(({ number }) => number);
    await this.drop(numbers);
    return numbers.length;
  }

  /** Drops these sealed generations; resolves when that is durable. */
  async drop(numbers: readonly number[]): Promise<void> {
    if (numbers.length === 0) return;
    await this.#commit({
      kind: logItemKind.drop,
      sizeBytes: namesBytesMax("") + 4 * numbers.length,
      encode: (writer) => {
        writer.varint(numbers.length);
        for (const number of numbers) writer.u32(number);
      },
    });
    await this.shard.checkpoint();
    tellStore({ event: "generations_dropped", shard: this.number, generations: numbers });
  }

  /** Makes or moves a hold: TTVs later than `afterUs` stay. Resolves when durable. */
  async hold(name: string, afterUs: number): Promise<void> {
    this.holds.checkRoom(name);
    const encode = (writer: ByteWriter): void => writeHold(writer, name, afterUs);
    await this.#commit({ kind: logItemKind.hold, sizeBytes: namesBytesMax(name), encode });
  }

  async releaseHold(name: string): Promise<void> {
    const encode = (writer: ByteWriter): void => void writer.string(name);
    await this.#commit({ kind: logItemKind.releaseHold, sizeBytes: namesBytesMax(name), encode });
  }

  /** Packs a sealed generation anew; undefined when it is not there, or packed just now. */
  async repack(
    number: number,
    parts: Omit<RepackParts, "phase">,
  ): Promise<RepackCounts | undefined> {
    const checkpoint = (): Promise<void> => this.shard.checkpoint();
    const all = { ...parts, phase: this.#phase, checkpoint };
    const counts = await repackGeneration(this.generations, number, all);
    if (counts !== undefined) {
      tellStore({ event: "generation_packed", shard: this.number, generation: number });
    }
    return counts;
  }

  gainsByRepack(number: number, nowUs: number): Promise<boolean> {
    return gainsByRepack(this.generations, number, nowUs);
  }

  /** Seals some of what is open, so that its memory can be freed by writing it. */
  relieve(): void {
    this.generations.current.sealLargest();
  }

  async #rotate(): Promise<void> {
    const reign = this.#reign;
    const next = await this.generations.prepareNext();
    if (reign !== this.#reign) {
      const reason = "leaders changed while the next generation was made ready";
      throw storeErrors.proposalRefused({ shard: this.number, reason });
    }
    const records = next.lts.records();
    const item = {
      kind: logItemKind.rotate,
      sizeBytes: namesBytesMax("") + learnedBytesMax(records),
      encode: (writer: ByteWriter) => writeLtsRecords(writer.u32(next.generation), records),
    };
    await this.#commit(item, () => this.generations.cookInto(next));
    this.#phase("generation.rotated");
    await this.shard.checkpoint();
    this.#phase("generation.sealed");
    const { generation } = next;
    tellStore({ event: "generation_begun", shard: this.number, generation });
  }

  /** Resolves with the item's time when it is applied. `onCooked` runs once it is decided. */
  #commit(item: Omit<Item, "done">, onCooked: () => void = () => undefined): Promise<number> {
    return new Promise((resolve, reject) => {
      const { refusal } = this.shard;
      if (refusal !== undefined) return reject(refusal);
      const reign = this.#reign;
      const timeUs = this.shard.cook({
        ...item,
        done: (error) => (error === undefined ? resolve(timeUs) : reject(error)),
      });
      // Deposed within it, by an entry that was refused: what it decides is forgotten already.
      if (reign === this.#reign) onCooked();
    });
  }

  #isRepeat(request: AppendRequest, done: AppendDone): boolean {
    const { evidence, publisher, writer } = request;
    if (evidence !== undefined) {
      const decision = this.evidence.decide({ publisher, ...evidence }, (error) =>
        this.#answer(done, error, { kind: "repeat" }),
      );
      if (decision === "new") return false;
      this.counters.repeatsAnswered++;
      if (decision === "repeat_applied") done(undefined, { kind: "repeat" });
      return true;
    }
    if (writer === undefined) return false;
    const decision = this.writers.decide(writer, (error, timeUs) =>
      this.#answer(done, error, { kind: "stored", timeUs }),
    );
    if (decision === "repeat") this.counters.repeatsAnswered++;
    return decision === "repeat";
  }

  #answer(done: AppendDone, error: CodedError | undefined, outcome: AppendOutcome): void {
    this.shard.callSafely(() => done(error, error === undefined ? outcome : undefined));
  }

  #newReign(): CookingReign {
    const reign: CookingReign = {
      isEarly: this.#acksEarly,
      refused: (request, error) => {
        if (reign === this.#reign) this.#refuse(request, error);
      },
    };
    return reign;
  }

  /** Nothing of this append will be applied: whoever repeated it waits no longer. */
  #refuse({ publisher, evidence, writer }: AppendRequest, error: CodedError): void {
    if (evidence !== undefined) this.evidence.refuseTaken({ publisher, ...evidence }, error);
    if (writer !== undefined) this.writers.refuse(writer, error);
  }

  // -------------------------------------------------------------- machine

  apply(kind: number, timeUs: number, body: ByteReader): void {
    if (kind === logItemKind.append) {
      this.#applyAppend(readAppend(body, timeUs), timeUs);
    } else if (kind === logItemKind.stamped) {
      const stamped = readStamped(body);
      if (stamped.kind !== 0) this.apply(stamped.kind, timeUs, body);
      this.writers.applyResult(stamped.stamp, timeUs, stamped.refusal);
    } else {
      applyToState(this.#state, { shard: this.number, kind, timeUs }, body);
    }
  }

  applyCooked(item: Item, timeUs: number, entry: ByteSource, endsAt: number): boolean {
    if (this.#relearns) return false;
    if (item instanceof CookedRun) return this.#applyRun(item, timeUs, entry);
    if (!(item instanceof CookedAppend)) return false;
    const { request, place } = item;
    const slab = place === undefined ? undefined : this.generations.forApply(timeUs);
    // Cooked with what was learned then, and it has been learned anew since.
    if (slab !== undefined && slab.lts !== item.lts) return false;
    const { evidence, publisher, writer } = request;
    if (evidence !== undefined) this.evidence.applyTaken({ publisher, ...evidence });
    if (writer !== undefined) this.writers.applyResult(writer, timeUs);
    if (place === undefined) return true;
    if (slab === undefined) {
      this.counters.ttvsSkipped++;
      return true;
    }
    slab.learn(item.learned, timeUs);
    item.committed(entry, endsAt);
    slab.append(item, place);
    this.counters.ttvsAppended++;
    this.#live.add(item, slab.generation, place.stream);
    return true;
  }

  #applyRun(item: CookedRun, firstUs: number, entry: ByteSource): boolean {
    const slab = this.generations.forApply(firstUs);
    if (slab !== undefined && slab.lts !== item.lts) return false;
    const counted = slab === undefined ? "ttvsSkipped" : "ttvsAppended";
    this.counters[counted] += item.count;
    if (slab !== undefined) item.applyTo(slab, { entry, firstUs, live: this.#live });
    return true;
  }

  dispatch(timeUs: number): void {
    this.#live.dispatch(timeUs);
  }

  beforeReplay(kind: number, body: ByteReader): Promise<void> | undefined {
    if (kind === logItemKind.rotate) {
      return this.generations.prepareNext(body.u32()).then(() => undefined);
    }
    if (this.generations.memoryBytes < replayMemoryBytesMax) return undefined;
    return this.generations.current.flush();
  }

  entriesLost(): void {
    this.#relearns = true;
  }

  claim(): void {
    // What was opened while another led knows nothing of what that one took.
    this.evidence.depose(storeErrors.fateUnknown({ shard: this.number }));
  }

  depose(reason: CodedError): void {
    this.#reign = this.#newReign();
    this.evidence.depose(reason);
    this.writers.depose(reason);
    this.generations.depose();
  }

  supply(store: ShardStore): CopySource {
    return new LogSupply(store, () => this.generations);
  }

  async stage(source: CopySource, facts: readonly KvEntry[]): Promise<StagedState> {
    const staged = await this.#parts.stage(source, facts);
    return this.#move.to(staged, {
      leave: () => this.generations.close(),
      load: this.#parts.load,
      put: (state) => {
        this.depose(storeErrors.fateUnknown({ shard: this.number }));
        this.#state = state;
        this.#relearns = state.generations.isCurrentLost;
        const tailUs = this.#live.dispatchedUs;
        this.#live.dispatchedUs = this.appliedUs;
        this.#parts.onMoved(tailUs);
      },
    });
  }

  capture(): CheckpointImage {
    const { ordinal, appliedUs } = this;
    return captureLog(this.#state, this.#interest, { ordinal, appliedUs });
  }

  #applyAppend(item: AppendItem, timeUs: number): void {
    if (item.evidence !== undefined) this.evidence.applyTaken(item.evidence);
    if (item.writer !== undefined) this.writers.applyResult(item.writer, timeUs);
    const { ttv } = item;
    if (ttv === undefined) return;
    const slab = this.generations.forApply(timeUs);
    if (slab === undefined) {
      this.counters.ttvsSkipped++;
      return;
    }
    const source = sourceOf(ttv);
    const stream = this.#store(slab, item, source);
    this.#live.add(source, slab.generation, stream);
  }

  #store(slab: LogSlab, item: AppendItem, ttv: TtvSource): number {
    if (this.#relearns) {
      const learned: LtsRecord[] = [];
      slab.lts.place(ttv.topic, learned);
      slab.learn(learned, ttv.timeUs);
    } else {
      slab.learn(item.learned, ttv.timeUs);
    }
    const place = assertPresent(slab.lts.lookup(ttv.topic), "an applied topic has its place");
    assert(this.#relearns || place.stream === item.stream, "a topic keeps its stream");
    slab.append(ttv, place);
    this.counters.ttvsAppended++;
    return place.stream;
  }

  // -------------------------------------------------------------- reading

  slabAfter(positionUs: number): SlabSource | undefined | Promise<SlabSource | undefined> {
    const moving = this.#move.over;
    if (moving !== undefined) return moving.then(() => this.slabAfter(positionUs));
    return this.generations.slabAfter(positionUs);
  }

  missedAfter(positionUs: number, wants: () => readonly MissingWant[]): MissedReport | undefined {
    const found = this.#missed.after(positionUs, this.generations.missing, this.shard.recoveries);
    if (found === undefined) return undefined;
    const span = { fromUs: found.afterUs, toUs: found.untilUs, reason: found.reason };
    return { shard: this.number, ...span, ...countMissed(found, wants()) };
  }

  async fetch(ref: TtvRef): Promise<PublicTtv | undefined> {
    await this.#move.over;
    const ttv = await this.generations.fetch(ref);
    return ttv === undefined ? undefined : toPublicTtv(ttv);
  }

  openEvidence(publisher: string, claim: PublisherClaim): Promise<void> {
    return this.evidence.open(publisher, claim);
  }

  closeEvidence(publisher: string, claim: PublisherClaim): void {
    this.evidence.close(publisher, claim);
  }

  listEvidence(publisher: string, claim: PublisherClaim): number[] {
    return this.evidence.list(publisher, claim);
  }

  isTaken(item: EvidenceItem): boolean {
    return this.evidence.isTaken(item);
  }

  isRouted(item: EvidenceItem): boolean {
    return this.evidence.isRouted(item);
  }

  close(): Promise<void> {
    return this.generations.close();
  }
}
