// The generations of a log shard: the table that says which commit times are where, and what happens
// to it: rotations and drops that are applied, checkpoints, slabs that were packed anew. The slabs
// themselves are on a shelf (slab-shelf.ts).
//
// Invariants: only the newest generation is written; the table changes only by applied entries, or
// where a slab cannot be read any more, and is saved by checkpoints; a folder that the saved table
// does not name is an orphan and goes at the next start; a folder goes only after a checkpoint
// without it. A damaged slab is mended when it is opened (slab-pair.ts); where even that fails it goes
// to the quarantine.

import { assert, assertPresent, type Logger } from "../../base/index.ts";
import type { KvBatch } from "../../kv/index.ts";
import type { TtvRef } from "../api.ts";
import { type Generation, type GenerationTable, totalOf } from "../core/generations.ts";
import type { Lts, LtsSettings } from "../core/lts.ts";
import { createLts, inheritLts, loadLts } from "../core/lts-start.ts";
import type { LtsRecord } from "../core/lts-trie.ts";
import type { MissingReason, MissingSpan } from "../core/missing.ts";
import { isDamage } from "../damage-codes.ts";
import { storeErrors } from "../errors.ts";
import type { MendParts } from "../mending.ts";
import type { ShardStore } from "../shard-store.ts";
import type { Ttv } from "../types.ts";
import type { BlockReader } from "./block-reader.ts";
import { CheckpointWaits } from "./checkpoint-waits.ts";
import { DroppedSpans } from "./dropped-spans.ts";
import { fetchFrom } from "./fetch.ts";
import {
  deleteGeneration,
  encodeProofs,
  proofKey,
  readDropped,
  readGenerations,
  readProofs,
  tableRows,
} from "./generation-rows.ts";
import { checkLayout, layoutName } from "./layouts.ts";
import { LogSlab, type LogSlabSpan } from "./log-slab.ts";
import type { OpenSlabs } from "./open-slabs.ts";
import { Packs } from "./packs.ts";
import { loadLtsOf } from "./slab-lts.ts";
import type { SlabName } from "./slab-name.ts";
import type { LostStream, SlabExpected, SlabPair, SlabProofs, VisitLogged } from "./slab-parts.ts";
import { SlabShelf } from "./slab-shelf.ts";
import { SlabSizes } from "./slab-sizes.ts";
import type { SlabCounters, SlabStores } from "./slab-stores.ts";
import { SlabTrust } from "./slab-trust.ts";

export type GenerationsParts = {
  /** Folder of the shard: one folder per generation in it. */
  readonly dir: string;
  readonly kv: MendParts;
  readonly reader: BlockReader;
  readonly openSlabs: OpenSlabs;
  readonly slabCounters?: SlabCounters;
  readonly whenCopied?: (run: () => void) => void;
  /** Folders of what is being copied from another replica. */
  readonly staged?: () => Promise<readonly SlabName[]>;
  /** How topics are learned: for generations that begin, and in the current one. */
  readonly lts: () => LtsSettings;
  readonly logger: Logger;
  readonly phase: (name: string) => void;
  readonly onMemory: (deltaBytes: number) => void;
  /** A block was sealed: the current generation has grown. */
  readonly onSealed: (sizeBytes: number) => void;
  /** A sealed slab was mended, or left the table because nothing helped: wants a checkpoint. */
  readonly onSetAside: () => void;
  /** Who has not passed these is to be told, whatever matched last. */
  readonly onLost: (lost: readonly LostStream[]) => void;
  /** A slab takes nothing more: the shard cannot go on. */
  readonly onFailure: (error: Error) => void;
  /** The TTVs that the log still has, for a slab that has lost some. */
  readonly logged: (visit: VisitLogged) => Promise<void>;
};

/** First commit time there can be: position 0 is before everything. */
const firstUs = 1;

