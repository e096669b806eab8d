// Hand-over between the pools under concurrent writes, over 10,000 schedules.
//
//   FLAGSTONE_SIM_SEED=17 npx vitest run --project sim store-hand-over      the schedules of one seed

import { expect, test } from "vitest";
import { isLong } from "../support/amount.ts";
import { type HandOverCounts, runSchedules, schedulesPerStore } from "../support/hand-over-run.ts";

const scheduleCount = isLong ? 100_000 : 10_000;
const only = process.env.FLAGSTONE_SIM_SEED;

test(`hand-over under writes has no gap, no repeat and keeps the order: ${scheduleCount} schedules`, async () => {
  const all = Array.from({ length: scheduleCount / schedulesPerStore }, (_, at) => at + 1);
  const total: HandOverCounts = {
    ...{ schedules: 0, ttvs: 0, handOvers: 0, fallBehinds: 0, catchUpTtvs: 0, realtimeTtvs: 0 },
  };
  for (const seed of only === undefined ? all : [Number(only)]) {
    const counts = await runSchedules(seed);
    for (const name of Object.keys(total) as Array<keyof HandOverCounts>) {
      total[name] += counts[name];
    }
  }
  console.log(JSON.stringify(total));
  if (only !== undefined) return;
  expect(total.schedules).toBe(scheduleCount);
  // A schedule counts for what it is only when its reader changes pools.
  expect(total.handOvers).toBeGreaterThan(scheduleCount);
  expect(total.fallBehinds).toBeGreaterThan(scheduleCount);
  expect(total.catchUpTtvs).toBeGreaterThan(scheduleCount);
  expect(total.realtimeTtvs).toBeGreaterThan(scheduleCount);
});
