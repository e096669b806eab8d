// Runs the commands of a document and compares what they print with what the document shows, so that
// a tour cannot lie. A fenced block ```console runs when the line above it is one of
//
//   <!-- run -->              each command in turn, to its end
//   <!-- run background -->   one command that goes on; the lines shown must come, then the tour goes
//                             on beside it; it is stopped at the end of the document
//
// In a block, `$ ` starts a command (`\` at the end goes on in the next line), other lines are its
// output, standard error included. `...` in a line stands for anything, and alone for any lines.

import { type ChildProcess, spawn } from "node:child_process";

export type DocumentCommand = {
  readonly line: number;
  readonly mode: "foreground" | "background";
  readonly command: string;
  readonly output: readonly string[];
};

export type RunOptions = {
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Changes commands and output alike, such as a port that is taken. */
  readonly replace?: (text: string) => string;
  /** For one command. Default 60 s. */
  readonly withinMs?: number;
};

const marker = /^<!-- run( background)? -->$/;

export function parseDocument(text: string): DocumentCommand[] {
  const lines = text.split("\n");
  const commands: DocumentCommand[] = [];
  lines.forEach((content, index) => {
    const found = marker.exec(content.trim());
    if (found === null) {
      if (/^<!--\s*run/.test(content))
        throw new Error(`line ${index + 1}: not a marker: ${content}`);
      return;
    }
    const mode = found[1] === undefined ? "foreground" : "background";
    const block = parseBlock(lines, index + 1, mode);
    if (mode === "background" && block.length !== 1) {
      throw new Error(
        `line ${index + 1}: ${block.length} commands in the background; one is right`,
      );
    }
    commands.push(...block);
  });
  return commands;
}

function parseBlock(
  lines: readonly string[],
  start: number,
  mode: DocumentCommand["mode"],
): DocumentCommand[] {
  if (lines[start] !== "```console") {
    throw new Error(`line ${start + 1}: a \`\`\`console block must follow the marker`);
  }
  const commands: Array<{ line: number; mode: typeof mode; command: string; output: string[] }> =
    [];
  let goesOn = false;
  for (let at = start + 1; lines[at] !== "```"; at++) {
    const content = lines[at];
    if (content === undefined) throw new Error(`line ${start + 1}: the block does not end`);
    const last = commands.at(-1);
    if (goesOn && last !== undefined) last.command += `\n${content}`;
    else if (content.startsWith("$ ")) {
      commands.push({ line: at + 1, mode, command: content.slice(2), output: [] });
    } else if (last === undefined) throw new Error(`line ${at + 1}: output before a command`);
    else last.output.push(content);
    goesOn = content.endsWith("\\") && (goesOn || content.startsWith("$ "));
  }
  return commands;
}

/** Whether printed text is what a document shows; blank lines at the ends do not count. */
export function matchesOutput(shown: readonly string[], printed: string): boolean {
  const want = trimLines(shown);
  const have = trimLines(printed.replaceAll("\r\n", "\n").split("\n"));
  const match = (w: number, h: number): boolean => {
    if (w === want.length) return h === have.length;
    if (want[w] === "...") return match(w + 1, h) || (h < have.length && match(w, h + 1));
    return (
      h < have.length && matchesLine(want[w] as string, have[h] as string) && match(w + 1, h + 1)
    );
  };
  return match(0, 0);
}

function matchesLine(shown: string, printed: string): boolean {
  const parts = shown
    .trimEnd()
    .split("...")
    .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}\\s*$`).test(printed);
}

function trimLines(lines: readonly string[]): string[] {
  const kept = [...lines];
  while (kept[0]?.trim() === "") kept.shift();
  while (kept.at(-1)?.trim() === "") kept.pop();
  return kept;
}

type Running = { child: ChildProcess; output: () => string; ended: Promise<number | null> };

/** Runs all marked commands in order; throws at the first that differs. Returns how many ran. */
export async function runDocument(text: string, options: RunOptions): Promise<number> {
  const replace = options.replace ?? ((same: string) => same);
  const background: Running[] = [];
  const commands = parseDocument(text);
  try {
    for (const { line, mode, command, output } of commands) {
      const run = start(replace(command), options);
      const shown = output.map(replace);
      if (mode === "background") background.push(run);
      const failure =
        mode === "background"
          ? await awaitLines(run, shown, options)
          : await finish(run, shown, options);
      if (failure !== undefined) {
        const parts = [`line ${line}: ${failure}`, `$ ${command}`, "--- shown", ...shown];
        throw new Error([...parts, "--- printed", run.output()].join("\n"));
      }
    }
  } finally {
    for (const run of background.reverse()) await stop(run);
  }
  return commands.length;
}

function start(command: string, options: RunOptions): Running {
  const child = spawn("bash", ["-c", command], {
    cwd: options.cwd,
    env: { ...process.env, NO_COLOR: "1", ...options.env },
    stdio: ["ignore", "pipe", "pipe"],
    // A group of its own, so that what the command starts ends with it.
    detached: true,
  });
  let printed = "";
  const take = (text: string): void => {
    printed += text;
  };
  child.stdout.setEncoding("utf8").on("data", take);
  child.stderr.setEncoding("utf8").on("data", take);
  const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
  return { child, output: () => printed, ended };
}

async function finish(run: Running, shown: readonly string[], options: RunOptions) {
  const code = await Promise.race([run.ended, after(options.withinMs ?? 60_000)]);
  if (code === late) {
    await stop(run);
    return "did not end in time";
  }
  if (code !== 0) return `ended with exit code ${String(code)}`;
  return matchesOutput(shown, run.output()) ? undefined : "printed something else";
}

async function awaitLines(run: Running, shown: readonly string[], options: RunOptions) {
  const deadline = performance.now() + (options.withinMs ?? 60_000);
  while (!matchesOutput([...shown, "..."], run.output())) {
    if (run.child.exitCode !== null) return `ended with exit code ${run.child.exitCode}`;
    if (performance.now() > deadline) return "did not print that in time";
    await after(20);
  }
  return undefined;
}

/** SIGTERM to the group of our own child; SIGKILL when that does not end it. */
async function stop(run: Running): Promise<void> {
  const signal = (name: NodeJS.Signals): void => {
    try {
      process.kill(-(run.child.pid as number), name);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error; // gone already is fine
    }
  };
  signal("SIGTERM");
  if ((await Promise.race([run.ended, after(10_000)])) === late) signal("SIGKILL");
  await run.ended;
}

const late = Symbol("late");

function after(ms: number): Promise<typeof late> {
  return new Promise((resolve) => {
    setTimeout(() => resolve(late), ms).unref();
  });
}
