// The generation table of a shard, as pure state: which span of commit time lies in which slab, and
// what may happen to a generation next.
//
//   current --rotate--> sealing --finishSeal--> sealed --beginDrop--> dropping --finishDrop--> gone
//
// Invariants: exactly one generation is current once there is one, the newest; spans follow each
// other without gap or overlap; numbers grow and are never reused. Each step is a log entry or the
// end of one; when to take it is the caller's, as is the directory.

import { assert } from "../../base/index.ts";
import { storeErrors } from "../errors.ts";
import type { Structure } from "./structure.ts";

export type GenerationState = "current" | "sealing" | "sealed" | "dropping";

export type Amount = { readonly ttvs: number; readonly sizeBytes: number };

/** Written for good, per stream: what a reader is told to have missed. */
export type StreamCount = Amount & {
  readonly structure: Structure;
  /** It belongs to the topics that start with `$`. */
  readonly dollar: boolean;
};

export type Generation = {
  readonly number: number;
  /** Name of the frozen layout of its slab: `log-v1`, `log-v2`. */
  readonly layout: string;
  /** How often its slab was packed anew; part of the name of its folder. */
  readonly pack: number;
  /** TTVs with times from `fromUs` on … */
  readonly fromUs: number;
  /** … and below `toUs`; undefined while it is current. */
  readonly toUs: number | undefined;
  /** Its first TTV, as far as sealed blocks tell; 0 while there is none. */
  readonly firstUs: number;
  readonly state: GenerationState;
  readonly streams: ReadonlyMap<number, StreamCount>;
};

/** Where a time lies. Times below the oldest generation were dropped. */
export type TimePlace = Generation | "dropped" | "none";

export class GenerationTable {
  #generations: Generation[] = [];
  #nextNumber = 1;
  /** Numbers whose row has changed since it was last taken. */
  readonly #changed = new Set<number>();

