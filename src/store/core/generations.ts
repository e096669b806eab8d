// The generation table of a shard, as pure state: which span of commit time lies in which slab, and
// what may happen to a generation next.
//
//   current --rotate--> sealing --finishSeal--> sealed --beginDrop--> dropping --finishDrop--> gone
//
// Invariants: exactly one generation is current once there is one, the newest; spans follow each
// other without gap or overlap; numbers grow and are never reused. Each step is a log entry or the
// end of one; when to take it is the caller's, as is the directory.

import { assert, assertPresent } from "../../base/index.ts";
import { storeErrors } from "../errors.ts";

export type GenerationState = "current" | "sealing" | "sealed" | "dropping";

/** Written for good, per stream: what a reader is told to have missed. */
export type StreamCount = { readonly ttvs: number; readonly sizeBytes: number };

export type Generation = {
  readonly number: number;
  /** Name of the frozen layout of its slab: `log-v1`, `map-v1`. */
  readonly layout: string;
  /** TTVs with times from `fromUs` on … */
  readonly fromUs: number;
  /** … and below `toUs`; undefined while it is current. */
  readonly toUs: number | undefined;
  readonly state: GenerationState;
  readonly streams: ReadonlyMap<number, StreamCount>;
};

/** Where a time lies. Times below the oldest generation were dropped. */
export type TimePlace = Generation | "dropped" | "none";

export class GenerationTable {
  #generations: Generation[] = [];
  #nextNumber = 1;

  /** A table from stored rows, ascending by number; `nextNumber` is stored beside them. */
  static from(rows: readonly Generation[], nextNumber: number): GenerationTable {
    const table = new GenerationTable();
    table.#generations = [...rows];
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
  get(number: number): Generation {
    const found = this.#generations.find((each) => each.number === number);
    if (found === undefined) throw storeErrors.generationUnknown({ generation: number });
    return found;
  }

  /**
   * Ends the current generation, if there is one, and begins the next: it takes times from `fromUs`
   * on. REQUIRES: `fromUs` is above every time written so far. A number is skipped where the entry
   * of a rotation is lost.
   */
  rotate(fromUs: number, layout: string, number = this.#nextNumber): Generation {
    assert(number >= this.#nextNumber, "numbers of generations grow");
    const before = this.current;
    if (before !== undefined) {
      assert(fromUs > before.fromUs, "a generation spans some time");
      this.#replace({ ...before, state: "sealing", toUs: fromUs });
    }
    this.#nextNumber = number + 1;
    const next: Generation = {
      ...{ number, layout, fromUs, toUs: undefined, state: "current" },
      streams: new Map(),
    };
    this.#generations.push(next);
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

  /** Adds what was written to a stream of a generation. */
  count(number: number, stream: number, added: StreamCount): void {
    const generation = this.get(number);
    const streams = generation.streams as Map<number, StreamCount>;
    const before = streams.get(stream);
    streams.set(stream, {
      ttvs: (before?.ttvs ?? 0) + added.ttvs,
      sizeBytes: (before?.sizeBytes ?? 0) + added.sizeBytes,
    });
  }

  /**
   * The oldest generation, if all that it holds is older than `retentionUs`. One at a time: the
   * caller lets some time of the monotonic clock pass before it asks again, so that a wall clock that
   * jumps ahead never empties a shard at once.
   */
  oldestExpired(nowUs: number, retentionUs: number): Generation | undefined {
    const oldest = this.readable()[0];
    if (oldest?.state !== "sealed") return undefined;
    const toUs = assertPresent(oldest.toUs, "a sealed generation has an end");
    return toUs <= nowUs - retentionUs ? oldest : undefined;
  }

  #replace(generation: Generation): void {
    this.#generations = this.#generations.map((each) =>
      each.number === generation.number ? generation : each,
    );
  }
}

export function totalOf(generation: Generation): StreamCount {
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
