// Starting and stopping leaves nothing behind: hundreds of brokers in one process hold what the
// first of them did.

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { isLong } from "../support/amount.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const program = fileURLToPath(new URL("programs/cycles.mjs", import.meta.url));
const execute = promisify(execFile);

type Held = {
  readonly heapBytes: number;
  readonly externalBytes: number;
  readonly rssBytes: number;
  readonly descriptors: number;
  readonly resources: number;
  readonly listeners: number;
};

type Result = { readonly cycles: number; readonly before: Held; readonly after: Held };

/** Code that is compiled again and again with what was learned of it would look like a leak. */
const flags = ["--no-opt", "--no-sparkplug", "--expose-gc"];

function run(what: string, count: number): Promise<Result> {
  return withTemporaryFolder(async (cwd) => {
    const args = [...flags, program, what, String(count)];
    // With an arena for each thread malloc keeps far more than it needs.
    const env = { ...process.env, MALLOC_ARENA_MAX: "1" };
    const { stdout } = await execute(process.execPath, args, { cwd, env });
    return JSON.parse(stdout) as Result;
  });
}

/** Less than the smallest thing that a broker makes when it starts. */
const heapBytesPerCycle = 4 * 1024;
/** The collector leaves now more, now less. */
const heapBytesEither = 256 * 1024;
const externalBytesPerCycle = 1024;
/** What malloc has and does not need spreads over its pages for the first hundred cycles. */
const rssBytesMax = 24 * 1024 * 1024;

for (const [what, count] of [
  ["memory", 500],
  ["disk", isLong ? 500 : 60],
  ["manual", 60],
  ["refused", 200],
  ["store", 60],
  ["aedes", 60],
] as const) {
  test(`${count} cycles of start and stop leave nothing behind: ${what}`, async () => {
    const { cycles, before, after } = await run(what, count);
    console.log(`${what}: ${JSON.stringify({ before, after })}`);
    const { descriptors, resources, listeners } = before;
    expect(after).toMatchObject({ descriptors, resources, listeners });
    const heapBytesMax = cycles * heapBytesPerCycle + heapBytesEither;
    expect(after.heapBytes - before.heapBytes).toBeLessThan(heapBytesMax);
    expect(after.externalBytes - before.externalBytes).toBeLessThan(cycles * externalBytesPerCycle);
    expect(after.rssBytes - before.rssBytes).toBeLessThan(rssBytesMax);
  });
}
