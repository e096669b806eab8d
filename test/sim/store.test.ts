import { expect, test } from "vitest";
import { StoreWorld, type WorldCounts, worldCountsZero } from "../support/store-world.ts";

// One seed: FLAGSTONE_SIM_SEED=17 FLAGSTONE_SIM_SEEDS=1 npx vitest run --project sim store
const long = process.env.FLAGSTONE_LONG === "1";
const seeds = Number(process.env.FLAGSTONE_SIM_SEEDS ?? (long ? 5_000 : 500));
const first = Number(process.env.FLAGSTONE_SIM_SEED ?? 1);
const operations = 500;
const endings = 3;

async function runSeed(seed: number): Promise<StoreWorld> {
  const world = new StoreWorld(seed);
  try {
    await world.run(operations, endings);
  } catch (error) {
    const repeat = `FLAGSTONE_SIM_SEED=${seed} FLAGSTONE_SIM_SEEDS=1 npx vitest run --project sim store`;
    throw new Error(`seed ${seed}: ${String(error)}\nrepeat with: ${repeat}`, { cause: error });
  }
  return world;
}

test(`no acked write is lost and nothing is read twice over ${seeds} seeds`, async () => {
  const total: WorldCounts = { ...worldCountsZero };
  for (let seed = first; seed < first + seeds; seed++) {
    const { counts } = await runSeed(seed);
    for (const name of Object.keys(total) as Array<keyof WorldCounts>) total[name] += counts[name];
  }
  console.log(JSON.stringify(total));
  if (seeds < 100) return;
  for (const [name, count] of Object.entries(total)) {
    expect(count, `coverage of ${name}`).toBeGreaterThan(0);
  }
});

test("one seed gives one history", async () => {
  for (const seed of [first, first + 1, first + 6]) {
    expect((await runSeed(seed)).hash, `seed ${seed}`).toBe((await runSeed(seed)).hash);
  }
});
