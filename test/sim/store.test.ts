import { expect, test } from "vitest";
import { StoreWorld, type WorldCounts, worldCountsZero } from "../support/store-world.ts";

const seeds = Number(process.env.FLAGSTONE_SIM_SEEDS ?? 300);
const first = Number(process.env.FLAGSTONE_SIM_SEED ?? 1);

test(`no acked write is lost and nothing is read twice over ${seeds} seeds of kills and power cuts`, async () => {
  const total: WorldCounts = { ...worldCountsZero };
  for (let seed = first; seed < first + seeds; seed++) {
    const world = new StoreWorld(seed);
    try {
      await world.run(500, 3);
    } catch (error) {
      const repeat = `FLAGSTONE_SIM_SEED=${seed} FLAGSTONE_SIM_SEEDS=1 npx vitest run --project sim test/sim/store.test.ts`;
      throw new Error(`seed ${seed}: ${String(error)}\nrepeat with: ${repeat}`, { cause: error });
    }
    for (const name of Object.keys(total) as Array<keyof WorldCounts>) {
      total[name] += world.counts[name];
    }
  }
  console.log(JSON.stringify(total));
  if (seeds < 100) return;
  for (const [name, count] of Object.entries(total)) {
    if (name === "fullTurns" || name === "conflicts") continue;
    expect(count, `coverage of ${name}`).toBeGreaterThan(0);
  }
});
