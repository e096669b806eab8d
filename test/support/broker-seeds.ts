// Runs histories of a node for a share of the seeds, so that two test files can use two cores, and
// judges them: no fault in any, the same twice, and nothing in the world that never happens.
//
//   FLAGSTONE_SIM_SEED=17 FLAGSTONE_SIM_SEEDS=1 npx vitest run --project sim test/sim/broker.test.ts
//
// runs one seed alone. Without these variables: 1,000 seeds, half of them in each file.

import { expect } from "vitest";
import { isLong } from "./amount.ts";
import { BrokerHistory } from "./broker-history.ts";
import { aimedPhases } from "./broker-machine.ts";
import { addCounts, type HistoryCounts, historyCountsZero } from "./history-counts.ts";

export const shares = 2;
const operations = 500;
const lives = 4;
/** Every so many seeds one runs twice. */
const twiceEvery = 50;
/** Fewer seeds need not have met everything. */
const coverageSeedsMin = 400;

const first = Number(process.env.FLAGSTONE_SIM_SEED ?? 1);
const seeds = Number(process.env.FLAGSTONE_SIM_SEEDS ?? (isLong ? 3_000 : 1000));

/** The seeds of one share, from 0. */
export async function runSeeds(share: number): Promise<HistoryCounts> {
  const total = historyCountsZero();
  let done = 0;
  for (let seed = first; seed < first + seeds; seed++) {
    if ((seed - first) % shares !== share) continue;
    const history = await runSeed(seed);
    addCounts(total, history.counts);
    if (done++ % twiceEvery !== 0) continue;
    const again = await runSeed(seed);
    expect(again.hash, `seed ${seed} ends in the same way twice`).toBe(history.hash);
  }
  console.log(`${done} seeds: ${JSON.stringify(total)}`);
  if (done >= coverageSeedsMin) checkCoverage(total);
  return total;
}

async function runSeed(seed: number): Promise<BrokerHistory> {
  const history = new BrokerHistory(seed);
  try {
    await history.run(operations, lives);
  } catch (error) {
    throw new Error(describe(seed, history, String(error)), { cause: error });
  }
  if (history.faults.length > 0) {
    throw new Error(describe(seed, history, history.faults.slice(0, 10).join("\n")));
  }
  return history;
}

function describe(seed: number, history: BrokerHistory, text: string): string {
  const file = (seed - first) % shares === 0 ? "broker" : "broker-2";
  return [
    `seed ${seed}, operation ${history.counts.operations}:`,
    text,
    "the last events (milliseconds, who, what):",
    ...history.lastLines,
    "repeat with: FLAGSTONE_SIM_SEED=" +
      `${seed} FLAGSTONE_SIM_SEEDS=1 npx vitest run --project sim test/sim/broker.test.ts`,
    `found in test/sim/${file}.test.ts`,
  ].join("\n");
}

function checkCoverage(total: HistoryCounts): void {
  for (const [name, count] of Object.entries(total)) {
    if (typeof count === "number") expect(count, `coverage of ${name}`).toBeGreaterThan(0);
  }
  for (const phase of aimedPhases) {
    expect(total.aimed[phase] ?? 0, `deaths in ${phase}`).toBeGreaterThan(0);
  }
}
