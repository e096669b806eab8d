// Runs the built command line as its own process, to its end.

import { spawn } from "node:child_process";
import { launcherPath } from "./broker-process.ts";

export type CommandResult = {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
};

export type CommandOptions = {
  readonly env?: Readonly<Record<string, string>>;
  readonly input?: string;
  readonly cwd?: string;
  /** Default 20 s; killed then. */
  readonly withinMs?: number;
};

export function runFlagstone(
  args: readonly string[],
  options: CommandOptions = {},
): Promise<CommandResult> {
  const child = spawn(process.execPath, [launcherPath(), ...args], {
    cwd: options.cwd,
    env: { ...process.env, ...options.env },
    stdio: "pipe",
    timeout: options.withinMs ?? 20_000,
    killSignal: "SIGKILL",
  });
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  // A command that ends before it has read its input is judged by its exit code.
  child.stdin.on("error", () => undefined);
  child.stdin.end(options.input ?? "");
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, signal) => resolve({ code, signal, stdout, stderr }));
  });
}
