// The benches work: small, on any machine, and without a look at a clock. What they bound by a count is
// held to it: hot paths that allocate for each message would show here.

import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));

type Line = Record<string, unknown> & { scenario?: string; series?: string };

type Result = { readonly code: number; readonly lines: Line[] };

async function bench(name: string, args: readonly string[]): Promise<Result> {
  // In the checkout: benches refuse a memory file system, which a temporary folder may be on.
  const all = [`bench/${name}.mjs`, "--dir", `bench-data/smoke-${name}`, ...args];
  const child = spawn(process.execPath, all, {
    cwd: root,
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (part: string) => {
    text += part;
  });
  const code = await new Promise<number>((resolve) => child.once("close", resolve));
  const lines = text.split("\n").filter((line) => line.startsWith("{"));
  return { code, lines: lines.map((line) => JSON.parse(line) as Line) };
}

test("bench:peers runs every scenario without a fault", { timeout: 300_000 }, async () => {
  const { code, lines } = await bench("peers", ["--smoke", "--brokers", "flagstone"]);
  expect(code).toBe(0);
  expect(lines.length).toBeGreaterThan(18);
  for (const line of lines.slice(1)) expect(line.rate, line.scenario).toBeGreaterThan(0);
});

test("bench:scale runs the first point of every series", { timeout: 300_000 }, async () => {
  const { code, lines } = await bench("scale", ["--smoke"]);
  expect(code).toBe(0);
  expect(lines.slice(1).map(({ series }) => series)).toEqual([
    "backlog",
    "sessions",
    "topics",
    "subscribers",
    "connections",
    "shards",
  ]);
});

test("no object is made for a plain message", { timeout: 300_000 }, async () => {
  const args = ["--messages", "200000", "--only", "qos0,qos1,fanout"];
  const { code, lines } = await bench("allocations", args);
  expect(lines.map(({ scenario }) => scenario)).toEqual(["qos0", "qos1", "fanout"]);
  expect(code, JSON.stringify(lines)).toBe(0);
});
