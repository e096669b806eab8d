// kill -9 of the launched broker under load, at named phases and at random moments. Each run has a
// data directory of its own and 40 rounds; the long suite makes five runs.
//
// One run again: FLAGSTONE_SEED=kills-1 npx vitest run --project crash test/crash/kills.test.ts

import { join } from "node:path";
import { expect, test } from "vitest";
import { SeededRandom } from "../../src/base/index.ts";
import { isLong } from "../support/amount.ts";
import { startAndKill, startBroker } from "../support/broker-process.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";
import { drawAims, killAimNames } from "./kill-aims.ts";
import { type KillReport, runKillRounds } from "./kill-rounds.ts";

const only = process.env.FLAGSTONE_SEED;
const seeds =
  only === undefined ? Array.from({ length: isLong ? 5 : 1 }, (_, n) => `kills-${n + 1}`) : [only];

const rounds = 40;
const ackedPerRound = 1000;
const killsPerAim = 5;
const killsPerAimMin = 4;
/** A loaded machine is slow, not wrong; the budget of the suite is that of docs/testing.md. */
const runMsMax = 600_000;

test.each(seeds)(
  "kill -9 under load loses nothing acked, doubles nothing at QoS 2, keeps order (seed %s)",
  async (seed) => {
    await withTemporaryFolder(async (scratch) => {
      const dataDir = join(scratch, "data");
      const report = await runKillRounds({
        start: (port, env) => startBroker({ dataDir, port, env }),
        startAndKill: (port, afterMs) => startAndKill({ dataDir, port }, afterMs),
        rounds,
        ackedPerRound,
        seed,
        aims: drawAims(rounds, killsPerAim, new SeededRandom(`${seed}/aims`)),
        repeat: `FLAGSTONE_SEED=${seed} npx vitest run --project crash test/crash/kills.test.ts`,
      });
      console.info(describeReport(seed, report));
      expect(report.faults).toEqual([]);
      expect(report.acked).toBeGreaterThanOrEqual(rounds * ackedPerRound);
      for (const name of killAimNames) {
        expect(report.hits.get(name) ?? 0, `kills at ${name}`).toBeGreaterThanOrEqual(
          killsPerAimMin,
        );
      }
    });
  },
  runMsMax,
);

function describeReport(seed: string, report: KillReport): string {
  const { kills, acked, received, repeatCount, restartMs, hits } = report;
  const sorted = [...restartMs].sort((a, b) => a - b);
  const [median, most] = [sorted[sorted.length >> 1], sorted.at(-1)];
  return [
    `kill rounds, seed ${seed}: ${kills} kills, ${acked} acked, ${received} received`,
    `  lost 0, doubled at QoS 2 0, repeated at QoS 1 ${repeatCount}`,
    `  restart ${median} ms in the median, ${most} ms at most`,
    ...[...hits].sort().map(([what, count]) => `  ${what}: ${count}`),
  ].join("\n");
}
