// The quota of a group as pure state: how much is used, and what follows from it.
//
//   open --near at 3/4--> near --full at 15/16--> full --below 7/8--> near --below 5/8--> open
//
// The last sixteenth is the reserve of progress writes, which are always admitted: cursors, acks,
// releases and drops are what frees space. Hysteresis keeps a group at its limit from flapping.

import type { QuotaState } from "../operator-api.ts";

const nearShare = 3 / 4;
const fullShare = 15 / 16;
const noLongerFullShare = 7 / 8;
/** Freeing goes on down to here: each drop is a checkpoint, so a few at a time. */
const freedShare = 5 / 8;

export function nextQuotaState(
  state: QuotaState,
  usedBytes: number,
  quotaBytes: number,
): QuotaState {
  const share = usedBytes / quotaBytes;
  if (share >= fullShare) return "full";
  if (state === "full" && share >= noLongerFullShare) return "full";
  if (share >= nearShare) return "near";
  return state !== "open" && share >= freedShare ? "near" : "open";
}

/** Bytes to be freed until nothing more has to be. */
export function excessBytes(usedBytes: number, quotaBytes: number): number {
  return Math.max(0, usedBytes - quotaBytes * freedShare);
}