export class Generations {
  readonly #parts: GenerationsParts;
  readonly #shelf: SlabShelf;
  readonly #table: GenerationTable;
  readonly #dropped: DroppedSpans;
  /** Slabs with something that the last checkpoint does not cover. */
  readonly #dirty = new Set<LogSlab>();
  #isClosed = false;
  #prepared: { readonly slab: LogSlab; readonly stores: SlabStores } | undefined;
  #preparing: Promise<LogSlab> | undefined;
  #current: LogSlab | undefined;
  #cooking: LogSlab | undefined;
  readonly #sizes = new SlabSizes((number) => this.sizeOf(number));
  /** Slabs that are being packed anew. */
  readonly packs: Packs;
  #memoryBytes = 0;
  #isCurrentLost = false;
  readonly #trust: SlabTrust;
  /** Everything up to here was in the slabs at the start. */
  readonly #startUs: number;
  /** Rotations replayed after a loss that got other numbers than their entries say. */
  readonly #renumbered = new Map<number, number>();
  /** Reads of slabs that were mended. */
  readonly waits = new CheckpointWaits();

  private constructor(parts: GenerationsParts, table: GenerationTable, saved: SavedRows) {
    this.#parts = parts;
    this.#trust = new SlabTrust(saved.proofs, table);
    this.#startUs = saved.checkpointUs;
    this.#shelf = new SlabShelf(parts);
    this.#table = table;
    this.#dropped = new DroppedSpans(saved.dropped);
    this.packs = new Packs({
      ...{ table, shelf: this.#shelf, create: (name) => this.#create(name) },
      makeSlab: (stores, lts, span) => this.#makeSlab(stores, lts, span),
      onSwitched: (number) => {
        this.#trust.switched(number);
        this.#sizes.doubt(number);
        parts.phase("repack.switched");
      },
    });
  }

  /** Reads the table as of the checkpoint and cuts the slab that was current back to it. */
  static async open(parts: GenerationsParts, store: ShardStore): Promise<Generations> {
    const table = await readGenerations(store);
    const generations = new Generations(parts, table, {
      dropped: await readDropped(store),
      proofs: await readProofs(store),
      checkpointUs: store.checkpoint.timeUs,
    });
    for (const each of table.generations) checkLayout(each);
    // A table that may have lost rows condemns nothing.
    const how = store.isMended ? "set_aside" : "remove";
    const shelf = generations.#shelf;
    const known = [...table.readable(), ...((await parts.staged?.()) ?? [])];
    const left = await shelf.folders.removeOrphans(known, how, store.isCopied);
    if (how === "remove") shelf.removeWhenCopied(left);
    await generations.#openCurrent();
    return generations;
  }

  /** The slab that applied items go to. */
  get current(): LogSlab {
    return assertPresent(this.#current, "a shard has a current generation");
  }

  /** The slab that items are cooked for. */
  get cooking(): LogSlab {
    return this.#cooking ?? this.current;
  }

  /** Bytes of blocks that are not on disk yet. */
  get memoryBytes(): number {
    return this.#memoryBytes;
  }

  get list(): readonly Generation[] {
    return this.#table.generations;
  }

  /** The row of the one that is written. */
  get currentRow(): Generation {
    return assertPresent(this.#table.current, "a shard has a current generation");
  }

  /** Bytes that all slabs take on the volume. */
  measure(): Promise<number> {
    return this.#sizes.measure(
      this.#table.generations.map(({ number, state }) => {
        return { number, isAtRest: state === "sealed" && !this.isOpen(number) };
      }),
    );
  }

  /** As last measured. */
  physicalOf(number: number): number {
    return this.#sizes.of(number);
  }

  /** Whether the slab's stores are open now. */
  isOpen(number: number): boolean {
    return this.#shelf.isOpen(number);
  }

  /** Those that readers may read, oldest first. */
  get readable(): Generation[] {
    return this.#table.readable();
  }

  /** The oldest of them; it may be the current one. */
  get oldest(): Generation {
    return this.readable[0] ?? this.currentRow;
  }

