// A clock whose time stands still, so that commit times depend on nothing but the order of calls, and
// whose tasks run in real time until it is killed.

import { type Clock, systemClock } from "../../src/base/index.ts";

/** 2026-01-01T00:00:00Z. */
const wallUs = 1_767_225_600_000_000;

export type SteadyClock = Clock & {
  /** Nothing that was planned runs any more, as in a process that has died. */
  kill(): void;
};

export function steadyClock(): SteadyClock {
  let isDead = false;
  const alive = (task: () => void) => () => {
    if (!isDead) task();
  };
  return {
    wallUs: () => wallUs,
    elapsedMs: () => 0,
    schedule: (delayMs, task) => systemClock.schedule(delayMs, alive(task)),
    soon: (task) => systemClock.soon(alive(task)),
    kill: () => {
      isDead = true;
    },
  };
}
