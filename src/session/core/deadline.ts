// When the will and the session of a closed connection fall due (MQTT 5: 3.1.2-8, 4.1.0-2). Pure;
// times in microseconds of one clock that is monotonic while the broker runs.

import { expiryNever, neverUs } from "./records.ts";

const usPerS = 1_000_000;

export type Deadlines = {
  /** The session ends; `neverUs` = it stays. */
  readonly expireUs: number;
  /** The will is published; undefined without one. */
  readonly willUs: number | undefined;
  /** The earlier of both. */
  readonly nextUs: number;
};

export function deadlines(
  closedUs: number,
  expiryS: number,
  willDelayS: number | undefined,
): Deadlines {
  const expireUs = expiryS === expiryNever ? neverUs : closedUs + expiryS * usPerS;
  if (willDelayS === undefined) return { expireUs, willUs: undefined, nextUs: expireUs };
  const willUs = Math.min(closedUs + willDelayS * usPerS, expireUs);
  return { expireUs, willUs, nextUs: willUs };
}

/**
 * When a deadline counts. One that passed while the broker was down, or whose client was cut off
 * by its stop, waits for the grace; one that lies after the start stands.
 */
export function effectiveUs(dueUs: number, startedUs: number, graceUs: number): number {
  return dueUs > startedUs ? dueUs : startedUs + graceUs;
}

export type CloseContext = {
  /** The connection was replaced by another one with the same client id. */
  readonly takenOver: boolean;
  readonly sessionContinues: boolean;
  readonly delayS: number;
};

/** What a new connection means for the will of the one before. */
export function willAtConnect(context: CloseContext): "publish" | "cancel" {
  if (!context.sessionContinues) return "publish";
  return context.takenOver && context.delayS === 0 ? "publish" : "cancel";
}
