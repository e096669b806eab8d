// The real Raft host on simulated machines: one seed decides everything.

import { expect, test } from "vitest";
import {
  addHostCoverage,
  createHostCoverage,
  type HostSimResult,
  simulateHosts,
  uncoveredHosts,
} from "../../src/raft/index.ts";
import { isLong } from "../support/amount.ts";

const first = Number(process.env.FLAGSTONE_SIM_SEED ?? 1);
const seeds = Number(process.env.FLAGSTONE_SIM_SEEDS ?? (isLong ? 400 : 40));
const steps = 300;
/** Fewer seeds need not reach every state. */
const coverageSeedsMin = 400;

function sayFailure({ seed, failure, trace }: HostSimResult): string {
  const repeat = `FLAGSTONE_SIM_SEED=${seed} FLAGSTONE_SIM_SEEDS=1 npx vitest run --project sim raft-hosts`;
  return `seed ${seed}: ${failure?.rule}: ${failure?.message}\n${trace.join("\n")}\n${repeat}`;
}

test("groups keep every promise under all faults, and agree when they are over", async () => {
  const total = createHostCoverage();
  const failures: string[] = [];
  for (let seed = first; seed < first + seeds; seed++) {
    const result = await simulateHosts({ seed, steps, traceMax: 60 });
    addHostCoverage(total, result.coverage);
    if (result.failure !== undefined) failures.push(sayFailure(result));
  }
  expect(failures.join("\n\n")).toBe("");
  if (seeds >= coverageSeedsMin) expect(uncoveredHosts(total)).toEqual([]);
});

test("a seed gives the same run each time", async () => {
  for (let seed = first; seed < first + 3; seed++) {
    const [one, two] = [await simulateHosts({ seed, steps }), await simulateHosts({ seed, steps })];
    expect(one.hash).toBe(two.hash);
    expect(one.coverage).toEqual(two.coverage);
  }
});
