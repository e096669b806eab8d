// How late the event loop is: a timer of a fixed period, and the time by which each of its calls comes
// late. A histogram of plain numbers, so that scrapes of any two moments can be compared; the one that
// Node makes has percentiles since its start alone.
//
// One sample each period, however long the loop was away: 50 calls a second, some microseconds each.

import { performance } from "node:perf_hooks";
import { createHistogram, type Histogram, observe } from "../../base/index.ts";

/** Below a few milliseconds it is the grain of timers that is seen, above a second one that hangs. */
const boundsMs = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
const periodMs = 20;

/** What it reads the time from and is called by: of the process, whatever clock the node has. */
export type LoopTimer = {
  readonly nowMs: () => number;
  /** Calls again and again; keeps no process alive. What it gives back ends that. */
  readonly every: (ms: number, task: () => void) => () => void;
};

const processTimer: LoopTimer = {
  nowMs: () => performance.now(),
  every: (ms, task) => {
    const timer = setInterval(task, ms).unref();
    return () => clearInterval(timer);
  },
};

export class LoopDelay {
  readonly histogram: Histogram = createHistogram(boundsMs);
  readonly #end: () => void;

  constructor({ nowMs, every }: LoopTimer = processTimer) {
    let lastMs = nowMs();
    this.#end = every(periodMs, () => {
      const atMs = nowMs();
      observe(this.histogram, Math.max(0, atMs - lastMs - periodMs));
      lastMs = atMs;
    });
  }

  close(): void {
    this.#end();
  }
}
