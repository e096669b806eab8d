// Random histories of a whole node on simulated disk, key-value stores, network and clock, with kills
// and power cuts. The first half of the seeds; the second is in `broker-2.test.ts`.

import { expect, test } from "vitest";
import { runSeeds } from "../support/broker-seeds.ts";

test("acked messages survive every death of the node, QoS 2 comes once, order is kept", async () => {
  const counts = await runSeeds(0);
  expect(counts.kills + counts.powerCuts).toBeGreaterThan(0);
});
