// What the README shows of a cluster: the demo, as somebody runs it, with nodes killed under load.

import { execFile } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const script = fileURLToPath(new URL("../../scripts/cluster-demo.mjs", import.meta.url));

test("the demo loses, doubles and reorders nothing at QoS 2 while each of its nodes is killed", () =>
  withTemporaryFolder(async (folder) => {
    const args = ["--data", join(folder, "demo"), "--seconds", "30", "--kill-every", "4"];
    const { stdout } = await promisify(execFile)(process.execPath, [script, ...args], {
      timeout: 240_000,
    });
    const lines = stdout.trim().split("\n");
    expect(lines.at(-1)).toMatch(
      /up 1 2 3 {3}acked \d+ {3}delivered \d+ {3}lost 0 {3}doubled 0 {3}reordered 0/,
    );
    expect(stdout.match(/kill -9 of node/g)?.length, stdout).toBeGreaterThanOrEqual(2);
    const acked = Number(/acked (\d+)/.exec(lines.at(-1) ?? "")?.[1]);
    expect(acked, stdout).toBeGreaterThan(20);
  }));
