// Runs one command on paper, by its command line, as the program would.

import type { Command } from "../../src/cli/command.ts";
import { runCommand } from "../../src/cli/program.ts";
import { createFakeIo, type FakeIo } from "./fake-io.ts";

export type Run = { readonly io: FakeIo; readonly exit: Promise<number> };

export function run(command: Command, line: readonly string[], io = createFakeIo()): Run {
  return { io, exit: runCommand(command, line, io) };
}
