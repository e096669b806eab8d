// mqttload as the benches use it: built when it is missing, run for one scenario, and what of its
// result says that a run is wrong.

import { execFileSync, spawn } from "node:child_process";
import { existsSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { pinned } from "./machine.mjs";

const program = fileURLToPath(new URL("../mqttload", import.meta.url));

/** Compiles mqttload when it is missing or older than its source. */
export function buildLoad() {
  const source = `${program}.c`;
  if (existsSync(program) && statSync(program).mtimeMs > statSync(source).mtimeMs) return;
  execFileSync("gcc", ["-O2", "-Wall", "-Wextra", "-o", program, source], { stdio: "inherit" });
}

/**
 * One run against a broker. `%RUN` in `args` stands for `name`: client ids and topics never meet those
 * of another run on the same broker. Resolves with mqttload's result.
 */
export async function runLoad(args, { broker, core, name, timeoutS = 60 }) {
  const all = [
    ...args.map((arg) => arg.replace("%RUN", name)),
    ...["-p", String(broker.port), "--pid", String(broker.pid)],
    ...["-i", name, "-T", String(timeoutS)],
  ];
  const [command, ...rest] = pinned(core, [program, ...all]);
  const child = spawn(command, rest, { stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (part) => {
    text += part;
  });
  await new Promise((resolve) => {
    child.once("close", resolve);
  });
  if (text === "") throw new Error(`mqttload ${all.join(" ")} printed nothing`);
  return JSON.parse(text);
}

/** The result whose `field` is in the middle. */
export function median(results, field) {
  const sorted = [...results].sort((a, b) => a[field] - b[field]);
  return sorted[Math.floor((sorted.length - 1) / 2)];
}

const faults = [
  "lost",
  "dup_unflagged",
  "reorder",
  "corrupt",
  "foreign",
  "nacked",
  "conn_failed",
  "conn_lost",
];

/** What makes runs wrong whatever their rate, summed; empty when all is well. */
export function faultsOf(results) {
  const sums = faults.map((fault) => [
    fault,
    results.reduce((sum, one) => sum + (one[fault] ?? 0), 0),
  ]);
  return Object.fromEntries(sums.filter(([, count]) => count > 0));
}

/** Messages that a run has handled: received, or acked where nothing is received; connections. */
export function handledBy(result) {
  return result.connected ?? Math.max(result.received ?? 0, result.acked ?? 0);
}

export function latencyOf(histogram) {
  if (histogram === undefined) return undefined;
  const { p50, p99, p999, max } = histogram;
  return { p50, p99, p999, max };
}
