// What of a log shard is missing, as one sorted list: generations that were dropped or set aside, and
// entries that were lost. Made anew when one of the two has changed.

import { type MissingSpan, type MissingStretch, nextMissing, sortSpans } from "./core/missing.ts";
import type { RecoveryPoint } from "./shard-store.ts";

export class MissedSpans {
  #of: readonly [readonly MissingSpan[], readonly RecoveryPoint[]] | undefined;
  #spans: readonly MissingSpan[] = [];

  /** The first stretch above a position. */
  after(
    positionUs: number,
    missing: readonly MissingSpan[],
    recoveries: readonly RecoveryPoint[],
  ): MissingStretch | undefined {
    if (this.#of?.[0] !== missing || this.#of[1] !== recoveries) {
      this.#of = [missing, recoveries];
      this.#spans = sortSpans([...missing, ...recoveries.map(lostSpan)]);
    }
    return nextMissing(this.#spans, positionUs);
  }
}

function lostSpan({ fromUs, toUs, countMax }: RecoveryPoint): MissingSpan {
  return { afterUs: fromUs, untilUs: toUs, countMax, reason: "damaged" };
}
