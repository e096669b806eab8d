// The recent-writes window: what was written to a shard lately, so that a transaction whose reads
// have been overtaken is told to start again.
//
// A transaction read at `readTimeUs`; it conflicts when a later write touched what it read. The
// window goes back 5 s or 100,000 writes, and never beyond the leader's claim: what it no longer (or
// never) knew counts as a conflict. So a verdict of "no conflict" is always true, one of "conflict"
// may be over-careful. Entries come in commit order; times are commit times. A write lets older ones
// go; a checkpoint lets go of all that it covers, so that a shard without writes keeps none.

import { assert } from "../../base/index.ts";
import { intersects, matches, splitTopic, type TopicFilter } from "../../topic/index.ts";

/** What a transaction has read: a topic or all that a filter matches, over a range of time. */
export type ReadRecord = {
  readonly target: string | TopicFilter;
  /** TTVs with times from `fromUs` to `toUs`, both included. Of latest values: 0 to no end. */
  readonly fromUs: number;
  readonly toUs: number;
};

/** One write: a topic or all that a filter matches, and the times of TTVs it added or took away. */
export type WriteRecord = {
  /** Commit time of the write. */
  readonly timeUs: number;
  readonly target: string | TopicFilter;
  readonly fromUs: number;
  readonly toUs: number;
};

export type ConflictSettings = {
  readonly windowMs: number;
  readonly writesMax: number;
};

export const conflictSettingsDefault: ConflictSettings = { windowMs: 5_000, writesMax: 100_000 };

export type Conflict =
  /** The reads are older than the window. */
  | { readonly kind: "too_old"; readonly floorUs: number }
  | { readonly kind: "overtaken"; readonly write: WriteRecord };

/** A put of a TTV at its commit time. */
export function putRecord(topic: string, timeUs: number): WriteRecord {
  return { timeUs, target: topic, fromUs: timeUs, toUs: timeUs };
}

export class RecentWrites {
  readonly #settings: ConflictSettings;
  /** Oldest first; those before #start are forgotten. */
  #writes: WriteRecord[] = [];
  #start = 0;
  /** Reads at or above it can be judged. */
  #floorUs: number;

  constructor(claimTimeUs: number, settings: ConflictSettings = conflictSettingsDefault) {
    this.#floorUs = claimTimeUs;
    this.#settings = settings;
  }

  get count(): number {
    return this.#writes.length - this.#start;
  }

  get floorUs(): number {
    return this.#floorUs;
  }

  /** REQUIRES: `write.timeUs` is not below that of the last one. */
  record(write: WriteRecord): void {
    const last = this.#writes.at(-1);
    assert(last === undefined || write.timeUs >= last.timeUs, "writes are recorded in order");
    this.#writes.push(write);
    this.#forget(write.timeUs - this.#settings.windowMs * 1000);
  }

  /** The first write that overtook a read; undefined where the transaction may go on. */
  check(reads: readonly ReadRecord[], readTimeUs: number): Conflict | undefined {
    if (reads.length === 0) return undefined;
    if (readTimeUs < this.#floorUs) return { kind: "too_old", floorUs: this.#floorUs };
    for (let index = this.#firstAfter(readTimeUs); index < this.#writes.length; index++) {
      const write = this.#writes[index] as WriteRecord;
      if (reads.some((read) => touches(write, read))) return { kind: "overtaken", write };
    }
    return undefined;
  }

  /** Lets go of all writes up to a time: what was read before it is told to start again. */
  forgetThrough(timeUs: number): void {
    this.#writes = this.#writes.slice(this.#firstAfter(timeUs));
    this.#start = 0;
    this.#floorUs = Math.max(this.#floorUs, timeUs);
  }

  #forget(beforeUs: number): void {
    const writes = this.#writes;
    while (this.#start < writes.length) {
      const oldest = writes[this.#start] as WriteRecord;
      if (this.count <= this.#settings.writesMax && oldest.timeUs >= beforeUs) break;
      this.#floorUs = Math.max(this.#floorUs, oldest.timeUs);
      this.#start++;
    }
    // Moving the rest costs as much as was forgotten since the last move.
    if (this.#start < 1024 || this.#start * 2 < writes.length) return;
    this.#writes = writes.slice(this.#start);
    this.#start = 0;
  }

  #firstAfter(timeUs: number): number {
    let low = this.#start;
    let high = this.#writes.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#writes[middle] as WriteRecord).timeUs > timeUs) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

function touches(write: WriteRecord, read: ReadRecord): boolean {
  if (write.toUs < read.fromUs || write.fromUs > read.toUs) return false;
  const [written, wanted] = [write.target, read.target];
  if (typeof written === "string") {
    return typeof wanted === "string" ? written === wanted : matches(wanted, splitTopic(written));
  }
  return typeof wanted === "string"
    ? matches(written, splitTopic(wanted))
    : intersects(written, wanted);
}
