// When a generation ends and when the oldest goes, as pure rules over the generation table.
//
// A generation covers an eighth of the retention, in time or in bytes, so that what is kept beyond
// its time is an eighth at most. Age drops one generation after the other, each after part of the
// time that it covers has passed by the monotonic clock: a wall clock that jumps ahead by months
// takes one generation, not all of them.

import { type Generation, totalOf } from "./generations.ts";

/** Generations that a retention is divided into. */
export const generationsPerRetention = 8;
/** After a start the first drop by age waits no longer than this. */
const firstWaitMsMax = 10 * 60_000;
const usPerMs = 1_000;

export type RotationLimits = {
  /** Time that the database keeps; 0 = for ever. */
  readonly ageMs: number;
  /** Logical bytes of one generation of one shard. */
  readonly bytesMax: number;
};

/** An empty generation never ends: there is nothing that could go with it. */
export function isRotationDue(current: Generation, nowUs: number, limits: RotationLimits): boolean {
  if (current.firstUs === 0) return false;
  if (totalOf(current).sizeBytes >= limits.bytesMax) return true;
  const ageUs = (limits.ageMs / generationsPerRetention) * usPerMs;
  return limits.ageMs > 0 && nowUs - current.firstUs >= ageUs;
}

/** Monotonic time that has to pass since the last drop by age before this one may go by age. */
export function dropWaitMs(oldest: Generation, ageMs: number, isFirst: boolean): number {
  const beginUs = Math.max(oldest.fromUs, oldest.firstUs);
  const spanMs = ((oldest.toUs ?? beginUs) - beginUs) / usPerMs;
  const waitMs = Math.min(spanMs, ageMs / generationsPerRetention) / 2;
  return isFirst ? Math.min(waitMs, firstWaitMsMax) : waitMs;
}
