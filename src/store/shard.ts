// A shard's engine, the same for every layout: items are cooked one by one, collected in the entry
// that is open in this turn, proposed, and applied in order once they are durable.
//
// Invariants: commit times strictly grow with the order of items; an item is decided while it is
// cooked and never again; an item's `done` runs once, after it was applied and before the next one
// is; a checkpoint captures the state between two entries; what cannot be applied ends the shard,
// so that nothing is built on half an entry. What an item means is left to the layout's machine.
// Of a replicated shard, entries of other processes are applied as they are replayed; a process that
// is deposed forgets what it decided, and each of its open items hears what became of it.

import {
  assert,
  ByteReader,
  ByteSource,
  ByteWriter,
  type CodedError,
  isCodedError,
  type Logger,
  toError,
} from "../base/index.ts";
import type { KvEntry } from "../kv/index.ts";
import { AppliedWaits } from "./applied-waits.ts";
import { tellStore } from "./channel.ts";
import type { CommitClock } from "./commit-clock.ts";
import type { CopySource } from "./copies/copy-source.ts";
import { checkpointOf, type StagedState } from "./copies/staged.ts";
import { storeErrors } from "./errors.ts";
import { entryItemsMax, entryKind, entryVersion, type Item, type ShardMachine } from "./machine.ts";
import { neverProposed, type OpenEntry, shardCounters, type WaitingEntry } from "./shard-entry.ts";
import type { ShardEntry, ShardLog } from "./shard-log.ts";
import { checkVersion, replayCheckpointed, replayEntries } from "./shard-replay.ts";
import {
  type CheckpointRecord,
  type RecoveryPoint,
  recoveriesMax,
  type ShardStore,
} from "./shard-store.ts";

export type ShardParts = {
  readonly log: ShardLog;
  readonly store: ShardStore;
  readonly time: CommitClock;
  readonly machine: ShardMachine;
  readonly logger: Logger;
  /** Asks for a call of `flush` at the end of this turn. */
  readonly endTurn: (shard: Shard) => void;
  readonly phase: (name: string) => void;
  /** There are items whose `done` does not wait for the sync. */
  readonly acksEarly?: boolean;
  /** The shard will never take an entry again. */
  readonly onFailure: (error: CodedError) => void;
};

/** An entry is proposed early at this size: readers of the log hold one entry in memory. */
const entryBytesMax = 256 * 1024;
/** The first item's time, its kind and its distance stand before its body. */
const itemOverheadBytes = 8 + 1 + 8;
const writerBytesMin = 512;

export class Shard {
  readonly number: number;
  readonly counters = shardCounters();
  readonly #parts: ShardParts;
  readonly #waiting: WaitingEntry[] = [];
  #open: OpenEntry | undefined;
  /** Memory that the next entry begins with: about what the last one took. */
  #writerBytes = writerBytesMin;
  #appliedIndex: number;
  #appliedUs: number;
  #epoch: number;
  #recoveries: readonly RecoveryPoint[];
  #checkpointing: Promise<void> | undefined;
  #failure: CodedError | undefined;
  /** An entry of another process that is being applied. */
  #foreign: Promise<void> | undefined;
  readonly #waits = new AppliedWaits();

  constructor(parts: ShardParts) {
    this.#parts = parts;
    this.number = parts.log.shard;
    const { index, timeUs, epoch, recoveries } = parts.store.checkpoint;
    this.#appliedIndex = index;
    this.#appliedUs = timeUs;
    this.#epoch = epoch;
    this.#recoveries = recoveries;
    parts.time.learn(timeUs);
  }

  /** Commit time of the last applied item. */
  get appliedUs(): number {
    return this.#appliedUs;
  }

  get appliedIndex(): number {
    return this.#appliedIndex;
  }

  get epoch(): number {
    return this.#epoch;
  }

  /** Where commit times are missing because the log was damaged, ascending. */
  get recoveries(): readonly RecoveryPoint[] {
    return this.#recoveries;
  }

  get checkpointIndex(): number {
    return this.#parts.store.checkpoint.index;
  }

  get checkpointUs(): number {
    return this.#parts.store.checkpoint.timeUs;
  }

  get isDirty(): boolean {
    const { store } = this.#parts;
    // A checkpoint that its copy does not have is taken once more.
    return this.#appliedIndex > store.checkpoint.index || !store.isCopied || this.isAwaited;
  }

  /** Somebody waits for a checkpoint. */
  get isAwaited(): boolean {
    return this.#parts.machine.isAwaited === true;
  }

