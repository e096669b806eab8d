import { expect, test } from "vitest";
import { runSeed, testHistories } from "../support/store-histories.ts";

testHistories(1);

test("one seed gives one history", async () => {
  for (const seed of [1, 2, 7]) {
    expect((await runSeed(seed)).hash, `seed ${seed}`).toBe((await runSeed(seed)).hash);
  }
});
