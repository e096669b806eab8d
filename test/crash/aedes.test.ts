import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { SeededRandom } from "../../src/base/index.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";
import { ackedPerRoundMin, type RoundsResult, runRounds } from "./aedes-rounds.ts";

const pathOf = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const ours = pathOf("../../examples/aedes.mjs");
const level = pathOf("programs/aedes-level.mjs");

const rounds = 20;

function run(host: string, qos: 1 | 2): Promise<RoundsResult> {
  return withTemporaryFolder((cwd) =>
    runRounds({ host, cwd, rounds, random: new SeededRandom(qos), qos }),
  );
}

for (const qos of [1, 2] as const) {
  test(`${rounds} rounds of kill -9 under Aedes lose nothing acknowledged at QoS ${qos} and keep the order`, async () => {
    const result = await run(ours, qos);
    console.log(`flagstone/aedes, QoS ${qos}: ${JSON.stringify(result)}`);
    const { acked, lost, outOfOrder } = result;
    expect(acked).toBeGreaterThanOrEqual(rounds * ackedPerRoundMin);
    expect({ lost, outOfOrder }).toEqual({ lost: 0, outOfOrder: 0 });
  });

  test(`the same rounds run with aedes-persistence-level at QoS ${qos}, for comparison`, async () => {
    const result = await run(level, qos);
    // What it loses is its own; docs/operating/aedes.md has the figures.
    console.log(`aedes-persistence-level, QoS ${qos}: ${JSON.stringify(result)}`);
    expect(result.acked).toBeGreaterThanOrEqual(rounds * ackedPerRoundMin);
  });
}
