// Simulated clock: virtual time that moves only when told, one queue of tasks ordered by due time
// and then by the order they were scheduled in. Simulated disk, kv and network complete their work
// through it, so that one seed decides every interleaving.
//
// Promise callbacks run between tasks: `run*` yields to the microtask queue after each task until
// it is drained (see `settle`), so code under test may use async/await freely but must not use
// real timers or real IO.

import type { Cancel, Clock } from "./clock.ts";
import type { Random } from "./random.ts";

type Task = { readonly dueMs: number; readonly order: number; readonly run: () => void };

/** 2026-01-01T00:00:00Z, a start that is not zero, so that "unset" shows. */
const defaultWallUs = 1_767_225_600_000_000;

export class SimClock implements Clock {
  #nowMs = 0;
  #wallOffsetUs: number;
  #order = 0;
  readonly #random: Random | undefined;
  readonly #tasks: Task[] = [];

  /** With `random`, tasks due at the same moment run in an order drawn from it. */
  constructor(options: { wallUs?: number; random?: Random } = {}) {
    this.#wallOffsetUs = options.wallUs ?? defaultWallUs;
    this.#random = options.random;
  }

  wallUs(): number {
    return this.#wallOffsetUs + Math.floor(this.#nowMs * 1000);
  }

  elapsedMs(): number {
    return this.#nowMs;
  }

  schedule(delayMs: number, task: () => void): Cancel {
    const tieBreak = this.#random === undefined ? 0 : this.#random.below(1 << 20) * 2 ** 32;
    const entry: Task = {
      dueMs: this.#nowMs + Math.max(0, delayMs),
      order: tieBreak + this.#order++,
      run: task,
    };
    this.#tasks.splice(placeOf(this.#tasks, entry), 0, entry);
    return () => this.#cancel(entry);
  }

  soon(task: () => void): void {
    const entry = { dueMs: this.#nowMs, order: this.#order++, run: task };
    this.#tasks.splice(placeOf(this.#tasks, entry), 0, entry);
  }

  /** The clock of one simulated process: what it has planned dies with it. */
  createProcess(): SimProcessClock {
    return new SimProcessClock(this);
  }

  /** Moves the wall clock alone, as an operator or NTP would. */
  stepWall(deltaUs: number): void {
    this.#wallOffsetUs += deltaUs;
  }

  get pendingCount(): number {
    return this.#tasks.length;
  }

  /** Drops every task: what a process that was killed had planned. */
  clear(): void {
    this.#tasks.length = 0;
  }

  /** Runs all tasks due within `durationMs`, then stands at that moment. */
  async advance(durationMs: number): Promise<void> {
    const endMs = this.#nowMs + durationMs;
    await settle();
    while (this.#tasks.length > 0 && (this.#tasks[0] as Task).dueMs <= endMs) {
      await this.#step();
    }
    this.#nowMs = endMs;
  }

  /**
   * Runs tasks until `done()` holds.
   * @throws when `withinMs` of virtual time pass, or no task is left, before that.
   */
  async runUntil(done: () => boolean, withinMs = 60_000): Promise<void> {
    const endMs = this.#nowMs + withinMs;
    await settle();
    while (!done()) {
      const next = this.#tasks[0];
      if (next === undefined) throw new Error("simulation stands still: no task is left");
      if (next.dueMs > endMs) throw new Error(`not done within ${withinMs} ms of virtual time`);
      await this.#step();
    }
  }

  /** `promise`'s value, running tasks as needed. */
  async complete<T>(promise: Promise<T>, withinMs = 60_000): Promise<T> {
    let settled = false;
    const watched = promise.finally(() => {
      settled = true;
    });
    watched.catch(() => undefined);
    await this.runUntil(() => settled, withinMs);
    return watched;
  }

  async #step(): Promise<void> {
    const task = this.#tasks.shift() as Task;
    this.#nowMs = Math.max(this.#nowMs, task.dueMs);
    task.run();
    await settle();
  }

  // Cancelled tasks leave at once: a simulation must not run on to the moment of a dead timer.
  #cancel(entry: Task): void {
    const at = placeOf(this.#tasks, entry);
    if (this.#tasks[at] === entry) this.#tasks.splice(at, 1);
  }
}

/** After `kill` nothing it had planned runs, and nothing more can be planned. */
export class SimProcessClock implements Clock {
  readonly #clock: SimClock;
  readonly #planned = new Set<Cancel>();
  #isDead = false;

  constructor(clock: SimClock) {
    this.#clock = clock;
  }

  wallUs(): number {
    return this.#clock.wallUs();
  }

  elapsedMs(): number {
    return this.#clock.elapsedMs();
  }

  schedule(delayMs: number, task: () => void): Cancel {
    if (this.#isDead) return () => undefined;
    const cancel = this.#clock.schedule(delayMs, () => {
      this.#planned.delete(cancel);
      task();
    });
    this.#planned.add(cancel);
    return () => {
      this.#planned.delete(cancel);
      cancel();
    };
  }

  soon(task: () => void): void {
    if (this.#isDead) return;
    this.#clock.soon(() => {
      if (!this.#isDead) task();
    });
  }

  kill(): void {
    this.#isDead = true;
    for (const cancel of this.#planned) cancel();
    this.#planned.clear();
  }
}

/** Lets all promise callbacks that are ready run to their end. */
export function settle(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}

/** Where the entry is or belongs; no two are equal. */
function placeOf(tasks: readonly Task[], entry: Task): number {
  let low = 0;
  let high = tasks.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const other = tasks[middle] as Task;
    if (other.dueMs < entry.dueMs || (other.dueMs === entry.dueMs && other.order < entry.order)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}
