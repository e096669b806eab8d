// Random histories of a whole broker on simulated network, clock and disk. A failing seed names the
// variables that repeat it: <them> npx vitest run --project sim test/sim/broker.test.ts

import { expect, test } from "vitest";
import { BrokerRun, type RunCounts, runCountsZero } from "../support/broker-run.ts";

const seedCount = Number(process.env.FLAGSTONE_SIM_SEEDS ?? 20);
const firstSeed = Number(process.env.FLAGSTONE_SIM_SEED ?? 1);
const operations = 500;
const deaths = 4;

test("acked messages survive any death of the broker, and QoS 2 comes once", async () => {
  const totals: RunCounts = { ...runCountsZero };
  for (let seed = firstSeed; seed < firstSeed + seedCount; seed++) {
    const run = new BrokerRun(seed);
    await run.run(operations, deaths);
    expect(run.faults, `FLAGSTONE_SIM_SEED=${seed} FLAGSTONE_SIM_SEEDS=1`).toEqual([]);
    for (const name of Object.keys(totals) as Array<keyof RunCounts>) {
      totals[name] += run.counts[name];
    }
  }
  console.log(JSON.stringify({ seeds: seedCount, ...totals }));
  // One seed may be without one of the two.
  if (seedCount < 20) return;
  expect(totals.kills).toBeGreaterThan(0);
  expect(totals.powerCuts).toBeGreaterThan(0);
  expect(totals.acked).toBeGreaterThan(seedCount * 50);
});
