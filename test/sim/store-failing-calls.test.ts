import { expect, test } from "vitest";
import { isLong } from "../support/amount.ts";
import { countCalls, type FailingCall, failAt, places } from "../support/store-failing.ts";

/** Of the calls of one kind; all in the long suite. */
const casesMax = isLong ? Number.POSITIVE_INFINITY : 4;

test("a call that fails, whichever, is answered or ends the store, and nothing acked is missing", async () => {
  const faults: string[] = [];
  let cases = 0;
  for (const place of places) {
    const calls = await countCalls(place);
    const stride = Math.max(1, Math.ceil(calls / casesMax));
    for (let skip = 0; skip < calls; skip += stride) {
      for (const fails of ["EIO", "ENOSPC"] as const) {
        const call: FailingCall = { ...place, skip, fails };
        faults.push(...(await failAt(call, (skip / stride) % 2 === 0 ? "kill" : "crash")));
        cases++;
      }
    }
  }
  expect(faults).toEqual([]);
  expect(cases).toBeGreaterThan(isLong ? 1_000 : 80);
});
