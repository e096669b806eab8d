// The process of the command line: its streams, signals and exit code. Everything else is a
// function of the `Io` made here.

import { basename, relative } from "node:path";
import { systemClock } from "../base/index.ts";
import type { Io } from "./command.ts";
import { exitCodes } from "./exit-codes.ts";
import { runCli } from "./program.ts";
import { reportError } from "./report.ts";

// Secrets may stand in flags, and everybody on a machine sees the command lines of all.
process.title = ["flagstone", ...(process.argv[2]?.match(/^[a-z]+$/) ?? [])].join(" ");
// Not all that LevelDB makes asks for a mode: what is stored is nobody else's business.
process.umask(0o077);

let needsReader = true;

const io: Io = {
  environment: process.env,
  stdin: process.stdin,
  isTerminal: process.stderr.isTTY === true,
  isScreen: process.stdout.isTTY === true,
  command: commandName(process.argv[1] ?? ""),
  clock: systemClock,
  signals: process,
  out: (text) => {
    process.stdout.write(text);
  },
  outliveReader: () => {
    needsReader = false;
  },
  error: (text) => {
    process.stderr.write(text);
  },
  endBy: (signal) => {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  },
  killNow: () => {
    process.kill(process.pid, "SIGKILL");
  },
};

// A reader that has seen enough (`| head -1`) is no fault, and no reason for a node to stop.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (!needsReader) return;
  process.exit(error.code === "EPIPE" ? exitCodes.ok : exitCodes.failed);
});
// With standard error gone there is nobody left to tell.
process.stderr.on("error", () => undefined);

process.on("uncaughtException", (error) => process.exit(reportError(error, io)));

// Timers do not keep a process alive here (a node lives by its listeners), but a command that waits,
// for a reconnect say, is not done.
const whileRunning = setInterval(() => undefined, 2 ** 30);
const exitCode = await runCli(process.argv.slice(2), io);
clearInterval(whileRunning);
if (needsReader) await readerHasAll();
process.exit(exitCode);

/** A pipe takes so much at once; what waits for a slow reader would be lost. A signal ends the wait. */
async function readerHasAll(): Promise<void> {
  for (const signal of ["SIGINT", "SIGTERM"]) process.removeAllListeners(signal);
  for (const stream of [process.stdout, process.stderr]) {
    if (stream.writableLength === 0) continue;
    await new Promise<void>((resolve) => stream.write("", () => resolve()));
  }
}

/** `flagstone` when called by that name, else the line that called it, to copy. */
function commandName(script: string): string {
  if (basename(script) === "flagstone") return "flagstone";
  const near = relative(process.cwd(), script);
  return `node ${near.startsWith("..") ? script : near}`;
}
