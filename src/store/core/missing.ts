// What a reader did not get because it is gone: spans of commit time that were dropped or damaged.
//
// A span holds no readable TTV: a reader passes it in one step, at its begin, and is told once.
// Counts are upper bounds; 0 says that nothing can have been there.

export type MissingReason = "expired" | "damaged";

export type MissingSpan = {
  /** Times above it … */
  readonly afterUs: number;
  /** … and up to this are missing. */
  readonly untilUs: number;
  readonly countMax: number;
  readonly reason: MissingReason;
};

export function sortSpans(spans: Iterable<MissingSpan>): MissingSpan[] {
  return [...spans].sort((a, b) => a.afterUs - b.afterUs);
}

/**
 * The first span that reaches above a position, with those that follow it without a gap for the
 * same reason. It begins at the position at the earliest. REQUIRES: sorted.
 */
export function nextMissing(
  spans: readonly MissingSpan[],
  positionUs: number,
): MissingSpan | undefined {
  let found: MissingSpan | undefined;
  for (const span of spans) {
    if (span.untilUs <= positionUs) continue;
    if (found === undefined) {
      found = { ...span, afterUs: Math.max(span.afterUs, positionUs) };
      continue;
    }
    if (span.afterUs > found.untilUs || span.reason !== found.reason) break;
    const untilUs = Math.max(found.untilUs, span.untilUs);
    found = { ...found, untilUs, countMax: found.countMax + span.countMax };
  }
  return found;
}
