// Work that sets itself off: a step that asks for another one gets it behind itself, never within.

import type { Clock } from "../base/index.ts";

export class Pump {
  readonly #clock: Clock;
  readonly #step: () => void;
  #running = false;
  #again = false;
  #scheduled = false;

  constructor(clock: Clock, step: () => void) {
    this.#clock = clock;
    this.#step = step;
  }

  /** A step is under way. */
  get isRunning(): boolean {
    return this.#running;
  }

  /** Runs a step now, or behind the one under way. */
  run(): void {
    this.#again = true;
    if (this.#running) return;
    this.#running = true;
    try {
      while (this.#again) {
        this.#again = false;
        this.#step();
      }
    } finally {
      this.#running = false;
    }
  }

  /** Calls `task` in a later turn, once however often it is asked for. */
  soon(task: () => void): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#clock.soon(() => {
      this.#scheduled = false;
      task();
    });
  }
}
