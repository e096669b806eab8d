// Clients that wander between nodes of a cluster while nodes die and are cut off (docs/testing.md).

import { expect, test } from "vitest";
import { isLong } from "../support/amount.ts";
import {
  createTakeoverCoverage,
  type TakeoverCoverage,
  TakeoverRun,
} from "../support/takeover-run.ts";

const one = process.env.FLAGSTONE_SIM_SEED;
const many = Number(process.env.FLAGSTONE_SIM_SEEDS ?? 0);
const count = many > 0 ? many : isLong ? 100 : 10;
const seeds = one === undefined ? Array.from({ length: count }, (_, at) => at + 1) : [Number(one)];
const steps = 400;

async function runSeed(seed: number, coverage: TakeoverCoverage): Promise<string> {
  try {
    return await new TakeoverRun(seed, coverage).run(steps);
  } catch (error) {
    const command = `FLAGSTONE_SIM_SEED=${seed} npx vitest run --project sim session-takeovers`;
    throw new Error(`seed ${seed}: ${(error as Error).message}\nrepeat: ${command}`, {
      cause: error,
    });
  }
}

test("clients that wander lose nothing, get nothing twice, and their wills go out once", async () => {
  const coverage = createTakeoverCoverage();
  for (const seed of seeds) await runSeed(seed, coverage);
  if (many > 0) console.table(coverage);
  if (one !== undefined) return;
  for (const [name, times] of Object.entries(coverage)) expect(times, name).toBeGreaterThan(0);
});
