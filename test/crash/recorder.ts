// Builds the preload shim and says how to start a process under it. The shim is compiled once for
// each version of its source, into .cache/ of the project; gcc is the only thing it needs.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, realpathSync, renameSync } from "node:fs";
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

const cacheFolder = fileURLToPath(new URL("../../.cache/", import.meta.url));

export function compileShim(): string {
  const source = fileURLToPath(new URL("shim/record.c", import.meta.url));
  const version = createHash("sha256").update(readFileSync(source)).digest("hex").slice(0, 16);
  const target = join(cacheFolder, `record-${version}.so`);
  if (existsSync(target)) return target;
  mkdirSync(cacheFolder, { recursive: true });
  // Under a name of its own until it is whole: test files run side by side.
  const unfinished = `${target}.${process.pid}`;
  const options = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"];
  try {
    execFileSync("gcc", [...options, "-o", unfinished, source, "-ldl", "-lpthread"], {
      stdio: ["ignore", "ignore", "pipe"],
    });
  } catch (error) {
    const said = (error as { stderr?: Buffer }).stderr?.toString() ?? String(error);
    throw new Error(`cannot build the recorder with gcc (Debian: apt-get install gcc): ${said}`);
  }
  renameSync(unfinished, target);
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
