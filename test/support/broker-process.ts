// Starts, stops and kills a broker as its own process, by the launcher's contract:
//
//   node dist/cli/main.js start --data DIR --port 0 [...]
//   at most 12 lines on stdout, the last: ready mqtt=127.0.0.1:PORT admin=off ms=N
//
// Only processes started here are ever signalled, by their own id; what is left when the test process
// ends is killed with it. Everything the broker prints is kept and shown when something fails.

import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

export type Exit = { readonly code: number | null; readonly signal: NodeJS.Signals | null };

export type BrokerOptions = {
  readonly dataDir: string;
  /** Default 0: any free port. */
  readonly port?: number;
  /** The launcher. Default: dist/cli/main.js of this project. */
  readonly main?: string;
  /** Further arguments of `start`. */
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Default 20 s. */
  readonly readyWithinMs?: number;
};

export type BrokerProcess = {
  readonly pid: number;
  readonly host: string;
  readonly port: number;
  /** Port of the admin listener; undefined when it is off. */
  readonly adminPort: number | undefined;
  /** Start-up time by the broker's own count. */
  readonly readyMs: number;
  readonly startLines: readonly string[];
  /** Everything printed so far, both streams in the order of arrival. */
  output(): string;
  stderr(): string;
  /** SIGTERM, then the exit. Killed after `withinMs`, which is an error. */
  stop(withinMs?: number): Promise<Exit>;
  /** SIGKILL, then the exit. */
  kill(): Promise<Exit>;
  readonly exited: Promise<Exit>;
  [Symbol.asyncDispose](): Promise<void>;
};

const startLinesMax = 12;
const readyLine = /^ready mqtt=(\S+):(\d+) admin=(off|\S+:(\d+)) ms=(\d+)$/;
const live = new Set<ChildProcess>();

process.once("exit", () => {
  for (const child of live) child.kill("SIGKILL");
});

export function launcherPath(): string {
  return fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));
}

/** Resolves when the broker takes connections. Rejects with all it printed when it does not. */
export async function startBroker(options: BrokerOptions): Promise<BrokerProcess> {
  const run = launch(options);
  const waitMs = options.readyWithinMs ?? 20_000;
  const ended = run.exited.then((exit): never => {
    throw new Error(`the broker ended before it was ready (${formatExit(exit)})\n${run.output()}`);
  });
  const lines = await within(waitMs, Promise.race([run.ready, ended]), () => {
    run.child.kill("SIGKILL");
    return `the broker was not ready within ${waitMs} ms\n${run.output()}`;
  });
  return createHandle(run, lines);
}

/** For a start that must be refused: its exit and what it printed. */
export async function startRefused(
  options: BrokerOptions,
): Promise<{ exit: Exit; stdout: string; stderr: string }> {
  const run = launch(options);
  const waitMs = options.readyWithinMs ?? 20_000;
  const started = run.ready.then((lines): never => {
    run.child.kill("SIGKILL");
    throw new Error(`the broker started although it should refuse: ${lines.at(-1)}`);
  });
  const exit = await within(waitMs, Promise.race([run.exited, started]), () => {
    run.child.kill("SIGKILL");
    return `the broker neither started nor ended within ${waitMs} ms\n${run.output()}`;
  });
  return { exit, stdout: run.stdout(), stderr: run.stderr() };
}

/** Starts a broker and kills it after so long, whether it is ready by then or not. */
export async function startAndKill(options: BrokerOptions, afterMs: number): Promise<void> {
  const run = launch(options);
  const exit = await Promise.race([
    run.exited,
    new Promise<undefined>((resolve) => {
      setTimeout(() => resolve(undefined), afterMs);
    }),
  ]);
  if (exit !== undefined) {
    throw new Error(`the broker ended before it was killed (${formatExit(exit)})\n${run.output()}`);
  }
  run.child.kill("SIGKILL");
  await run.exited;
}

type Run = {
  child: ChildProcess;
  /** Start-up lines, the ready line last. */
  ready: Promise<string[]>;
  exited: Promise<Exit>;
  output(): string;
  stdout(): string;
  stderr(): string;
};

function launch(options: BrokerOptions): Run {
  const { dataDir, port = 0, args = [] } = options;
  const main = options.main ?? launcherPath();
  // Many run at the same time, and most tests need none.
  const admin = args.some((arg) => arg.includes("admin")) ? [] : ["--admin-port", "off"];
  const child = spawn(
    process.execPath,
    [main, "start", "--data", dataDir, "--port", String(port), ...admin, ...args],
    { env: { ...process.env, ...options.env }, stdio: ["ignore", "pipe", "pipe"] },
  );
  live.add(child);
  const kept: { stream: "stdout" | "stderr"; text: string }[] = [];
  const textOf = (stream?: string): string =>
    kept
      .map((piece) => (stream === undefined || piece.stream === stream ? piece.text : ""))
      .join("");
  const ready = new Promise<string[]>((resolve) => {
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      kept.push({ stream: "stdout", text });
      const lines = textOf("stdout").split("\n").slice(0, -1);
      const at = lines.findIndex((line) => readyLine.test(line));
      if (at >= 0) resolve(lines.slice(0, at + 1));
    });
  });
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    kept.push({ stream: "stderr", text });
  });
  const exited = new Promise<Exit>((resolve) => {
    child.once("error", (error) => kept.push({ stream: "stderr", text: `${error}\n` }));
    child.once("close", (code, signal) => {
      live.delete(child);
      resolve({ code, signal });
    });
  });
  return {
    child,
    ready,
    exited,
    output: () => textOf(),
    stdout: () => textOf("stdout"),
    stderr: () => textOf("stderr"),
  };
}

function createHandle(run: Run, lines: string[]): BrokerProcess {
  const { child, exited } = run;
  const match = readyLine.exec(lines.at(-1) as string) as RegExpExecArray;
  if (lines.length > startLinesMax) {
    child.kill("SIGKILL");
    throw new Error(`${lines.length} start-up lines; at most ${startLinesMax} are allowed`);
  }
  const kill = (): Promise<Exit> => {
    child.kill("SIGKILL");
    return exited;
  };
  return {
    pid: child.pid as number,
    host: match[1] as string,
    port: Number(match[2]),
    adminPort: match[4] === undefined ? undefined : Number(match[4]),
    readyMs: Number(match[5]),
    startLines: lines,
    output: run.output,
    stderr: run.stderr,
    exited,
    kill,
    async stop(withinMs = 15_000) {
      child.kill("SIGTERM");
      const late = () => {
        child.kill("SIGKILL");
        return `the broker did not stop within ${withinMs} ms of SIGTERM\n${run.output()}`;
      };
      return await within(withinMs, exited, late);
    },
    async [Symbol.asyncDispose]() {
      await kill();
    },
  };
}

/**
 * The outcome, or after a time a rejection with what `late` says. `late` may end the process, so it
 * must not run once there is an outcome.
 */
function within<T>(ms: number, outcome: Promise<T>, late: () => string): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(late())), ms);
    outcome.finally(() => clearTimeout(timer)).then(resolve, reject);
  });
}

export function formatExit(exit: Exit): string {
  return exit.signal === null ? `exit code ${exit.code}` : exit.signal;
}
