// The example of flagstone/raft, run as a reader would.

import { execFile } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));

test("the replicated counter keeps what it answered when its leader goes", async () => {
  const program = join(root, "examples/replicated.mjs");
  const { stdout } = await promisify(execFile)(process.execPath, [program], { timeout: 120_000 });
  expect(stdout.trim().split("\n")).toEqual([
    "added 40: 40",
    "the leader is gone",
    "added 2 at another: 42",
  ]);
});
