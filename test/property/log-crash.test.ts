import { expect, test } from "vitest";
import { amount } from "../support/amount.ts";
import { createWorldCounts, LogWorld } from "../support/log-world.ts";

// One seed: FLAGSTONE_SEED=17 npx vitest run --project property test/property/log-crash.test.ts
const only = process.env.FLAGSTONE_SEED;
const seedCount = Number(process.env.FLAGSTONE_SEEDS ?? amount(30, 300));
const stepCount = 60;

test("no acked record is lost, changed or doubled by any failure", async () => {
  const counts = createWorldCounts();
  const seeds = only === undefined ? Array.from({ length: seedCount }, (_, at) => at + 1) : [only];
  for (const seed of seeds) {
    const world = new LogWorld(seed, counts);
    try {
      await world.run(stepCount);
    } catch (error) {
      const last = world.events.slice(-40).join("\n  ");
      const again = `FLAGSTONE_SEED=${seed} npx vitest run --project property log-crash`;
      throw new Error(`seed ${seed}; repeat with: ${again}\n  ${last}`, { cause: error });
    }
  }
  if (process.env.FLAGSTONE_COUNTS !== undefined)
    process.stdout.write(`${JSON.stringify(counts)}\n`);
  if (only !== undefined) return;
  for (const [name, count] of Object.entries(counts)) {
    expect(count, `${name} happened`).toBeGreaterThan(0);
  }
});
