// Commit time, the one clock of a store: a TTV of a shard gets max(last of the shard + 1, now),
// unique and strictly growing in its shard, whatever the wall clock does. Over the shards of a store
// times never fall: what is given later, by whichever shard, is no less.
//
// `now` is anchored at the wall clock, and no lower than the last time of a shard that joins; then it
// runs at the monotonic rate. A wall clock that is more than 1 s ahead for 10 s is adopted; one that is
// more than 1 min behind raises an alarm, and is otherwise left alone: times never go back. Pure: both
// clocks are inputs.

import { assert } from "../../base/index.ts";

/** Both clocks, read together. */
export type ClockReading = {
  readonly wallUs: number;
  /** Monotonic, arbitrary start. */
  readonly elapsedMs: number;
};

export type CommitTimeEvent =
  /** The wall clock was adopted: times jumped ahead by this much. */
  | { readonly kind: "adopted"; readonly jumpUs: number }
  /** The wall clock is this far behind the times given; said once until it is over. */
  | { readonly kind: "behind"; readonly lagUs: number }
  | { readonly kind: "behind_over" };

/** Ahead by less than this, the monotonic rate is trusted more than the wall clock. */
const aheadUsMin = 1_000_000;
/** A step that is taken back within this time is not followed. */
const adoptAfterMs = 10_000;
const behindUsMax = 60_000_000;

export class CommitTime {
  #anchorUs: number;
  #anchorMs: number;
  #nowUs: number;
  /** The highest time given: many within a microsecond run ahead of the clock. */
  #givenUs = 0;
  /** When the wall clock was first seen too far ahead; undefined while it is not. */
  #aheadSinceMs: number | undefined;
  #behind = false;

  constructor(reading: ClockReading) {
    this.#anchorUs = Math.floor(reading.wallUs);
    this.#anchorMs = reading.elapsedMs;
    this.#nowUs = this.#anchorUs;
  }

  /** The clock as of the last `observe`; the next TTV gets this time or a later one. */
  get nowUs(): number {
    return this.#nowUs;
  }

  /** A shard takes its times from here on, whose last one is this; 0 where there is none. */
  join(lastUs: number): void {
    const aheadUs = lastUs - this.#nowUs;
    if (aheadUs <= 0) return;
    this.#anchorUs += aheadUs;
    this.gave(lastUs);
  }

  /** Takes new readings of the clocks: before each entry. */
  observe(reading: ClockReading): CommitTimeEvent | undefined {
    const ranUs = Math.floor((reading.elapsedMs - this.#anchorMs) * 1000);
    assert(ranUs >= 0, "the monotonic clock went back");
    this.#nowUs = Math.max(this.#anchorUs + ranUs, this.#givenUs);
    return this.#watchAhead(reading) ?? this.#watchBehind(reading);
  }

  /** The time of the next TTV of a shard whose last one has this time. */
  after(lastUs: number): number {
    const timeUs = Math.max(lastUs + 1, this.#nowUs);
    this.gave(timeUs);
    return timeUs;
  }

  /** A shard gave the times up to here, one microsecond apart. */
  gave(timeUs: number): void {
    this.#givenUs = Math.max(this.#givenUs, timeUs);
    this.#nowUs = Math.max(this.#nowUs, timeUs);
  }

  #watchAhead(reading: ClockReading): CommitTimeEvent | undefined {
    const aheadUs = Math.floor(reading.wallUs) - this.#nowUs;
    if (aheadUs <= aheadUsMin) {
      this.#aheadSinceMs = undefined;
      return undefined;
    }
    this.#aheadSinceMs ??= reading.elapsedMs;
    if (reading.elapsedMs - this.#aheadSinceMs < adoptAfterMs) return undefined;
    this.#aheadSinceMs = undefined;
    this.#anchorUs = Math.floor(reading.wallUs);
    this.#anchorMs = reading.elapsedMs;
    this.#nowUs = this.#anchorUs;
    return { kind: "adopted", jumpUs: aheadUs };
  }

  #watchBehind(reading: ClockReading): CommitTimeEvent | undefined {
    const lagUs = this.#nowUs - Math.floor(reading.wallUs);
    const behind = lagUs > behindUsMax;
    if (behind === this.#behind) return undefined;
    this.#behind = behind;
    return behind ? { kind: "behind", lagUs } : { kind: "behind_over" };
  }
}