  /**
   * A table from stored rows, ascending by number; `nextNumber` is stored beside them. The checkpoint
   * that wrote a row as sealing covers its slab: it is sealed, though no later one may ever say so.
   */
  static from(rows: readonly Generation[], nextNumber: number): GenerationTable {
    const table = new GenerationTable();
    table.#generations = rows.map((row) =>
      row.state === "sealing" ? { ...row, state: "sealed" } : row,
    );
    table.#nextNumber = nextNumber;
    const fault = tableFault(rows, nextNumber);
    if (fault !== undefined) throw storeErrors.rowCorrupt({ row: "generation", reason: fault });
    return table;
  }

  /** Ascending. */
  get generations(): readonly Generation[] {
    return this.#generations;
  }

  get nextNumber(): number {
    return this.#nextNumber;
  }

  get current(): Generation | undefined {
    const last = this.#generations.at(-1);
    return last?.state === "current" ? last : undefined;
  }

  /** @throws STORE_GENERATION_UNKNOWN. */
  find(number: number): Generation | undefined {
    return this.#generations.find((each) => each.number === number);
  }

  get(number: number): Generation {
    const found = this.find(number);
    if (found === undefined) throw storeErrors.generationUnknown({ generation: number });
    return found;
  }

  /**
   * Ends the current generation, if there is one, and begins the next: it takes times from `fromUs`
   * on. `number` leaves out numbers that lost entries have used.
   * REQUIRES: `fromUs` is above every time written so far; `number` is not below `nextNumber`.
   */
  rotate(fromUs: number, layout: string, number = this.#nextNumber): Generation {
    const before = this.current;
    assert(number >= this.#nextNumber, "numbers of generations grow");
    if (before !== undefined) {
      assert(fromUs > before.fromUs, "a generation spans some time");
      this.#replace({ ...before, state: "sealing", toUs: fromUs });
    }
    this.#nextNumber = number + 1;
    const next: Generation = {
      ...{ number, layout, pack: 0, fromUs, toUs: undefined, firstUs: 0, state: "current" },
      streams: new Map(),
    };
    this.#generations.push(next);
    this.#changed.add(number);
    return next;
  }

  /** After the checkpoint that covers the old slab. */
  finishSeal(number: number): void {
    const generation = this.get(number);
    if (generation.state !== "sealing") return;
    this.#replace({ ...generation, state: "sealed" });
  }

  /**
   * From now on its times count as dropped. Twice is the same as once.
   * @throws STORE_GENERATION_CURRENT, STORE_GENERATION_UNKNOWN.
   */
  beginDrop(number: number): Generation {
    const generation = this.get(number);
    if (generation.state === "current") {
      throw storeErrors.generationCurrent({ generation: number });
    }
    const dropping: Generation = { ...generation, state: "dropping" };
    this.#replace(dropping);
    return dropping;
  }

  /** After its directory is gone. */
  finishDrop(number: number): void {
    const generation = this.get(number);
    assert(generation.state === "dropping", `generation ${number} was not being dropped`);
    this.#generations = this.#generations.filter((each) => each !== generation);
  }

  /** Its slab lies in another folder, and in another layout maybe. REQUIRES: not current. */
  repacked(number: number, pack: number, layout: string): void {
    const generation = this.get(number);
    assert(generation.state !== "current" && pack > generation.pack, "packs grow behind the end");
    this.#replace({ ...generation, pack, layout });
  }

  /** Where a TTV of this time is or would be written. */
  place(timeUs: number): TimePlace {
    for (let index = this.#generations.length - 1; index >= 0; index--) {
      const generation = this.#generations[index] as Generation;
      if (timeUs < generation.fromUs) continue;
      // A span that begins below and ends below belonged to one that is gone.
      if (generation.toUs !== undefined && timeUs >= generation.toUs) return "dropped";
      return generation.state === "dropping" ? "dropped" : generation;
    }
    return this.#nextNumber === 1 ? "none" : "dropped";
  }

  /** Those that readers may read, oldest first. */
  readable(): Generation[] {
    return this.#generations.filter((each) => each.state !== "dropping");
  }

  numbersIn(state: Generation["state"]): number[] {
    return this.#generations.filter((each) => each.state === state).map((each) => each.number);
  }

  /** Adds a block that was written to a stream of a generation. */
  count(number: number, stream: number, added: StreamCount, firstUs: number): void {
    const generation = this.get(number);
    const streams = generation.streams as Map<number, StreamCount>;
    const before = streams.get(stream);
    streams.set(stream, {
      ...added,
      ttvs: (before?.ttvs ?? 0) + added.ttvs,
      sizeBytes: (before?.sizeBytes ?? 0) + added.sizeBytes,
    });
    this.#changed.add(number);
    if (generation.firstUs > 0 && generation.firstUs <= firstUs) return;
    this.#replace({ ...generation, firstUs });
  }

  /** Rows that differ from what was taken before; give them back when they were not saved. */
  takeChanged(): Generation[] {
    const changed = this.readable().filter((each) => this.#changed.has(each.number));
    this.#changed.clear();
    return changed;
  }

  giveBackChanged(numbers: Iterable<number>): void {
    for (const number of numbers) this.#changed.add(number);
  }

  #replace(generation: Generation): void {
    this.#changed.add(generation.number);
    this.#generations = this.#generations.map((each) =>
      each.number === generation.number ? generation : each,
    );
  }
}

export function totalOf(generation: Generation): Amount {
  let ttvs = 0;
  let sizeBytes = 0;
  for (const each of generation.streams.values()) {
    ttvs += each.ttvs;
    sizeBytes += each.sizeBytes;
  }
  return { ttvs, sizeBytes };
}

function tableFault(rows: readonly Generation[], nextNumber: number): string | undefined {
  for (const [index, row] of rows.entries()) {
    const next = rows[index + 1];
    const isLast = next === undefined;
    if (row.number >= (next?.number ?? nextNumber)) return `number ${row.number} is not the lower`;
    if ((row.state === "current") !== (row.toUs === undefined)) return "state and end differ";
    if (row.state === "current" && !isLast) return `generation ${row.number} is not the newest`;
    if (row.toUs !== undefined && row.toUs <= row.fromUs) return "it ends before it begins";
    if (next !== undefined && (row.toUs ?? 0) > next.fromUs) return "two overlap";
  }
  return undefined;
}
