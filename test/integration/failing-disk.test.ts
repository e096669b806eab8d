// A disk that fails beneath a broker inside of a program.

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const program = fileURLToPath(new URL("programs/failing-disk.mjs", import.meta.url));
const execute = promisify(execFile);

test("a program hears of a failing disk, every call ends with a code, and the close ends too", () =>
  withTemporaryFolder(async (cwd) => {
    const { stdout, stderr } = await execute(process.execPath, [program], { cwd });
    expect(stderr).toBe("");
    expect(stdout.split("\n").sort()).toEqual([
      "",
      "failed: NODE_FAILED internal",
      "later publish: STORE_FAILED internal",
      "over: true",
      "publish after close: NODE_CLOSED closed",
      "publish: STORE_FAILED internal",
      "the loop is over",
    ]);
  }));
