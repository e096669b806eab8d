// Hooks by which tests end or stir a node from outside (docs/testing.md). Off unless asked for:
//
//   FLAGSTONE_TEST_KILL=checkpoint.*:3   SIGKILL of the process at the third phase of that name
//   FLAGSTONE_TEST_SIGNALS=1             SIGUSR2: end the generation, take a checkpoint
//   FLAGSTONE_TEST_SIGNALS=count         SIGUSR2 leaves the store alone
//
// With both variables, phases before the first SIGUSR2 do not count.
// They are no part of the configuration: a node that has one says so in its log.

import type { Logger } from "../base/index.ts";
import { toError } from "../base/index.ts";
import type { Io } from "./command.ts";
import { cliErrors } from "./errors.ts";

export type Phase = (name: string) => void;

const killVariable = "FLAGSTONE_TEST_KILL";
const signalsVariable = "FLAGSTONE_TEST_SIGNALS";
const signalModes: ReadonlySet<string | undefined> = new Set(["1", "count"]);

/** Ends the process when the phase comes; undefined when nobody asked. @throws CLI_USAGE. */
export function killPhase(
  io: Pick<Io, "environment" | "error" | "killNow" | "signals">,
): Phase | undefined {
  const text = io.environment[killVariable];
  if (text === undefined || text === "") return undefined;
  const match = /^([a-z_]+(?:\.[a-z_]+)*(?:\.\*)?):([1-9]\d{0,8})$/.exec(text);
  if (match === null) {
    throw cliErrors.usage({ reason: `${killVariable} expects phase:count, got "${text}"` });
  }
  const [, pattern = "", count] = match;
  let left = Number(count);
  let isCounting = !signalModes.has(io.environment[signalsVariable]);
  if (!isCounting) {
    io.signals.on("SIGUSR2", () => {
      isCounting = true;
    });
  }
  return (name) => {
    if (!isCounting || !fits(pattern, name)) return;
    left--;
    if (left !== 0) return;
    io.error(`test: killed at ${name}\n`);
    io.killNow();
  };
}

/** `checkpoint.*` fits every phase that begins so. */
function fits(pattern: string, name: string): boolean {
  return pattern.endsWith(".*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
}

/** What a signal may ask a running node for. */
export type Stirred = { rotate(): Promise<void>; checkpoint(): Promise<void> };

export function watchTestSignals(
  io: Pick<Io, "environment" | "signals">,
  store: Stirred,
  logger: Logger,
): void {
  if (io.environment[signalsVariable] !== "1") return;
  logger.warn("node.test_signals_on");
  let last = Promise.resolve();
  io.signals.on("SIGUSR2", () => {
    last = last.then(() => stir(store, logger));
  });
}

async function stir(store: Stirred, logger: Logger): Promise<void> {
  try {
    await store.rotate();
    await store.checkpoint();
    logger.info("node.test_rotated");
  } catch (error) {
    logger.error("node.test_rotate_failed", { error: toError(error) });
  }
}
