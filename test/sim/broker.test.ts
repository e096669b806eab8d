// Random histories of a whole broker on simulated network, clock and disk. A failing seed is
// repeated with: FLAGSTONE_SEED=<seed> npx vitest run --project sim test/sim/broker.test.ts

import { expect, test } from "vitest";
import { BrokerRun, type RunCounts, runCountsZero } from "../support/broker-run.ts";

const fixedSeed = process.env.FLAGSTONE_SEED;
const seedCount = Number(process.env.FLAGSTONE_SEEDS ?? 20);
const firstSeed = Number(process.env.FLAGSTONE_FIRST_SEED ?? 1);
const operations = 500;
const deaths = 4;

test("acked messages survive any death of the broker, and QoS 2 comes once", async () => {
  const totals: RunCounts = { ...runCountsZero };
  const seeds =
    fixedSeed === undefined
      ? Array.from({ length: seedCount }, (_, n) => firstSeed + n)
      : [fixedSeed];
  for (const seed of seeds) {
    const run = new BrokerRun(seed);
    await run.run(operations, deaths);
    expect(run.faults, `FLAGSTONE_SEED=${seed}`).toEqual([]);
    for (const name of Object.keys(totals) as Array<keyof RunCounts>) {
      totals[name] += run.counts[name];
    }
  }
  console.log(JSON.stringify({ seeds: seeds.length, ...totals }));
  if (fixedSeed !== undefined) return;
  expect(totals.kills).toBeGreaterThan(0);
  expect(totals.powerCuts).toBeGreaterThan(0);
  expect(totals.acked).toBeGreaterThan(seeds.length * 50);
});
