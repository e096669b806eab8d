// The clock of wills and session expiries: absolute, so that it goes on over a restart, and
// monotonic while the broker runs, so that a step of the wall clock ends no session.

import type { Clock } from "../base/index.ts";
import { effectiveUs } from "./core/deadline.ts";

export class Timeline {
  readonly #clock: Clock;
  readonly #graceUs: number;
  readonly #startedMs: number;
  /** Start of this process, wall microseconds: also its boot number. */
  readonly startedUs: number;

  constructor(clock: Clock, restartGraceMs: number) {
    this.#clock = clock;
    this.#graceUs = restartGraceMs * 1000;
    this.#startedMs = clock.elapsedMs();
    this.startedUs = clock.wallUs();
  }

  nowUs(): number {
    return this.startedUs + Math.floor((this.#clock.elapsedMs() - this.#startedMs) * 1000);
  }

  get graceEndUs(): number {
    return this.startedUs + this.#graceUs;
  }

  /** A deadline has passed and counts. */
  hasPassed(dueUs: number): boolean {
    return this.nowUs() >= effectiveUs(dueUs, this.startedUs, this.#graceUs);
  }
}
