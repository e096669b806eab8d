// A bound on how long a command waits.

import type { Clock } from "../base/index.ts";
import { cliErrors } from "./errors.ts";

/** The work's value. @throws CLI_TIMED_OUT when it takes longer; without a bound it waits for ever. */
export async function withTimeout<T>(
  work: Promise<T>,
  timeoutMs: number | undefined,
  clock: Clock,
): Promise<T> {
  if (timeoutMs === undefined) return work;
  let cancel: () => void = () => undefined;
  const expired = new Promise<never>((_resolve, reject) => {
    cancel = clock.schedule(timeoutMs, () => {
      reject(cliErrors.timedOut({ seconds: timeoutMs / 1000 }));
    });
  });
  try {
    return await Promise.race([work, expired]);
  } finally {
    cancel();
  }
}
