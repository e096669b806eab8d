// What a folder takes on its volume, by the system's own du.

import { execFile } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Files that go meanwhile make it fail with what it found. */
async function du(args: readonly string[]): Promise<string> {
  try {
    return (await run("du", [...args])).stdout;
  } catch (error) {
    const { stdout = "" } = error as { stdout?: string };
    if (stdout === "") throw error;
    return stdout;
  }
}

export async function diskUsage(folder: string): Promise<number> {
  return Number.parseInt(await du(["-s", "--block-size=1", folder]), 10);
}

/** Where it sits: for the message of a test that fails. */
export function diskList(folder: string): Promise<string> {
  return du(["-a", "--block-size=1K", "--max-depth=4", "--threshold=16K", folder]);
}
