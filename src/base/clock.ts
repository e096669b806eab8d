// The clock port: wall time, monotonic time and timers in one, so that a test turns all of them
// with one hand. `sim-clock.ts` is the simulated twin.
//
// Two clocks, named apart: `wallUs` may jump in either direction and is only for what people or
// other machines read; every wait and every duration uses `elapsedMs`, which never goes back.

import { performance } from "node:perf_hooks";

export type Cancel = () => void;

export interface Clock {
  /** Wall time, integer microseconds since the Unix epoch. May jump. */
  wallUs(): number;
  /** Monotonic milliseconds since an arbitrary start; fractions allowed. */
  elapsedMs(): number;
  /** Runs `task` once, `delayMs` from now or later, never before. Does not keep the process alive. */
  schedule(delayMs: number, task: () => void): Cancel;
  /** Runs `task` at the end of this turn of the event loop, after the IO that is ready now. */
  soon(task: () => void): void;
}

/** Longest delay a Node timer takes; longer ones are chained. */
const timerDelayMsMax = 2 ** 31 - 1;

/** Below this, `Date.now()` and the monotonic clock differ by rounding only. */
const wallStepMs = 2;

export const systemClock: Clock = {
  wallUs: createWall(performance, Date.now),
  elapsedMs: () => performance.now(),
  schedule: scheduleTimer,
  soon: (task) => {
    setImmediate(task);
  },
};

/**
 * Wall time in microseconds from a monotonic clock, which does not follow steps of the wall, and
 * one in milliseconds that does. A step is adopted when it is more than rounding, and then kept,
 * so that the rounding of `dateMs` does not make the time go to and fro.
 */
export function createWall(
  monotonic: { readonly timeOrigin: number; now(): number },
  dateMs: () => number,
): () => number {
  let stepMs = 0;
  return () => {
    const startMs = monotonic.timeOrigin + monotonic.now();
    const differenceMs = dateMs() - startMs;
    if (Math.abs(differenceMs - stepMs) >= wallStepMs) stepMs = differenceMs;
    return Math.floor((startMs + stepMs) * 1000);
  };
}

function scheduleTimer(delayMs: number, task: () => void): Cancel {
  const dueMs = performance.now() + delayMs;
  let timer: NodeJS.Timeout;
  const arm = (restMs: number): void => {
    timer = setTimeout(ring, Math.min(restMs, timerDelayMsMax));
    timer.unref();
  };
  // Node's timers count whole milliseconds and come up to one too early; whoever looks at the clock
  // then would find nothing due.
  const ring = (): void => {
    const restMs = dueMs - performance.now();
    if (restMs > 0) arm(Math.ceil(restMs));
    else task();
  };
  arm(Math.max(0, Math.ceil(delayMs)));
  return () => clearTimeout(timer);
}

/** Resolves after `delayMs` of the given clock. */
export function sleep(clock: Clock, delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    clock.schedule(delayMs, resolve);
  });
}