  /** What was dropped or set aside, ascending. The same array until it changes. */
  get missing(): readonly MissingSpan[] {
    return this.#dropped.sorted;
  }

  /** The slab that was current had lost something: what the log says of its streams is void. */
  get isCurrentLost(): boolean {
    return this.#isCurrentLost;
  }

  // -------------------------------------------------------------- rotation and drop

  /**
   * Opens an empty slab for the next generation, so that applying the rotation needs no wait.
   * REQUIRES: one at a time. @throws STORE_CLOSED: nobody would close what it opened.
   */
  prepareNext(numberMin = 0): Promise<LogSlab> {
    if (this.#isClosed) return Promise.reject(storeErrors.closed());
    const preparing = this.#prepare(Math.max(numberMin, this.#table.nextNumber));
    this.#preparing = preparing;
    return preparing;
  }

  async #prepare(number: number): Promise<LogSlab> {
    if (this.#prepared?.slab.generation === number) return this.#prepared.slab;
    await this.#prepared?.stores.close();
    this.#prepared = undefined;
    const stores = await this.#create({ number, pack: 0 });
    const lts = inheritLts(this.#parts.lts(), this.cooking.lts);
    const span = { ...freshSpan, generation: number, fromUs: 0 };
    const slab = this.#makeSlab(stores, lts, span);
    this.#prepared = { slab, stores };
    return slab;
  }

  /** The rotation to `next` has been cooked: what is cooked after it goes there. */
  cookInto(next: LogSlab): void {
    this.#cooking = next;
  }

  /** Forgets what was cooked and is not applied; a slab that was prepared stays so. */
  depose(): void {
    this.#cooking = undefined;
    this.current.lts.dropPending();
  }

  applyRotate(number: number, timeUs: number, records: readonly LtsRecord[]): void {
    const { slab: next, stores } = assertPresent(
      this.#prepared,
      "a rotation is prepared before it is applied",
    );
    const generation = this.#table.rotate(timeUs, layoutName, next.generation);
    if (generation.number !== number) this.#renumbered.set(number, generation.number);
    this.#prepared = undefined;
    this.current.end(timeUs);
    const led = this.#cooking === next;
    const lts = led ? next.lts : loadLts(this.#parts.lts(), records);
    const span = { ...freshSpan, generation: generation.number, fromUs: timeUs };
    const slab = this.#makeSlab(stores, lts, span);
    slab.remember(records, timeUs);
    this.#cooking = undefined;
    this.#adopt(slab);
  }

  /** Sealed generations that end at or before `untilUs`. */
  droppable(untilUs: number): Array<{ readonly number: number; readonly toUs: number }> {
    const found: Array<{ number: number; toUs: number }> = [];
    for (const { number, toUs } of this.#table.readable()) {
      if (toUs !== undefined && toUs - 1 <= untilUs) found.push({ number, toUs });
    }
    return found;
  }

  /** What went, one span for each generation. */
  applyDrop(numbers: readonly number[]): MissingSpan[] {
    const gone: MissingSpan[] = [];
    for (const entryNumber of numbers) {
      const number = this.#renumbered.get(entryNumber) ?? entryNumber;
      const generation = this.#table.readable().find((each) => each.number === number);
      if (generation?.toUs !== undefined) gone.push(this.#leave(generation, "expired"));
    }
    return gone;
  }

  // -------------------------------------------------------------- applying

  /** The slab for an applied time; undefined when its generation is gone. */
  forApply(timeUs: number): LogSlab | undefined {
    const place = this.#table.place(timeUs);
    if (place === "dropped" || place === "none") return undefined;
    const slab = this.#shelf.get(place.number);
    assert(slab === this.#current, "only the current generation is written");
    this.#dirty.add(this.current);
    return this.current;
  }

  /** Of everything applied by now, whose last time is `appliedUs`. */
  capture(appliedUs: number): {
    prepare(): Promise<void>;
    addRows(batch: KvBatch): void;
    finish(committed: boolean): void;
  } {
    this.current.sealAll();
    for (const slab of this.#trust.takeUnproved((number) => this.#shelf.get(number))) {
      this.#dirty.add(slab);
    }
    const slabs = [...this.#dirty];
    this.#dirty.clear();
    const changed = this.#table.takeChanged();
    const packed = this.packs.capture();
    const proofs = new Map(packed.proofs);
    const rows = tableRows(this.#table, [...changed, ...packed.rows]);
    const spans = this.#dropped.capture();
    const sealing = this.#table.numbersIn("sealing");
    const leaving = this.#table.numbersIn("dropping");
    const endWaits = this.waits.capture();
    return {
      prepare: async () => {
        for (const slab of slabs) {
          const { generation } = slab;
          if (this.#shelf.get(generation) !== slab || proofs.has(generation)) continue;
          proofs.set(generation, await slab.sync(Math.min(appliedUs, slab.untilUs)));
        }
      },
      addRows: (batch) => {
        spans.addRows(batch);
        for (const [key, value] of rows) batch.put(key, value);
        for (const [number, proof] of proofs) batch.put(proofKey(number), encodeProofs(proof));
        for (const number of leaving) deleteGeneration(batch, number);
      },
      finish: (committed) => {
        endWaits(committed);
        if (committed) {
          this.#trust.committed(proofs);
          packed.finish(true);
          this.#finishCheckpoint(sealing, leaving);
          return;
        }
        for (const slab of slabs) this.#dirty.add(slab);
        this.#table.giveBackChanged(changed.map((each) => each.number));
        spans.giveBack();
        packed.finish(false);
      },
    };
  }

  // -------------------------------------------------------------- reading

  /** The first slab with times above a position; undefined when none is left. */
  slabAfter(positionUs: number): LogSlab | undefined | Promise<LogSlab | undefined> {
    const generation = this.#table
      .readable()
      .find((each) => each.toUs === undefined || each.toUs - 1 > positionUs);
    if (generation === undefined) return undefined;
    return this.#ready(generation);
  }

  /** The slab of a generation, opened when needed; undefined when it is gone or unreadable. */
  async slabOf(number: number): Promise<LogSlab | undefined> {
    const generation = this.readable.find((each) => each.number === number);
    if (generation === undefined) return undefined;
    return this.#ready(generation);
  }

  /** With what it has learned: not a promise where both are in memory. */
  #ready(generation: Generation): LogSlab | undefined | Promise<LogSlab | undefined> {
    const slab = this.#shelf.get(generation.number);
    if (slab === undefined) return this.#openSealed(generation);
    const loading = slab.ready();
    return loading === undefined ? slab : loading.then(() => slab);
  }

  /** Bytes that its slab takes on the volume now. */
  async sizeOf(number: number): Promise<number> {
    const { folders } = this.#shelf;
    const pack = this.#table.find(number)?.pack ?? 0;
    const packing = this.packs.nameOf(number);
    const sizeBytes = await folders.size({ number, pack });
    return sizeBytes + (packing === undefined ? 0 : await folders.size(packing));
  }

  /** Its stores take another size on the volume. */
  rewritten(number: number): void {
    this.#sizes.doubt(number);
  }

  /** The time decides: a rotation whose entry was lost leaves its TTVs to the generation before. */
  async fetch(ref: TtvRef): Promise<Ttv | undefined> {
    const generation = this.#table.place(ref.timeUs);
    if (generation === "dropped" || generation === "none") return undefined;
    const slab = await this.#ready(generation);
    if (slab === undefined) return undefined;
    const endWalk = slab.beginWalk();
    try {
      return await fetchFrom(slab, ref);
    } catch (error) {
      // Dropped while it was read.
      if (this.#table.place(ref.timeUs) === "dropped") return undefined;
      // Packed anew while it was read.
      const isReplaced = !this.#shelf.isClosed && this.#shelf.get(generation.number) !== slab;
      if (isReplaced) return this.fetch(ref);
      throw error;
    } finally {
      endWalk();
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.waits.close();
    // What is being opened is opened to its end, to be closed with the rest.
    await Promise.allSettled([this.#preparing]);
    await this.#shelf.close();
    await this.#prepared?.stores.close();
    await this.packs.close();
    this.#parts.onMemory(-this.#memoryBytes);
    this.#memoryBytes = 0;
  }

  // -------------------------------------------------------------- opening

  async #openCurrent(): Promise<void> {
    const checkpointUs = this.#startUs;
    const { current } = this.#table;
    if (current === undefined) {
      // A table that was made anew (rebuild.ts) ends at the checkpoint, all sealed: the log's streams
      // are those of a slab that is sealed now. One that only lost rows may end anywhere.
      const endUs = this.#table.generations.at(-1)?.toUs;
      this.#isCurrentLost = endUs === checkpointUs + 1;
      await this.#begin(this.#isCurrentLost ? checkpointUs + 1 : firstUs);
      return;
    }
    const { number, fromUs, layout } = current;
    let stores: SlabStores | undefined;
    try {
      stores = await this.#shelf.folders.open(
        current,
        () => this.#expected(number),
        this.#parts.slabCounters,
      );
      await stores.cutBack(checkpointUs);
      const lts = await loadLtsOf(stores, this.#parts.lts());
      const span = { ...freshSpan, generation: number, fromUs, writtenUs: checkpointUs };
      this.#adopt(this.#makeSlab(stores, lts, { ...span, layout }));
    } catch (error) {
      await stores?.close();
      if (!isDamage(error)) throw error;
      this.#shelf.logDamage(current, error);
      this.#isCurrentLost = true;
      const lostUntilUs = Math.max(checkpointUs, fromUs);
      await this.#begin(lostUntilUs + 1);
      this.#leave(this.#table.get(number), "damaged");
    }
  }

  /** Undefined while the table does not have it: nothing is in it then. */
  #expected(number: number): SlabExpected | undefined {
    const generation = this.#table.find(number);
    if (generation === undefined) return undefined;
    return {
      generation,
      proofs: this.#trust.proofOf(number),
      untilUs: generation.toUs === undefined ? this.#startUs : generation.toUs - 1,
      logged: this.#parts.logged,
      onMended: (lost) => this.#noteMended(generation, lost),
    };
  }

  /**
   * Where something is lost, reads wait for a checkpoint: a reader's position may outlast the process,
   * and so must what it is to be told behind it.
   */
  #noteMended({ number, toUs }: Generation, lost: readonly LostStream[]): SlabPair["settled"] {
    this.#parts.onLost(lost);
    this.#trust.lost(number, toUs === undefined);
    if (toUs === undefined) {
      // Its shard begins with a checkpoint.
      this.#isCurrentLost = true;
      return undefined;
    }
    const settled = lost.length === 0 ? undefined : this.waits.next();
    this.#parts.onSetAside();
    return settled;
  }

  /** A generation that no entry speaks of: the very first, or in place of one that was lost. */
  async #begin(fromUs: number): Promise<void> {
    const next = this.#table.nextNumber;
    const stores = await this.#create({ number: next, pack: 0 });
    const { number } = this.#table.rotate(fromUs, layoutName);
    const lts = createLts(this.#parts.lts());
    const slab = this.#makeSlab(stores, lts, {
      ...{ ...freshSpan, generation: number, fromUs },
      writtenUs: fromUs - 1,
    });
    slab.remember(lts.records(), fromUs);
    this.#adopt(slab);
  }

  #create(name: SlabName): Promise<SlabStores> {
    // While the table names another folder, or none, nothing is known to be in this one.
    const isNamed = (each: Generation): boolean =>
      each.number === name.number && each.pack === name.pack;
    const expected = (): SlabExpected | undefined =>
      this.#table.generations.some(isNamed) ? this.#expected(name.number) : undefined;
    return this.#shelf.folders.create(name, expected, this.#parts.slabCounters);
  }

  #adopt(slab: LogSlab): void {
    this.#current = slab;
    this.#shelf.add(slab);
    this.#dirty.add(slab);
  }

  /** Undefined when it cannot be read: it has left the table, and its span says so. */
  #openSealed(generation: Generation): Promise<LogSlab | undefined> {
    const { number, fromUs, layout } = generation;
    const toUs = assertPresent(generation.toUs, "a sealed generation has an end");
    return this.#shelf.open(generation, () => this.#expected(number), {
      make: async (stores) => {
        const lts = await loadLtsOf(stores, this.#parts.lts());
        const span = { generation: number, fromUs, toUs, writtenUs: toUs, layout };
        return this.#makeSlab(stores, lts, span);
      },
      onOpened: (slab) => {
        if (slab === undefined) this.#leaveUnreadable(number);
        else if (this.#trust.isUnproved(number)) this.#parts.onSetAside();
      },
    });
  }

  #leaveUnreadable(number: number): void {
    const readable = this.#table.readable().find((each) => each.number === number);
    if (readable === undefined) return;
    this.#leave(readable, "damaged");
    this.#parts.onSetAside();
  }

  #makeSlab(stores: SlabStores, lts: Lts, span: LogSlabSpan): LogSlab {
    const { reader, logger, phase, onMemory, openSlabs } = this.#parts;
    const slab: LogSlab = new LogSlab(
      {
        ...{ stores, lts, reader, logger, phase },
        loadLts: () => loadLtsOf(stores, this.#parts.lts()),
        onMemory: (deltaBytes) => {
          this.#memoryBytes += deltaBytes;
          onMemory(deltaBytes);
        },
        onSealed: (stream, added) => {
          const count = { ...added, ...slab.lts.originOf(stream) };
          this.#table.count(span.generation, stream, count, added.firstUs);
          this.#parts.onSealed(added.sizeBytes);
        },
        onUsed: () => {
          if (this.#table.find(span.generation)?.state === "sealed") openSlabs.used(slab);
        },
        countOf: (stream) => this.#table.find(span.generation)?.streams.get(stream)?.ttvs ?? 0,
        onFailure: this.#parts.onFailure,
      },
      span,
    );
    return slab;
  }

  // -------------------------------------------------------------- leaving

  /** From now on nobody reads it, and readers who come are told; it goes after a checkpoint. */
  #leave(generation: Generation, reason: MissingReason): MissingSpan {
    const untilUs = assertPresent(generation.toUs, "only sealed generations leave") - 1;
    this.#table.beginDrop(generation.number);
    this.packs.dropped(generation.number);
    const countMax = totalOf(generation).ttvs;
    const streams =
      reason === "damaged"
        ? undefined
        : [...generation.streams.values()].map(({ structure, dollar, ttvs }) => {
            return { structure, dollar, ttvs };
          });
    const span = { afterUs: generation.fromUs - 1, untilUs, countMax, reason, streams };
    this.#dropped.add(generation.number, span);
    return span;
  }

  #finishCheckpoint(sealing: readonly number[], leaving: readonly number[]): void {
    for (const number of sealing) {
      this.#table.finishSeal(number);
      const slab = this.#shelf.get(number);
      if (slab !== undefined) this.#parts.openSlabs.used(slab);
    }
    for (const number of leaving) {
      const isDamaged = this.#dropped.reasonOf(number) === "damaged";
      const generation = this.#table.get(number);
      this.#table.finishDrop(number);
      this.#trust.forget(number);
      this.#shelf.discard(generation, isDamaged ? "set_aside" : "remove");
    }
  }
}

const freshSpan = { toUs: undefined, writtenUs: 0, layout: layoutName };

type SavedRows = {
  readonly dropped: Map<number, MissingSpan>;
  readonly proofs: Map<number, SlabProofs>;
  readonly checkpointUs: number;
};
