// Commit time, the one clock of a shard: every TTV gets max(last + 1, now), unique and strictly
// growing, whatever the wall clock does.
//
// `now` is anchored at max(wall, last) and then runs at the monotonic rate. A wall clock that is more
// than 1 s ahead for 10 s is adopted; one that is more than 1 min behind the last time given raises
// an alarm, and is otherwise left alone: times never go back. Pure: both clocks are inputs.

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
  /** The wall clock is this far behind the last time given; said once until it is over. */
  | { readonly kind: "behind"; readonly lagUs: number }
  | { readonly kind: "behind_over" };

/** Ahead by less than this, the monotonic rate is trusted more than the wall clock. */
const aheadUsMin = 1_000_000;
/** A step that is taken back within this time is not followed. */
const adoptAfterMs = 10_000;
const behindUsMax = 60_000_000;

export class CommitTime {
  #lastUs: number;
  #anchorUs: number;
  #anchorMs: number;
  #nowUs: number;
  /** When the wall clock was first seen too far ahead; undefined while it is not. */
  #aheadSinceMs: number | undefined;
  #behind = false;

  /** At start and on becoming leader. `lastUs` is the last time of the shard, 0 where there is none. */
  constructor(lastUs: number, reading: ClockReading) {
    this.#lastUs = lastUs;
    this.#anchorUs = Math.max(Math.floor(reading.wallUs), lastUs);
    this.#anchorMs = reading.elapsedMs;
    this.#nowUs = this.#anchorUs;
  }

  /** The last time given, or known from before. */
  get lastUs(): number {
    return this.#lastUs;
  }

  /** The clock as of the last `observe`; the next TTV gets this time or a later one. */
  get nowUs(): number {
    return this.#nowUs;
  }

  /** Takes new readings of the clocks: before each entry, and about once a second when idle. */
  observe(reading: ClockReading): CommitTimeEvent | undefined {
    const ranUs = Math.floor((reading.elapsedMs - this.#anchorMs) * 1000);
    assert(ranUs >= 0, "the monotonic clock went back");
    this.#nowUs = this.#anchorUs + ranUs;
    return this.#watchAhead(reading) ?? this.#watchBehind(reading);
  }

  /** The time of the next TTV. */
  next(): number {
    this.#lastUs = Math.max(this.#lastUs + 1, this.#nowUs);
    return this.#lastUs;
  }

  /** A time given elsewhere (replayed, or by another leader) is known now. */
  advanceTo(timeUs: number): void {
    this.#lastUs = Math.max(this.#lastUs, timeUs);
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
    const lagUs = this.#lastUs - Math.floor(reading.wallUs);
    const behind = lagUs > behindUsMax;
    if (behind === this.#behind) return undefined;
    this.#behind = behind;
    return behind ? { kind: "behind", lagUs } : { kind: "behind_over" };
  }
}
