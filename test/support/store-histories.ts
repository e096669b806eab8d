// The store's simulated histories as tests: seeds in halves, so that two files share the work, and
// what all histories together must have met.

import { expect, test } from "vitest";
import { StoreWorld, type WorldCounts, worldCountsZero } from "./store-world.ts";

const long = process.env.FLAGSTONE_LONG === "1";
const seedCount = Number(process.env.FLAGSTONE_SIM_SEEDS ?? (long ? 3_000 : 1_000));
/** One seed: FLAGSTONE_SIM_SEED=17 npx vitest run --project sim store */
const only = process.env.FLAGSTONE_SIM_SEED;
const operations = 500;
const endings = 3;
/** Fewer histories need not meet everything. */
const coverageSeedsMin = 200;

export async function runSeed(seed: number): Promise<StoreWorld> {
  const world = new StoreWorld(seed);
  try {
    await world.run(operations, endings);
  } catch (error) {
    const repeat = `FLAGSTONE_SIM_SEED=${seed} npx vitest run --project sim store`;
    throw new Error(`seed ${seed}: ${String(error)}\nrepeat with: ${repeat}`, { cause: error });
  }
  return world;
}

/** Every second seed: 0 for the even ones, 1 for the odd ones. */
export function testHistories(half: 0 | 1): void {
  const all = Array.from({ length: seedCount }, (_, at) => at + 1);
  const chosen = only === undefined ? all : [Number(only)];
  const seeds = chosen.filter((seed) => seed % 2 === half);
  test(`no acked write is lost and nothing is read twice over ${seeds.length} seeds`, async () => {
    const total: WorldCounts = { ...worldCountsZero };
    for (const seed of seeds) {
      const { counts } = await runSeed(seed);
      for (const name of Object.keys(total) as Array<keyof WorldCounts>) {
        total[name] += counts[name];
      }
    }
    console.log(JSON.stringify(total));
    if (seeds.length < coverageSeedsMin) return;
    for (const [name, count] of Object.entries(total)) {
      expect(count, `coverage of ${name}`).toBeGreaterThan(0);
    }
  });
}
