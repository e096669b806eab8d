import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { SeededRandom } from "../../src/base/index.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";
import { type RoundsResult, runRounds } from "./aedes-rounds.ts";

const host = fileURLToPath(new URL("../../examples/aedes.mjs", import.meta.url));

function run(qos: 1 | 2): Promise<RoundsResult> {
  return withTemporaryFolder((cwd) =>
    runRounds({ host, cwd, rounds: 20, random: new SeededRandom(qos), qos }),
  );
}

test("20 rounds of kill -9 under Aedes lose nothing acknowledged at QoS 1 and keep the order", async () => {
  const { acked, lost, outOfOrder } = await run(1);
  expect(acked).toBeGreaterThan(20);
  expect({ lost, outOfOrder }).toEqual({ lost: 0, outOfOrder: 0 });
});

// The order in which a client ends the handshakes of a whole queue at QoS 2 is not looked at.
test("20 rounds of kill -9 under Aedes lose nothing acknowledged at QoS 2", async () => {
  const { acked, lost } = await run(2);
  expect(acked).toBeGreaterThan(20);
  expect(lost).toBe(0);
});
