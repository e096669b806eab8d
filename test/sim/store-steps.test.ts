import { describe, expect, test } from "vitest";
import { isLong } from "../support/amount.ts";
import { countSteps, type End, endAt, type Loss, type Operation } from "../support/store-steps.ts";

const operations: readonly Operation[] = ["checkpoint", "rotate", "drop", "repack"];
const ends: readonly End[] = ["kill", "crash"];
const losses: readonly Loss[] = ["nothing", "shard store", "shard store and copy"];
/** Of the steps of one operation; all of them in the long suite. */
const strideOf = (loss: Loss): number => {
  if (isLong) return 1;
  return loss === "nothing" ? 2 : 4;
};

describe.each(operations)("%s, ended at every step", (operation) => {
  test.each(losses)("loses nothing of what was acked, then: %s", async (loss) => {
    const steps = await countSteps(operation);
    expect(steps).toBeGreaterThan(10);
    const faults: string[] = [];
    for (const [at, end] of ends.entries()) {
      for (let step = at; step <= steps; step += strideOf(loss)) {
        const fault = await endAt(step, { operation, end, loss });
        if (fault !== undefined) faults.push(`${end} at step ${step} of ${steps}: ${fault}`);
      }
    }
    expect(faults).toEqual([]);
  });
});
