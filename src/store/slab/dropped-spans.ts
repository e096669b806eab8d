// Spans of commit time that were dropped or set aside, by the number of their generation, and which of
// their rows the next checkpoint has to write.
//
// Bounded: the oldest are told as sums, then as one.

import type { KvBatch } from "../../kv/index.ts";
import { type MissingReason, type MissingSpan, sortSpans } from "../core/missing.ts";
import { droppedKey, encodeDropped } from "./generation-rows.ts";

/** Spans remembered; above it the oldest two become one. */
const spansMax = 1_000;
/** Spans remembered stream by stream, the newest; older ones keep their sum. */
const detailedMax = 64;

export type CapturedSpans = {
  addRows(batch: KvBatch): void;
  /** The checkpoint did not come about. */
  giveBack(): void;
};

export class DroppedSpans {
  readonly #spans: Map<number, MissingSpan>;
  #sorted: readonly MissingSpan[];
  /** Rows of spans that have become part of a newer one. */
  #folded: number[] = [];
  /** Rows of spans that the last checkpoint does not have. */
  #changed = new Set<number>();

  constructor(saved: Map<number, MissingSpan>) {
    this.#spans = saved;
    this.#sorted = sortSpans(saved.values());
  }

  /** Ascending. The same array until it changes. */
  get sorted(): readonly MissingSpan[] {
    return this.#sorted;
  }

  reasonOf(number: number): MissingReason | undefined {
    return this.#spans.get(number)?.reason;
  }

  add(number: number, span: MissingSpan): void {
    this.#spans.set(number, span);
    this.#changed.add(number);
    this.#fold();
    this.#sorted = sortSpans(this.#spans.values());
  }

  capture(): CapturedSpans {
    const changed = this.#changed;
    this.#changed = new Set();
    const folded = this.#folded;
    this.#folded = [];
    const rows: Array<[key: Buffer, value: Buffer]> = [];
    for (const number of changed) {
      const span = this.#spans.get(number);
      if (span !== undefined) rows.push([droppedKey(number), encodeDropped(span)]);
    }
    return {
      addRows: (batch) => {
        for (const number of folded) batch.delete(droppedKey(number));
        for (const [key, value] of rows) batch.put(key, value);
      },
      giveBack: () => {
        for (const number of changed) this.#changed.add(number);
        this.#folded.push(...folded);
      },
    };
  }

  #fold(): void {
    const numbers = [...this.#spans.keys()];
    const tooOld = numbers.at(-1 - detailedMax);
    const summed = tooOld === undefined ? undefined : this.#spans.get(tooOld);
    if (tooOld !== undefined && summed?.streams !== undefined) {
      this.#spans.set(tooOld, { ...summed, streams: undefined });
      this.#changed.add(tooOld);
    }
    if (this.#spans.size <= spansMax) return;
    const [first, second] = this.#spans.keys();
    const older = this.#spans.get(first as number) as MissingSpan;
    const newer = this.#spans.get(second as number) as MissingSpan;
    const countMax = older.countMax + newer.countMax;
    const folded = { ...newer, afterUs: older.afterUs, countMax, streams: undefined };
    this.#spans.set(second as number, folded);
    this.#changed.add(second as number);
    this.#spans.delete(first as number);
    this.#folded.push(first as number);
  }
}
