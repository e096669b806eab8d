// A clock that a test turns by hand, for a broker that talks to real clients: time stands still until
// `advance`, but what is due now (`soon`) runs with the event loop, so that work without waits goes
// on by itself. `free` lets time run with every turn, for a close that must not wait for the test.

import { type Cancel, type Clock, SimClock } from "../../base/index.ts";

/** Turns of the event loop that work may take after a step before the next one: IO of real sockets. */
const turnsPerStep = 3;
/** A step of free time. */
const freeStepMs = 50;

export class ManualClock implements Clock {
  readonly #sim: SimClock;
  #isFree = false;

  /** `wallUs`: where the wall clock begins; default 2026-01-01T00:00:00Z. */
  constructor(options: { readonly wallUs?: number } = {}) {
    this.#sim = new SimClock(options);
  }

  wallUs(): number {
    return this.#sim.wallUs();
  }

  elapsedMs(): number {
    return this.#sim.elapsedMs();
  }

  schedule(delayMs: number, task: () => void): Cancel {
    return this.#sim.schedule(delayMs, task);
  }

  soon(task: () => void): void {
    setImmediate(task);
  }

  /**
   * Moves time on; timers that fall due run in their order, each at its moment, and the turns of the
   * event loop between them are run too.
   */
  async advance(durationMs: number): Promise<void> {
    await turns();
    await this.#sim.advance(durationMs);
    await turns();
  }

  /** Lets time run by itself until `done` has settled. */
  async free<T>(done: Promise<T>): Promise<T> {
    this.#isFree = true;
    const end = (): void => {
      this.#isFree = false;
    };
    done.then(end, end);
    while (this.#isFree) await this.advance(freeStepMs);
    return done;
  }
}

async function turns(): Promise<void> {
  for (let left = turnsPerStep; left > 0; left--) await new Promise(setImmediate);
}
