// The generations of a log shard as things on disk: one slab each, opened when it is needed, and
// the table that says which commit times are where.
//
// Invariants: only the newest generation is written; the table changes only by applied entries and
// is saved by checkpoints; a folder that the saved table does not name is an orphan and goes at the
// next start; a folder goes only after a checkpoint without it.

import {
  assert,
  assertPresent,
  ByteReader,
  ByteWriter,
  type Disk,
  joinPath,
  type Logger,
  toError,
} from "../../base/index.ts";
import type { KvBatch } from "../../kv/index.ts";
import type { MissedReport, TtvRef } from "../api.ts";
import {
  decodeGenerationRow,
  encodeGenerationKey,
  encodeGenerationRow,
} from "../core/generation-codec.ts";
import { type Generation, GenerationTable, totalOf } from "../core/generations.ts";
import type { Lts, LtsSettings } from "../core/lts.ts";
import { createLts, inheritLts, loadLts } from "../core/lts-start.ts";
import type { LtsRecord } from "../core/lts-trie.ts";
import type { DurableKvParts } from "../durable-kv.ts";
import { indexAfter, ttvAt } from "../layout/ttv-view.ts";
import { rowPrefix, type ShardStore } from "../shard-store.ts";
import type { Ttv } from "../types.ts";
import type { BlockReader } from "./block-reader.ts";
import { LogSlab } from "./log-slab.ts";
import { SlabStores } from "./slab-stores.ts";

export type GenerationsParts = {
  /** Folder of the shard: one folder per generation in it. */
  readonly dir: string;
  readonly disk: Disk;
  readonly kv: DurableKvParts;
  readonly reader: BlockReader;
  readonly lts: LtsSettings;
  readonly logger: Logger;
  readonly phase: (name: string) => void;
  readonly onMemory: (deltaBytes: number) => void;
};

/** What was dropped, kept to tell readers who come too late. */
type DroppedSpan = { readonly fromUs: number; readonly toUs: number; readonly ttvs: number };

export const layoutName = "log-v1";
/** First commit time there can be: position 0 is before everything. */
const firstUs = 1;
/** Spans remembered; older ones are folded into the oldest kept. */
const droppedSpansMax = 1_000;
const formatVersion = 1;
const nextNumberKey = Buffer.from([rowPrefix.nextGeneration]);

export class Generations {
  readonly #parts: GenerationsParts;
  readonly #table: GenerationTable;
  readonly #dropped = new Map<number, DroppedSpan>();
  readonly #slabs = new Map<number, LogSlab>();
  readonly #opening = new Map<number, Promise<LogSlab>>();
  /** Slabs with something that the last checkpoint does not cover. */
  readonly #dirty = new Set<LogSlab>();
  #prepared: { readonly slab: LogSlab; readonly stores: SlabStores } | undefined;
  #current: LogSlab | undefined;
  #cooking: LogSlab | undefined;
  #memoryBytes = 0;

  private constructor(parts: GenerationsParts, table: GenerationTable) {
    this.#parts = parts;
    this.#table = table;
  }

