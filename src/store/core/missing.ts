// What a reader did not get because it is gone: spans of commit time that were dropped or damaged.
//
// A span holds no readable TTV: a reader passes it in one step, at its begin, and is told once.
// What was dropped is counted by stream, so that a reader is told of what its filters may have
// matched; where they take whole streams and the whole span, the count is exact. What was damaged
// may hold anything: its count is an upper bound. 0 says that nothing can have been there.

import { coverOf } from "./cover.ts";
import type { Structure } from "./structure.ts";

export type MissingReason = "expired" | "damaged";

export type MissingStream = {
  readonly structure: Structure;
  readonly dollar: boolean;
  readonly ttvs: number;
};

export type MissingSpan = {
  /** Times above it … */
  readonly afterUs: number;
  /** … and up to this are missing. */
  readonly untilUs: number;
  readonly countMax: number;
  readonly reason: MissingReason;
  /** What `countMax` consists of; undefined where it is not known any more. */
  readonly streams?: readonly MissingStream[] | undefined;
};

/** Spans that follow each other without a gap, for the same reason. */
export type MissingStretch = {
  readonly afterUs: number;
  readonly untilUs: number;
  readonly reason: MissingReason;
  readonly spans: readonly MissingSpan[];
};

/** A filter of a reader, and which part of the missing times it asks about. */
export type MissingWant = {
  readonly words: readonly string[];
  /** Nothing up to here is wanted. */
  readonly afterUs: number;
  /** Nothing later that was ever applied matched the filter. */
  readonly lastMatchUs: number;
};

export function sortSpans(spans: Iterable<MissingSpan>): MissingSpan[] {
  return [...spans].sort((a, b) => a.afterUs - b.afterUs);
}

/**
 * The first stretch that reaches above a position. It begins at the position at the earliest.
 * REQUIRES: sorted.
 */
export function nextMissing(
  spans: readonly MissingSpan[],
  positionUs: number,
): MissingStretch | undefined {
  const found: MissingSpan[] = [];
  let untilUs = 0;
  for (const span of spans) {
    if (span.untilUs <= positionUs) continue;
    const first = found[0];
    if (first !== undefined && (span.afterUs > untilUs || span.reason !== first.reason)) break;
    found.push(span);
    untilUs = Math.max(untilUs, span.untilUs);
  }
  const first = found[0];
  if (first === undefined) return undefined;
  const afterUs = Math.max(first.afterUs, positionUs);
  return { afterUs, untilUs, reason: first.reason, spans: found };
}

/** How many TTVs a reader with these filters missed in a stretch. */
export function countMissed(
  stretch: MissingStretch,
  wants: readonly MissingWant[],
): { count: number; estimated: boolean } {
  let count = 0;
  let estimated = false;
  for (const span of stretch.spans) {
    const relevant = wants.filter((want) => mayHaveMissed(want, span));
    if (relevant.length === 0) continue;
    if (span.streams === undefined) {
      count += span.countMax;
      estimated = true;
      continue;
    }
    for (const stream of span.streams) {
      const covers = relevant.map((want) => coverOf(stream, want.words));
      if (covers.every((cover) => cover === "none")) continue;
      count += stream.ttvs;
      estimated ||= !relevant.some(
        (want, at) => covers[at] === "all" && want.afterUs <= span.afterUs,
      );
    }
  }
  return { count, estimated: estimated && count > 0 };
}

/** What was dropped had been applied, so a filter knows of its last match; damage nobody has seen. */
function mayHaveMissed(want: MissingWant, span: MissingSpan): boolean {
  if (want.afterUs >= span.untilUs) return false;
  if (span.reason === "damaged") return true;
  return want.lastMatchUs > Math.max(span.afterUs, want.afterUs);
}
