// Errors that end a command, as the user sees them: one sentence, or, for a fault of ours, the stack.

import { CodedError } from "../base/index.ts";
import type { Io } from "./command.ts";
import { type ExitCode, exitCodeOf, exitCodes } from "./exit-codes.ts";

/** Prints the error and returns the exit code it means. */
export function reportError(error: unknown, io: Pick<Io, "error">): ExitCode {
  const code = exitCodeOf(error);
  if (error instanceof CodedError && code !== exitCodes.ourBug) {
    io.error(`${error.message}\n`);
  } else {
    const stack = error instanceof Error ? (error.stack ?? error.message) : String(error);
    io.error(`this is a fault of Flagstone, please report it:\n${stack}\n`);
  }
  return code;
}