  /** Reads the table as of the checkpoint and cuts the slab that was current back to it. */
  static async open(parts: GenerationsParts, store: ShardStore): Promise<Generations> {
    const generations = new Generations(parts, await readTable(store));
    await generations.#loadDropped(store);
    await generations.#removeOrphans();
    await generations.#openCurrent(store.checkpoint.timeUs);
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

  // -------------------------------------------------------------- rotation and drop

  /** Opens an empty slab for the next generation, so that applying the rotation needs no wait. */
  async prepareNext(number = this.#table.nextNumber): Promise<LogSlab> {
    if (this.#prepared !== undefined) return this.#prepared.slab;
    const path = this.#pathOf(number);
    // A rotation that was never checkpointed may have left a folder.
    await this.#removeFolder(path);
    await this.#parts.disk.makeDir(path);
    await this.#parts.disk.syncDir(this.#parts.dir);
    const stores = await SlabStores.open(path, this.#parts.kv);
    const lts = inheritLts(this.#parts.lts, this.cooking.lts);
    const slab = this.#makeSlab(stores, lts, {
      generation: number,
      fromUs: 0,
      toUs: undefined,
      writtenUs: 0,
    });
    this.#prepared = { slab, stores };
    return slab;
  }

  /** The rotation to `next` has been cooked: what is cooked after it goes there. */
  cookInto(next: LogSlab): void {
    this.#cooking = next;
  }

  applyRotate(number: number, timeUs: number, records: readonly LtsRecord[]): void {
    const prepared = assertPresent(this.#prepared, "a rotation is prepared before it is applied");
    assert(prepared.slab.generation === number, "the generation that begins is the prepared one");
    this.#table.rotate(timeUs, layoutName, number);
    this.#prepared = undefined;
    this.current.end(timeUs);
    const led = this.#cooking === prepared.slab;
    const lts = led ? prepared.slab.lts : loadLts(this.#parts.lts, records);
    const slab = this.#makeSlab(prepared.stores, lts, {
      generation: number,
      fromUs: timeUs,
      toUs: undefined,
      writtenUs: 0,
    });
    slab.remember(records, timeUs);
    this.#cooking = undefined;
    this.#current = slab;
    this.#slabs.set(number, slab);
    this.#dirty.add(slab);
  }

  /** Sealed generations that end at or before `untilUs`. */
  droppable(untilUs: number): number[] {
    return this.#table
      .readable()
      .filter((each) => each.toUs !== undefined && each.toUs - 1 <= untilUs)
      .map((each) => each.number);
  }

  applyDrop(numbers: readonly number[]): void {
    for (const number of numbers) {
      const generation = this.#table.generations.find((each) => each.number === number);
      if (generation === undefined || generation.toUs === undefined) continue;
      this.#table.beginDrop(number);
      const { fromUs, toUs } = generation;
      this.#dropped.set(number, { fromUs, toUs, ttvs: totalOf(generation).ttvs });
      this.#foldDropped();
    }
  }

  // -------------------------------------------------------------- applying

  /** The slab for an applied time; undefined when its generation is gone. */
  forApply(timeUs: number): LogSlab | undefined {
    const place = this.#table.place(timeUs);
    if (place === "dropped" || place === "none") return undefined;
    const slab = this.#slabs.get(place.number);
    assert(slab === this.#current, "only the current generation is written");
    this.#dirty.add(this.current);
    return this.current;
  }

  capture(): {
    prepare(): Promise<void>;
    addRows(batch: KvBatch): void;
    finish(committed: boolean): void;
  } {
    this.current.sealAll();
    const slabs = [...this.#dirty];
    this.#dirty.clear();
    const rows = this.#rows();
    const sealing = this.#numbersIn("sealing");
    const dropping = this.#numbersIn("dropping");
    return {
      prepare: async () => {
        for (const slab of slabs) await slab.sync();
      },
      addRows: (batch) => {
        for (const [key, value] of rows) batch.put(key, value);
        for (const number of dropping) batch.delete(generationKey(number));
      },
      finish: (committed) => {
        if (!committed) {
          for (const slab of slabs) this.#dirty.add(slab);
          return;
        }
        for (const number of sealing) this.#table.finishSeal(number);
        for (const number of dropping) void this.#removeSlab(number);
      },
    };
  }

  // -------------------------------------------------------------- reading

  slabAfter(positionUs: number): LogSlab | undefined | Promise<LogSlab> {
    const generation = this.#table
      .readable()
      .find((each) => each.toUs === undefined || each.toUs - 1 > positionUs);
    if (generation === undefined) return undefined;
    return this.#slabs.get(generation.number) ?? this.#openSealed(generation);
  }

  missedAfter(positionUs: number): Omit<MissedReport, "shard"> | undefined {
    let count = 0;
    let toUs = 0;
    for (const span of this.#dropped.values()) {
      if (span.toUs - 1 <= positionUs) continue;
      count += span.ttvs;
      toUs = Math.max(toUs, span.toUs - 1);
    }
    if (toUs === 0) return undefined;
    return { fromUs: positionUs, toUs, count, estimated: true, reason: "expired" };
  }

  async fetch(ref: TtvRef): Promise<Ttv | undefined> {
    // The time decides: a rotation whose entry was lost leaves its TTVs to the generation before.
    const generation = this.#table.place(ref.timeUs);
    if (generation === "dropped" || generation === "none") return undefined;
    const slab = this.#slabs.get(generation.number) ?? (await this.#openSealed(generation));
    const found = await fetchFrom(slab, ref.stream, ref.timeUs);
    if (found !== undefined) return found;
    // After a loss its topic may have been learned anew, under another stream.
    for (const stream of slab.streams) {
      const elsewhere = await fetchFrom(slab, stream, ref.timeUs);
      if (elsewhere !== undefined) return elsewhere;
    }
    return undefined;
  }

  async close(): Promise<void> {
    await Promise.allSettled(this.#opening.values());
    for (const slab of this.#slabs.values()) await slab.close();
    await this.#prepared?.stores.close();
  }

  // -------------------------------------------------------------- opening

  async #openCurrent(checkpointUs: number): Promise<void> {
    if (this.#table.current === undefined) {
      const slab = await this.#prepareFirst();
      this.#table.rotate(firstUs, layoutName);
      this.#adopt(slab);
      return;
    }
    const { number, fromUs } = this.#table.current;
    const stores = await SlabStores.open(this.#pathOf(number), this.#parts.kv);
    await stores.cutBack(checkpointUs);
    const lts = await this.#loadLts(stores);
    const span = { generation: number, fromUs, toUs: undefined, writtenUs: checkpointUs };
    this.#adopt(this.#makeSlab(stores, lts, span));
  }

  async #prepareFirst(): Promise<LogSlab> {
    const number = this.#table.nextNumber;
    const path = this.#pathOf(number);
    await this.#parts.disk.makeDir(path);
    await this.#parts.disk.syncDir(this.#parts.dir);
    const stores = await SlabStores.open(path, this.#parts.kv);
    const lts = createLts(this.#parts.lts);
    const span = { generation: number, fromUs: firstUs, toUs: undefined, writtenUs: 0 };
    const slab = this.#makeSlab(stores, lts, span);
    slab.remember(lts.records(), firstUs);
    return slab;
  }

  #adopt(slab: LogSlab): void {
    this.#current = slab;
    this.#slabs.set(slab.generation, slab);
    this.#dirty.add(slab);
  }

  #openSealed(generation: Generation): Promise<LogSlab> {
    const { number, fromUs, toUs } = generation;
    const underway = this.#opening.get(number);
    if (underway !== undefined) return underway;
    const opening = (async () => {
      const stores = await SlabStores.open(this.#pathOf(number), this.#parts.kv);
      const lts = await this.#loadLts(stores);
      const writtenUs = assertPresent(toUs, "a sealed generation has an end");
      const slab = this.#makeSlab(stores, lts, { generation: number, fromUs, toUs, writtenUs });
      this.#slabs.set(number, slab);
      return slab;
    })().finally(() => this.#opening.delete(number));
    this.#opening.set(number, opening);
    return opening;
  }

  async #loadLts(stores: SlabStores): Promise<Lts> {
    const topics = await stores.topics();
    if (topics.length === 0) return createLts(this.#parts.lts);
    return loadLts(
      this.#parts.lts,
      topics.map(({ record }) => record),
    );
  }

  #makeSlab(stores: SlabStores, lts: Lts, span: ConstructorParameters<typeof LogSlab>[1]): LogSlab {
    const { reader, logger, phase, onMemory } = this.#parts;
    const parts = {
      stores,
      lts,
      reader,
      logger,
      phase,
      onMemory: (deltaBytes: number) => {
        this.#memoryBytes += deltaBytes;
        onMemory(deltaBytes);
      },
      onSealed: (stream: number, ttvs: number, sizeBytes: number) => {
        this.#table.count(span.generation, stream, { ttvs, sizeBytes });
      },
    };
    return new LogSlab(parts, span);
  }

  async #removeOrphans(): Promise<void> {
    const known = new Set(this.#table.readable().map((each) => folderName(each.number)));
    for (const entry of await this.#parts.disk.list(this.#parts.dir)) {
      if (!entry.isDirectory || !/^g\d+$/.test(entry.name) || known.has(entry.name)) continue;
      this.#parts.logger.info("store.orphan_removed", { slab: entry.name });
      await this.#removeFolder(joinPath(this.#parts.dir, entry.name));
    }
  }

  async #removeSlab(number: number): Promise<void> {
    if (this.#numbersIn("dropping").includes(number)) this.#table.finishDrop(number);
    const slab = this.#slabs.get(number);
    this.#slabs.delete(number);
    try {
      await slab?.close();
      await this.#removeFolder(this.#pathOf(number));
    } catch (error) {
      // The table no longer names it: the next start removes it as an orphan.
      this.#parts.logger.warn("store.drop_incomplete", { reason: toError(error).message });
    }
  }

  /** The folder goes last: while it is there a start finds it and ends the work. */
  async #removeFolder(path: string): Promise<void> {
    await SlabStores.destroy(path, this.#parts.kv);
    await this.#parts.disk.removeDir(path);
  }

  #pathOf(number: number): string {
    return joinPath(this.#parts.dir, folderName(number));
  }

  #numbersIn(state: Generation["state"]): number[] {
    return this.#table.generations
      .filter((each) => each.state === state)
      .map((each) => each.number);
  }

  // -------------------------------------------------------------- rows

  #rows(): Array<[Buffer, Buffer]> {
    const rows: Array<[Buffer, Buffer]> = [];
    for (const generation of this.#table.readable()) {
      rows.push([generationKey(generation.number), encodeGenerationRow(generation)]);
    }
    rows.push([nextNumberKey, new ByteWriter(4).u32(this.#table.nextNumber).finish()]);
    for (const [number, span] of this.#dropped) {
      const value = new ByteWriter(32).u8(formatVersion).u64(span.fromUs).u64(span.toUs);
      rows.push([droppedKey(number), value.varint(span.ttvs).finish()]);
    }
    return rows;
  }

  async #loadDropped(store: ShardStore): Promise<void> {
    await store.scan(Buffer.from([rowPrefix.dropped]), (key, value) => {
      const reader = new ByteReader(value);
      reader.u8();
      const span = { fromUs: reader.u64(), toUs: reader.u64(), ttvs: reader.varint() };
      this.#dropped.set(key.readUInt32BE(1), span);
    });
  }

  #foldDropped(): void {
    if (this.#dropped.size <= droppedSpansMax) return;
    const [first, second] = this.#dropped.keys();
    const older = this.#dropped.get(first as number) as DroppedSpan;
    const newer = this.#dropped.get(second as number) as DroppedSpan;
    this.#dropped.set(second as number, {
      fromUs: older.fromUs,
      toUs: newer.toUs,
      ttvs: older.ttvs + newer.ttvs,
    });
    // Its row stays in the store until then; a start in between counts it twice, as an estimate.
    this.#dropped.delete(first as number);
  }
}

async function fetchFrom(slab: LogSlab, stream: number, timeUs: number): Promise<Ttv | undefined> {
  const found = await slab.next(stream, timeUs - 1);
  if (found === undefined) return undefined;
  const batch = found.kind === "memory" ? found.batch : await slab.read(stream, found.row);
  const at = indexAfter(batch, timeUs - 1);
  if (at >= batch.count || batch.timeUs(at) !== timeUs) return undefined;
  return ttvAt(batch, slab.structureOf(stream), at);
}

async function readTable(store: ShardStore): Promise<GenerationTable> {
  const rows: Generation[] = [];
  await store.scan(Buffer.from([rowPrefix.generation]), (key, value) => {
    rows.push(decodeGenerationRow(key.subarray(1), value));
  });
  const next = await store.get(nextNumberKey);
  if (next === undefined) return new GenerationTable();
  return GenerationTable.from(rows, new ByteReader(next).u32());
}

function folderName(number: number): string {
  return `g${String(number).padStart(8, "0")}`;
}

function generationKey(number: number): Buffer {
  return Buffer.concat([Buffer.from([rowPrefix.generation]), encodeGenerationKey(number)]);
}

function droppedKey(number: number): Buffer {
  return Buffer.concat([Buffer.from([rowPrefix.dropped]), encodeGenerationKey(number)]);
}
