// The second half of the seeds of `broker.test.ts`.

import { test } from "vitest";
import { runSeeds } from "../support/broker-seeds.ts";

test("acked messages survive every death of the node, as in broker.test.ts", async () => {
  await runSeeds(1);
});
