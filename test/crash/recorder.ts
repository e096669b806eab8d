// Builds the preload shim that records, and says how to start a process under it.

import { realpathSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { compilePreload } from "../support/preload.ts";

export type Recording = {
  /** The folder that is watched; absolute and without symbolic links. */
  readonly root: string;
  readonly recordPath: string;
  /** Writes to this file become marks. */
  readonly marksPath: string;
  /** Environment for the process. */
  readonly env: Readonly<Record<string, string>>;
};

export function compileShim(): string {
  return compilePreload(fileURLToPath(new URL("shim/record.c", import.meta.url)));
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
