// The store's simulated histories as tests: seeds in halves, so that two files share the work, and
// what all histories together must have met.

import { expect, test } from "vitest";
import { isLong } from "./amount.ts";
import type { Features } from "./store-features.ts";
import { StoreWorld, type WorldCounts } from "./store-world.ts";

const seedCount = Number(process.env.FLAGSTONE_SIM_SEEDS ?? (isLong ? 6_000 : 2_000));
/** One seed: FLAGSTONE_SIM_SEED=17 npx vitest run --project sim store */
const only = process.env.FLAGSTONE_SIM_SEED;
const operations = 500;
const endings = 3;
/** Fewer histories need not meet everything. */
const coverageSeedsMin = 200;

export async function runSeed(seed: number): Promise<StoreWorld> {
  const world = new StoreWorld(seed);
  try {
    await world.run(operations, endings);
  } catch (error) {
    const repeat = `FLAGSTONE_SIM_SEED=${seed} npx vitest run --project sim store`;
    const story = `${JSON.stringify(world.features)} ${world.rotten.join("; ")}`;
    const said = `seed ${seed}: ${String(error)}\n${story}\nrepeat with: ${repeat}`;
    throw new Error(said, { cause: error });
  }
  return world;
}

/** Every second seed: 0 for the even ones, 1 for the odd ones. */
export function testHistories(half: 0 | 1): void {
  const all = Array.from({ length: seedCount }, (_, at) => at + 1);
  const chosen = only === undefined ? all : [Number(only)];
  const seeds = chosen.filter((seed) => seed % 2 === half);
  test(`no acked write is lost and nothing is read twice over ${seeds.length} seeds`, async () => {
    const total = new Map<string, number>();
    const seedsWith = new Map<string, number>();
    for (const seed of seeds) {
      const { counts, features } = await runSeed(seed);
      for (const [name, count] of Object.entries(counts)) {
        total.set(name, (total.get(name) ?? 0) + count);
      }
      for (const name of faultClasses(counts, features)) {
        seedsWith.set(name, (seedsWith.get(name) ?? 0) + 1);
      }
    }
    const said = { total: Object.fromEntries(total), seedsWith: Object.fromEntries(seedsWith) };
    console.log(JSON.stringify(said));
    if (seeds.length < coverageSeedsMin) return;
    for (const [name, count] of total) {
      if (!mayBeNone.includes(name)) expect(count, `coverage of ${name}`).toBeGreaterThan(0);
    }
    expect([...seedsWith.keys()].sort()).toEqual([...faultClassNames].sort());
    for (const [name, count] of seedsWith) {
      const shareMin = name === "tornSectors" ? tornShareMin : 0.2;
      expect(count / seeds.length, `share of seeds with ${name}`).toBeGreaterThanOrEqual(shareMin);
    }
  });
}

/**
 * State has second copies and the log: what was damaged there came back each time. And few readers stop
 * within a gap.
 */
const mayBeNone = ["mapsGoneBack", "damageEvents", "lostAndToldLater"];

/** Every power cut may tear sectors; it has to meet a write of several to do so. */
const tornShareMin = 0.15;

const faultClassNames = [
  ...["clock", "crash", "damage", "databases", "failedCalls", "fullVolume", "holds", "kill"],
  ...["noSpace", "quota", "retention", "shortWrites", "slowCalls", "tornSectors"],
];

/** Classes of faults that a history really met. */
function faultClasses(counts: WorldCounts, features: Features): string[] {
  const failedCalls = counts.failedWrites + counts.failedSyncs + counts.failedLogSyncs;
  const damages =
    counts.flippedBits + counts.rottenSectors + counts.rottenStores + counts.lostFiles;
  const met: Readonly<Record<string, boolean>> = {
    kill: counts.kills > 0,
    crash: counts.crashes > 0,
    tornSectors: counts.tornSectors > 0,
    shortWrites: counts.shortWrites > 0,
    failedCalls: failedCalls > 0,
    noSpace: counts.noSpace > 0,
    slowCalls: counts.slowCalls > 0,
    fullVolume: counts.fullTurns > 0,
    clock: counts.clockSteps + counts.boots1970 > 0,
    damage: damages > 0,
    quota: features.quota !== "none",
    retention: features.retention,
    databases: counts.databasesMade > 0,
    holds: counts.holdsMade > 0,
  };
  return Object.keys(met).filter((name) => met[name]);
}