  get isCheckpointing(): boolean {
    return this.#checkpointing !== undefined;
  }

  get bytesSinceCheckpoint(): number {
    return this.#parts.log.bytesSinceRelease;
  }

  get failure(): CodedError | undefined {
    return this.#failure;
  }

  /** Why nothing can be cooked now: a failure, or another process leads the shard. */
  get refusal(): CodedError | undefined {
    return this.#failure ?? this.#parts.log.refusal;
  }

  /**
   * Before `recover`, for a machine whose slab was mended: applies again what the log still has of
   * the checkpointed entries. Resolves with the first of them.
   */
  async replayAgain(): Promise<number | undefined> {
    const { log, machine } = this.#parts;
    const parts = { shard: this.number, log, machine };
    return (await replayCheckpointed(this.#appliedIndex, parts)).fromIndex;
  }

  /** Brings back what the log holds above the checkpoint, then takes proposals. */
  async recover(): Promise<void> {
    const { log, machine, time } = this.#parts;
    // A log that ends below the checkpoint has lost nothing that is needed: it goes on above it.
    log.release(this.#parts.store.releasableIndex);
    const { nextIndex, lost } = await replayEntries(this.#appliedIndex, this.#appliedUs, {
      shard: this.number,
      log,
      machine,
      applied: (index, timeUs) => {
        this.#appliedIndex = index;
        this.#appliedUs = timeUs;
        time.learn(timeUs);
        this.counters.entriesApplied++;
      },
    });
    time.claim();
    log.start(nextIndex, {
      onCommitted: (entry) => this.#commit(entry),
      ...(this.#parts.acksEarly === true && { onWritten: (index) => this.#tellEarly(index) }),
      onFailed: (error) => this.fail(storeErrors.failed({ reason: error.message }, error)),
      onForeign: (entry) => this.#applyForeign(entry),
      onLost: (index, error) => this.#lose(index, error),
      onClaimed: () => {
        time.learn(this.#appliedUs);
        time.claim();
        machine.claim?.();
      },
      onDeposed: (reason) => this.#depose(reason),
      supply: machine.supply?.(this.#parts.store),
      onAdopt: (source, exclusively) => this.adopt(source, exclusively),
      onWantCheckpoint: () => void this.checkpoint().catch(() => undefined), // it logged why
    });
    const isTailLost = log.gaps.some((gap) => (gap.toIndex ?? nextIndex) >= nextIndex);
    // A start that found the same lost tail, and nothing behind it, has told of it already.
    if (isTailLost && this.#recoveries.at(-1)?.toUs !== this.#appliedUs) {
      const toUs = time.next();
      lost.push({ fromUs: this.#appliedUs, toUs, countMax: toUs - this.#appliedUs });
      this.#appliedUs = toUs;
    }
    if (lost.length > 0) await this.#beginEpoch(lost);
  }

  /** Why an item of this size can never be taken; undefined when it can. */
  sizeError(sizeBytes: number): CodedError | undefined {
    const limitBytes = this.#parts.log.payloadBytesMax - itemOverheadBytes;
    return sizeBytes <= limitBytes
      ? undefined
      : storeErrors.entryTooLarge({ sizeBytes, limitBytes });
  }

  /**
   * Gives the item its commit time and puts it into the open entry.
   * REQUIRES: everything that decides about the item has been decided against proposed state;
   * `sizeError` had nothing to say.
   */
  cook(item: Item): number {
    assert(this.refusal === undefined, "cooking on a shard that takes nothing");
    const { count = 1 } = item;
    const openBytes = this.#open?.writer.length ?? 0;
    const isTooMany = (this.#open?.count ?? 0) + count > entryItemsMax;
    if (isTooMany || openBytes + item.sizeBytes > entryBytesMax) this.flush();
    const entry = this.#open ?? this.#begin();
    const { writer, items } = entry;
    const { time } = this.#parts;
    const timeUs = items.length === 0 ? entry.lastUs : time.following();
    writer.u8(item.kind).varint(timeUs - entry.lastUs);
    entry.lastUs = timeUs + count - 1;
    if (count > 1) time.through(entry.lastUs);
    item.encode(writer, timeUs);
    items.push(item);
    entry.ends.push(writer.length);
    entry.count += count;
    this.counters.itemsCooked += count;
    if (writer.length >= entryBytesMax || entry.count >= entryItemsMax) this.flush();
    return timeUs;
  }

  #begin(): OpenEntry {
    const timeUs = this.#parts.time.next();
    const writer = new ByteWriter(this.#writerBytes).u64(timeUs);
    const entry = { writer, items: [], ends: [], count: 0, lastUs: timeUs };
    this.#open = entry;
    this.#parts.endTurn(this);
    return entry;
  }

  /** Proposes the open entry. */
  flush(): void {
    const entry = this.#open;
    if (entry === undefined) return;
    this.#open = undefined;
    const { log } = this.#parts;
    const { writer, items, ends } = entry;
    const payload = writer.finish();
    this.#writerBytes = Math.max(writerBytesMin, payload.length);
    const index = log.lastIndex + 1;
    this.#waiting.push({ index, payload, items, ends, told: 0, isEarlyTold: false });
    this.counters.entriesProposed++;
    log.propose(entryKind.items, entryVersion, payload);
    // A log that had failed before says nothing more of what it is given.
    if (this.#failure !== undefined) this.#tellAll(this.#failure);
  }

  /** Takes nothing more and tells everybody who waits. */
  fail(error: CodedError): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    this.#parts.onFailure(error);
    this.#tellAll(error);
  }

  /** Like a failure, but wanted: what was not applied by now never will be in this process. */
  close(reason = storeErrors.closed()): void {
    this.#failure ??= reason;
    this.#tellAll(this.#failure);
  }

  /** Behind it reads see all that was acked before, by whoever leads; undefined: they always do. */
  barrier(): Promise<void> | undefined {
    return this.#parts.log.barrier?.();
  }

  /** Runs `then` when this time is applied, at once where it is, or when the shard has ended. */
  whenApplied(timeUs: number, then: () => void): void {
    this.#waits.add(timeUs, then);
    this.#tellApplied();
  }

  #tellApplied(): void {
    const untilUs = this.#failure === undefined ? this.#appliedUs : Number.POSITIVE_INFINITY;
    for (const then of this.#waits.due(untilUs)) this.callSafely(then);
  }

  /** It keeps the log from going on. */
  get pinsLog(): boolean {
    return this.#parts.log.pins;
  }

  /** Has what its next checkpoint would cover copied out of the log. @throws codes of the disk. */
  async copyBacklog(): Promise<void> {
    const range = await this.#parts.log.copyBacklog();
    if (range === undefined) return;
    this.counters.backlogsCopied++;
    this.#parts.logger.warn("store.backlog_copied", { shard: this.number, ...range });
  }

  /** A fault of one who is told must not keep others from hearing, nor the entry from applying. */
  callSafely(call: () => void): void {
    try {
      call();
    } catch (fault) {
      this.#countFault(fault);
    }
  }

  #countFault(fault: unknown): void {
    this.counters.callbackErrors++;
    const fields = { shard: this.number, reason: toError(fault).message };
    this.#parts.logger.error("store.callback_failed", fields);
  }

  /** Commits a checkpoint of everything applied by now; they are taken one at a time. */
  async checkpoint(): Promise<void> {
    // Never inside an apply: a checkpoint stands between two entries.
    await Promise.resolve();
    const index = this.#appliedIndex;
    while (this.#checkpointing !== undefined) {
      await this.#checkpointing.catch(() => undefined); // told to whoever asked for that one
      if (this.#parts.store.checkpoint.index >= index) return;
    }
    this.#checkpointing = this.#takeCheckpoint().finally(() => {
      this.#checkpointing = undefined;
    });
    await this.#checkpointing;
  }

  /**
   * Copies what another replica has and puts it in the place of what is here, unless that is as new.
   * Entries are applied meanwhile, but for `exclusively`, which holds them off. Resolves with the
   * index of the checkpoint then. @throws STORE_COPY_GONE and others: what is here stays.
   */
  async adopt(
    source: CopySource,
    exclusively: (work: () => Promise<number>) => Promise<void>,
  ): Promise<void> {
    const { machine } = this.#parts;
    const facts = await source.facts();
    const record = checkpointOf(facts);
    const staged =
      record.index > this.#appliedIndex ? await machine.stage?.(source, facts) : undefined;
    await exclusively(async () => {
      while (this.#foreign !== undefined) await this.#foreign;
      while (this.#checkpointing !== undefined) await this.#checkpointing.catch(() => undefined);
      const isLater = record.index > this.#appliedIndex && this.#failure === undefined;
      if (staged === undefined || !isLater) {
        await staged?.abandon();
        if (this.#failure !== undefined) throw this.#failure;
        return this.checkpointIndex;
      }
      const moving = this.#moveTo(record, staged);
      this.#foreign = moving
        .catch(() => undefined) // told to whoever asked for it
        .finally(() => {
          this.#foreign = undefined;
        });
      await moving;
      return record.index;
    });
  }

  async #moveTo(record: CheckpointRecord, staged: StagedState): Promise<void> {
    const { store, log, logger, phase, time } = this.#parts;
    let rows: readonly KvEntry[];
    try {
      rows = await staged.rows();
    } catch (error) {
      await staged.abandon();
      throw error;
    }
    const fields = { shard: this.number, fromIndex: this.#appliedIndex, toIndex: record.index };
    phase("copy.staged");
    try {
      await staged.leave();
      phase("copy.left");
      await store.replace(record, rows);
      phase("copy.switched");
      const put = await staged.enter();
      this.#appliedIndex = record.index;
      this.#appliedUs = record.timeUs;
      this.#epoch = record.epoch;
      this.#recoveries = record.recoveries;
      time.learn(record.timeUs);
      put();
      phase("copy.entered");
      await staged.settle();
    } catch (error) {
      // Half of the way is no place to stay: a start finds the one state or the other.
      const failure = storeErrors.failed({ reason: toError(error).message }, error);
      this.fail(failure);
      throw failure;
    }
    log.release(store.releasableIndex);
    this.#tellApplied();
    logger.info("store.replica_copied", { ...fields, ...staged.counts });
  }

  async #takeCheckpoint(): Promise<void> {
    const { store, machine, log, phase } = this.#parts;
    while (this.#foreign !== undefined) await this.#foreign;
    const record = {
      index: this.#appliedIndex,
      timeUs: this.#appliedUs,
      epoch: this.#epoch,
      recoveries: this.#recoveries,
    };
    const image = machine.capture();
    phase("checkpoint.captured");
    try {
      await image.prepare();
      phase("checkpoint.prepared");
      await store.commit(record, (batch) => image.addRows(batch));
    } catch (error) {
      image.finish(false);
      this.#checkpointFailed(toError(error));
      throw error;
    }
    phase("checkpoint.committed");
    image.finish(true);
    this.counters.checkpoints++;
    log.release(store.releasableIndex);
    phase("checkpoint.released");
    const { index, timeUs } = record;
    tellStore({ event: "checkpoint", shard: this.number, index, timeUs });
  }

  #checkpointFailed(error: Error): void {
    this.counters.checkpointsFailed++;
    if (this.#failure?.code === "STORE_CLOSED") return;
    const fields = { shard: this.number, reason: error.message };
    this.#parts.logger.error("store.checkpoint_failed", fields);
    tellStore({ event: "checkpoint_failed", ...fields });
    // What a failed sync leaves on the medium is not known, and no waiting mends damage: only a start
    // is safe.
    if (!isCodedError(error, "STORE_SYNC_FAILED") && !isCodedError(error, "KV_CORRUPT")) return;
    this.fail(storeErrors.failed({ reason: error.message }, error));
  }

  #commit(entry: ShardEntry): void {
    if (this.#failure !== undefined) return;
    const first = this.#waiting[0];
    const waiting = first?.index === entry.index ? first : undefined;
    try {
      this.#applyEntry(entry, waiting);
    } catch (error) {
      const { message } = toError(error);
      this.#parts.logger.error("store.apply_failed", { shard: this.number, reason: message });
      this.fail(storeErrors.failed({ reason: message }, error));
      return;
    }
    if (waiting !== undefined && this.#waiting[0] === waiting) this.#waiting.shift();
  }

  #applyEntry({ index, payload }: ShardEntry, waiting: WaitingEntry | undefined): void {
    const { machine } = this.#parts;
    // What was proposed here need not be decoded: who cooked it has it still.
    const cooked = waiting?.payload === payload ? waiting : undefined;
    const reader = new ByteReader(payload);
    const source = new ByteSource(payload);
    let timeUs = reader.u64();
    for (let at = 0; reader.remaining > 0; at++) {
      const kind = reader.u8();
      timeUs += reader.varint();
      const item = cooked?.items[at];
      const endsAt = cooked?.ends[at] ?? 0;
      // One that is several is told of behind the last of them.
      let left = (waiting?.items[at]?.count ?? 1) - 1;
      if (item !== undefined && machine.applyCooked?.(item, timeUs, source, endsAt) === true) {
        reader.skip(endsAt - reader.offset);
        timeUs += left;
      } else {
        for (machine.apply(kind, timeUs, reader); left > 0; left--) {
          timeUs = this.#applyNext(reader, timeUs);
        }
      }
      this.#appliedUs = timeUs;
      if (waiting !== undefined && waiting.told === at) this.#tell(waiting, undefined);
      machine.dispatch(timeUs);
    }
    this.#appliedIndex = index;
    this.counters.entriesApplied++;
    this.#tellApplied();
  }

  #applyNext(reader: ByteReader, beforeUs: number): number {
    const { machine } = this.#parts;
    machine.dispatch(beforeUs);
    const kind = reader.u8();
    const timeUs = beforeUs + reader.varint();
    machine.apply(kind, timeUs, reader);
    return timeUs;
  }

  #applyForeign(entry: ShardEntry): undefined | Promise<void> {
    if (this.#failure !== undefined) return undefined;
    if (entry.kind === entryKind.none) {
      this.#appliedIndex = entry.index;
      return undefined;
    }
    const applying = this.#applyItems(entry)
      .catch((error: unknown) => {
        const { message } = toError(error);
        this.#parts.logger.error("store.apply_failed", { shard: this.number, reason: message });
        this.fail(storeErrors.failed({ reason: message }, error));
      })
      .finally(() => {
        this.#foreign = undefined;
      });
    this.#foreign = applying;
    return applying;
  }

  async #applyItems(entry: ShardEntry): Promise<void> {
    const { machine, time } = this.#parts;
    checkVersion(entry, this.number);
    const reader = new ByteReader(entry.payload);
    let timeUs = reader.u64();
    while (reader.remaining > 0) {
      const kind = reader.u8();
      timeUs += reader.varint();
      const ready = machine.beforeReplay(kind, new ByteReader(entry.payload, reader.offset));
      if (ready !== undefined) await ready;
      if (this.#failure !== undefined) return;
      machine.apply(kind, timeUs, reader);
      this.#appliedUs = timeUs;
      machine.dispatch(timeUs);
    }
    time.learn(timeUs);
    this.#appliedIndex = entry.index;
    this.counters.entriesApplied++;
    this.#tellApplied();
  }

  #lose(index: number, error: CodedError): void {
    const at = this.#waiting.findIndex((each) => each.index === index);
    const [entry] = at < 0 ? [] : this.#waiting.splice(at, 1);
    if (entry === undefined) return;
    this.counters.entriesLost++;
    this.#tellRest(entry, error);
  }

  // What is proposed may yet be committed, and is told of by the log; what is not never will be.
  #depose(reason: CodedError): void {
    this.#parts.machine.depose?.(reason);
    const open = this.#open;
    this.#open = undefined;
    if (open !== undefined) this.#tellRest(neverProposed(open), reason);
  }

  #tellAll(error: CodedError): void {
    const open = this.#open;
    this.#open = undefined;
    const entries = this.#waiting.splice(0);
    if (open !== undefined) entries.push(neverProposed(open));
    for (const entry of entries) this.#tellRest(entry, error);
    this.#tellApplied();
  }

  #tellRest(entry: WaitingEntry, error: CodedError): void {
    while (entry.told < entry.items.length) this.#tell(entry, error);
  }

  #tell(entry: WaitingEntry, error: CodedError | undefined): void {
    const item = entry.items[entry.told++];
    if (item === undefined || (entry.isEarlyTold && item.isEarly === true)) return;
    this.#tellItem(item, error);
  }

  #tellItem(item: Item, error: CodedError | undefined): void {
    try {
      item.done(error);
    } catch (fault) {
      this.#countFault(fault);
    }
  }

  #tellEarly(index: number): void {
    if (this.#failure !== undefined) return;
    const entry = this.#waiting.find((each) => each.index === index);
    if (entry === undefined || entry.isEarlyTold) return;
    entry.isEarlyTold = true;
    for (const item of entry.items) if (item.isEarly === true) this.#tellItem(item, undefined);
  }

  /** After a loss: readers whose position lies before it are told when they pass it. */
  async #beginEpoch(lost: ReadonlyArray<Omit<RecoveryPoint, "epoch">>): Promise<void> {
    this.#epoch++;
    const points = lost.map((span) => ({ ...span, epoch: this.#epoch }));
    this.#recoveries = [...this.#recoveries, ...points].slice(-recoveriesMax);
    for (const { fromUs, toUs, countMax } of points) {
      const fields = { shard: this.number, epoch: this.#epoch, fromUs, toUs, countMax };
      this.#parts.logger.error("store.entries_lost", fields);
    }
    await this.checkpoint();
  }
}
