// Temporary folders for tests that touch a real disk. Each is removed when its test ends, also when
// it fails; FLAGSTONE_KEEP=1 keeps them and prints where they are.

import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

export async function withTemporaryFolder<T>(use: (folder: string) => Promise<T>): Promise<T> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), "flagstone-test-")));
  try {
    return await use(folder);
  } finally {
    if (process.env.FLAGSTONE_KEEP === "1") console.error(`kept: ${folder}`);
    else await rm(folder, { recursive: true, force: true });
  }
}
