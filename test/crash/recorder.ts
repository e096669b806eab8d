// Builds the preload shim and says how to start a process under it. The shim is compiled once per
// test process into a temporary folder; gcc is the only thing it needs.

import { execFileSync } from "node:child_process";
import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export type Recording = {
  /** The folder that is watched; absolute and without symbolic links. */
  readonly root: string;
  readonly recordPath: string;
  /** Writes to this file become marks. */
  readonly marksPath: string;
  /** Environment for the process. */
  readonly env: Readonly<Record<string, string>>;
};

let compiled: string | undefined;

export function compileShim(): string {
  if (compiled !== undefined) return compiled;
  const source = fileURLToPath(new URL("shim/record.c", import.meta.url));
  const folder = mkdtempSync(join(tmpdir(), "flagstone-shim-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  const target = join(folder, "record.so");
  const options = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"];
  try {
    execFileSync("gcc", [...options, "-o", target, source, "-ldl", "-lpthread"], {
      stdio: ["ignore", "ignore", "pipe"],
    });
  } catch (error) {
    const said = (error as { stderr?: Buffer }).stderr?.toString() ?? String(error);
    throw new Error(`cannot build the recorder with gcc (Debian: apt-get install gcc): ${said}`);
  }
  compiled = target;
  return target;
}

/** `syncs: "ignored"` makes every sync below the folder do nothing: the program that forgot them. */
export function createRecording(
  root: string,
  scratch: string,
  syncs: "obeyed" | "ignored" = "obeyed",
): Recording {
  const real = realpathSync(root);
  const recordPath = join(scratch, "record");
  const marksPath = join(scratch, "marks");
  const env: Record<string, string> = {
    LD_PRELOAD: compileShim(),
    FLAGSTONE_RECORD_ROOT: real,
    FLAGSTONE_RECORD_FILE: recordPath,
    FLAGSTONE_RECORD_MARKS: marksPath,
    // Reads and writes through io_uring would pass the shim by.
    UV_USE_IO_URING: "0",
  };
  if (syncs === "ignored") env.FLAGSTONE_RECORD_SKIP_SYNC = "1";
  return { root: real, recordPath, marksPath, env };
}
