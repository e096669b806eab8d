// The store on three simulated nodes (docs/testing.md, "Replicas of the store").

import { expect, test } from "vitest";
import { isLong } from "../support/amount.ts";
import { createReplicasCoverage, type ReplicasCoverage } from "../support/replicas-coverage.ts";
import { ReplicasRun } from "../support/replicas-run.ts";

const one = process.env.FLAGSTONE_SIM_SEED;
const many = Number(process.env.FLAGSTONE_SIM_SEEDS ?? 0);
const count = many > 0 ? many : isLong ? 500 : 12;
const seeds = one === undefined ? Array.from({ length: count }, (_, at) => at + 1) : [Number(one)];

/** In cluster-claims.test.ts batches of a claim gone by do reach the log; a whole store hardly does it. */
const rare: ReadonlySet<string> = new Set(["batchesRefused"]);
/** So few seeds meet these that only many are asked for them. */
const seldom: ReadonlySet<string> = new Set([
  ...["moves", "repairs", "slabsKept", "slabsResumed", "fatesRetry", "fatesUnknown"],
  "onceRepeats",
]);
const manyMin = 100;
const size = Number(process.env.FLAGSTONE_SIM_NODES ?? 3);

async function runSeed(seed: number, coverage: ReplicasCoverage): Promise<string> {
  try {
    return await new ReplicasRun(seed, coverage, size).run();
  } catch (error) {
    const command = `FLAGSTONE_SIM_SEED=${seed} npx vitest run --project sim store-replicas`;
    throw new Error(`seed ${seed}: ${(error as Error).message}\nrepeat: ${command}`, {
      cause: error,
    });
  }
}

test("three replicas lose no ack, store nothing twice, and hold the same at the same position", async () => {
  const coverage = createReplicasCoverage();
  for (const seed of seeds) await runSeed(seed, coverage);
  if (many > 0) console.table(coverage);
  if (one !== undefined) return;
  for (const name of Object.keys(coverage) as Array<keyof ReplicasCoverage>) {
    if (rare.has(name) || (seldom.has(name) && seeds.length < manyMin)) continue;
    expect(coverage[name], name).toBeGreaterThan(0);
  }
});

test("one seed gives one history", async () => {
  const coverage = createReplicasCoverage();
  const seed = seeds[0] as number;
  expect(await runSeed(seed, coverage)).toBe(await runSeed(seed, coverage));
});
