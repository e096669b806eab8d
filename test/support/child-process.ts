// Foreign client programs: started, fed, waited for. Only what was started here is ever signalled.

import { type ChildProcess, spawn } from "node:child_process";

export type Program = {
  readonly stdout: () => string;
  readonly stderr: () => string;
  /** Resolves when the output holds the text. */
  until(text: string, withinMs?: number): Promise<void>;
  /** Resolves with the exit code; -1 for a signal. */
  readonly exited: Promise<number>;
  kill(signal: NodeJS.Signals): Promise<number>;
};

const live = new Set<ChildProcess>();

process.once("exit", () => {
  for (const child of live) child.kill("SIGKILL");
});

export function startProgram(command: string, args: readonly string[], input?: string): Program {
  // stdbuf: a C program that writes to a pipe keeps its lines to itself otherwise.
  const stdin = input === undefined ? "ignore" : "pipe";
  const child = spawn("stdbuf", ["-oL", command, ...args], { stdio: [stdin, "pipe", "pipe"] });
  live.add(child);
  let out = "";
  let err = "";
  let wake: () => void = () => undefined;
  child.stdout?.setEncoding("utf8").on("data", (text: string) => {
    out += text;
    wake();
  });
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    err += text;
    wake();
  });
  // A program that ends early does not want the rest of it.
  child.stdin?.on("error", () => undefined).end(input);
  const exited = new Promise<number>((resolve, reject) => {
    child.once("error", (error) => {
      reject(
        new Error(`cannot run ${command} (.ci/run installs it from Debian): ${error.message}`),
      );
    });
    child.once("close", (code) => {
      live.delete(child);
      resolve(code ?? -1);
    });
  });
  // Who waits for the exit learns it there.
  exited.catch(() => undefined);
  return {
    stdout: () => out,
    stderr: () => err,
    exited,
    async until(text, withinMs = 15_000) {
      const deadline = performance.now() + withinMs;
      while (!out.includes(text) && !err.includes(text)) {
        const restMs = deadline - performance.now();
        if (restMs <= 0) throw new Error(`${command} did not print ${text}:\n${out}\n${err}`);
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, restMs);
          wake = () => {
            clearTimeout(timer);
            resolve();
          };
        });
      }
    },
    kill(signal) {
      child.kill(signal);
      return exited;
    },
  };
}

/** Runs a program to its end, which must be a good one; resolves with what it printed. */
export async function runProgram(
  command: string,
  args: readonly string[],
  input?: string,
): Promise<string> {
  const program = startProgram(command, args, input);
  const code = await program.exited;
  if (code !== 0) {
    throw new Error(`${command} ${args.join(" ")} ended with ${code}: ${program.stderr()}`);
  }
  return program.stdout();
}
