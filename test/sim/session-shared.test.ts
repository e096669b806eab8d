// Shared groups on the real store on a simulated machine, with kills and power cuts at any moment.

import { expect, test } from "vitest";
import { SeededRandom } from "../../src/base/index.ts";
import { World } from "../support/session-world.ts";
import { SharedRun } from "../support/shared-run.ts";

const seeds = Number(process.env.SHARED_SEEDS ?? 120);
const first = Number(process.env.SHARED_SEED ?? 1);
const operationCount = Number(process.env.SHARED_OPERATIONS ?? 200);

const strategies = [
  "round_robin",
  "least_inflight",
  "sticky",
  "hash_client",
  "hash_topic",
] as const;

test(`shared groups lose nothing and deliver QoS 2 once over ${seeds} seeds of kills`, async () => {
  const totals: Record<string, number> = {};
  for (let seed = first; seed < first + seeds; seed++) {
    const random = new SeededRandom(`shared ${seed}`);
    const sharedStrategy = strategies[seed % strategies.length]!;
    const settings = { inflightMax: 20, checkpointDelayMs: 10, sharedStrategy };
    const run = new SharedRun(await World.start({ machineSeed: seed, settings }), seed % 2 === 0);
    await run.begin();
    for (let n = 0; n < operationCount; n++) await run.step(random);
    await run.finish();
    const repeat = `SHARED_SEED=${seed} SHARED_SEEDS=1 npx vitest run --project sim test/sim/session-shared.test.ts`;
    expect(run.faults, `${run.lastEvents}\n${repeat}`).toEqual([]);
    for (const [name, count] of Object.entries(run.counts)) {
      totals[name] = (totals[name] ?? 0) + count;
    }
  }
  if (seeds < 100) return;
  for (const [name, count] of Object.entries(totals)) {
    expect(count, `${name} must have happened`).toBeGreaterThan(seeds / 2);
  }
}, 600_000);
