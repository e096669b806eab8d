// A promise with a limit on the wait. Whoever waits is told once; what comes later is told apart,
// since it may have to be undone.

import type { Clock } from "../base/index.ts";

export type Waiter<T> = {
  value(value: T): void;
  error(error: unknown): void;
  /** The time is over. */
  late(): void;
  /** The value came after `late`. */
  valueAfter?(value: T): void;
};

export function waitFor<T>(
  clock: Clock,
  waitMs: number,
  promise: Promise<T>,
  waiter: Waiter<T>,
): void {
  let isLate = false;
  const cancel = clock.schedule(waitMs, () => {
    isLate = true;
    waiter.late();
  });
  promise.then(
    (value) => {
      cancel();
      if (isLate) waiter.valueAfter?.(value);
      else waiter.value(value);
    },
    (error: unknown) => {
      cancel();
      // After `late` the failure has been told already.
      if (!isLate) waiter.error(error);
    },
  );
}
