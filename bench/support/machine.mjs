// The machine: what it is, which cores it has, what its disk is, and how busy it is with others.

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { cpus, loadavg, release, totalmem } from "node:os";
import { nodeDisk } from "../../dist/base/index.js";

export async function conditions(dir) {
  const { type } = await nodeDisk.space(dir);
  return {
    date: new Date().toISOString(),
    commit: textOf("git", ["rev-parse", "--short", "HEAD"]),
    node: process.version,
    cpu: cpus()[0]?.model ?? "unknown",
    cores: cpus().length,
    memoryGib: Math.round(totalmem() / 2 ** 30),
    kernel: release().split(".").slice(0, 2).join("."),
    fileSystem: type,
    loadBefore: loadNow(),
  };
}

/** Average number of processes that wanted to run in the last minute. */
export function loadNow() {
  return Number(loadavg()[0].toFixed(1));
}

/** What earlier runs wrote should be on disk before the next is measured. */
export async function settle(withinMs = 5000) {
  const until = performance.now() + withinMs;
  while (dirtyKib() > 32 * 1024 && performance.now() < until) {
    await new Promise((resolve) => {
      setTimeout(resolve, 100);
    });
  }
}

function dirtyKib() {
  try {
    const found = /^Dirty:\s+(\d+)/m.exec(readFileSync("/proc/meminfo", "utf8"));
    return Number(found?.[1] ?? 0);
  } catch {
    return 0;
  }
}

export function has(program) {
  return spawnSync("sh", ["-c", `command -v ${program}`]).status === 0;
}

/** The command, kept on one core where that is possible. */
export function pinned(core, command) {
  return core === undefined ? command : ["taskset", "-c", String(core), ...command];
}

function textOf(command, args) {
  return spawnSync(command, args, { encoding: "utf8" }).stdout?.trim() || undefined;
}
