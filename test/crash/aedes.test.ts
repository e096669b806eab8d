import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { SeededRandom } from "../../src/base/index.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";
import { ackedPerRoundMin, type RoundsResult, runRounds } from "./aedes-rounds.ts";

const host = fileURLToPath(new URL("../../examples/aedes.mjs", import.meta.url));

const rounds = 20;

function run(qos: 1 | 2): Promise<RoundsResult> {
  return withTemporaryFolder((cwd) =>
    runRounds({ host, cwd, rounds, random: new SeededRandom(qos), qos }),
  );
}

for (const qos of [1, 2] as const) {
  test(`${rounds} rounds of kill -9 under Aedes lose nothing acknowledged at QoS ${qos} and keep the order`, async () => {
    const { acked, lost, outOfOrder } = await run(qos);
    expect(acked).toBeGreaterThanOrEqual(rounds * ackedPerRoundMin);
    expect({ lost, outOfOrder }).toEqual({ lost: 0, outOfOrder: 0 });
  });
}
