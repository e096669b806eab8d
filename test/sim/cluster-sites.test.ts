// Sites of a simulated cluster come and go (docs/testing.md, "Replicas of the store").

import { expect, test } from "vitest";
import { isLong } from "../support/amount.ts";
import { type ClusterCoverage, ClusterRun, createClusterCoverage } from "../support/cluster-run.ts";

const one = process.env.FLAGSTONE_SIM_SEED;
const many = Number(process.env.FLAGSTONE_SIM_SEEDS ?? 0);
const count = many > 0 ? many : isLong ? 200 : 4;
/** A node waits for a leader for 15 s before it says so. */
const rare: ReadonlySet<string> = new Set(["unknown"]);
const seeds = one === undefined ? Array.from({ length: count }, (_, at) => at + 1) : [Number(one)];

async function runSeed(seed: number, coverage: ClusterCoverage): Promise<string> {
  try {
    return await new ClusterRun(seed, coverage).run();
  } catch (error) {
    const command = `FLAGSTONE_SIM_SEED=${seed} npx vitest run --project sim cluster-sites`;
    throw new Error(`seed ${seed}: ${(error as Error).message}\nrepeat: ${command}`, {
      cause: error,
    });
  }
}

test("sites join, are lost and are evacuated under faults, and no acked append is lost", async () => {
  const coverage = createClusterCoverage();
  for (const seed of seeds) await runSeed(seed, coverage);
  if (many > 0) console.table(coverage);
  if (one !== undefined) return;
  for (const [name, times] of Object.entries(coverage)) {
    if (!rare.has(name)) expect(times, name).toBeGreaterThan(0);
  }
});

test("one seed gives one history", async () => {
  const coverage = createClusterCoverage();
  const seed = seeds[0] as number;
  expect(await runSeed(seed, coverage)).toBe(await runSeed(seed, coverage));
});
