// The store alone on a real disk (tmpfs is refused), one JSON line a scenario: appends beside two
// baselines of the same bytes, reads, transactions, starts, a drop. Each in a process of its own.
//
//   npm run bench -- store [--dir bench-store-data] [--seconds 3] [--outstanding 8192]
//                          [--only append,scans] [--gigabytes 1] [--restartBytes 1024] [--profile DIR] [--save NAME]
//                          [--fill json,random] [--bytes 100,1024] [--streams 1,16,1000]
//
// - `levelBaseline`: chained batches of blocks of 256 TTVs into LevelDB, 16 MiB of write buffer, no sync.
// - `logBaseline`: the log alone, a record for each TTV, acked when it is synced.
// - `append`: the store, which does both, message by message. Every ack behind its sync.
// - `appendRuns`: the same by runs of 256 messages of a publisher, `topics` of all streams in turn.
// - `scans` of 4 million TTVs, the cache of decoded blocks off, the files in the cache of the system.
// - `restart`: of that many gigabytes, after a checkpoint and after kill -9; `drop`: of the same.

import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { conditions, settle } from "./support/machine.mjs";

const { values } = parseArgs({
  options: {
    dir: { type: "string", default: "bench-store-data" },
    seconds: { type: "string", default: "3" },
    outstanding: { type: "string", default: "8192" },
    only: { type: "string" },
    gigabytes: { type: "string", default: "1" },
    restartBytes: { type: "string", default: "1024" },
    ttvs: { type: "string", default: "4000000" },
    fill: { type: "string", default: "json,random" },
    bytes: { type: "string", default: "100,1024" },
    streams: { type: "string", default: "1,16,1000" },
    profile: { type: "string" },
    save: { type: "string" },
  },
});
const { dir } = values;
const runMs = Number(values.seconds) * 1000;
const outstanding = Number(values.outstanding);
const only = values.only?.split(",");
const child = fileURLToPath(new URL("./support/store-child.mjs", import.meta.url));
const lines = [];

/** Runs one scenario; `shown` is what of its options belongs into the line. */
async function run(name, shown, options = {}) {
  await settle();
  const profile =
    values.profile === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${values.profile}/${name}`];
  const given = JSON.stringify({ dir, runMs, outstanding, ...shown, ...options });
  const result = spawnSync(process.execPath, [...profile, child, name, given], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, UV_THREADPOOL_SIZE: process.env.UV_THREADPOOL_SIZE ?? "8" },
  });
  const line = { scenario: name, ...shown, ...JSON.parse(result.stdout) };
  lines.push(line);
  process.stdout.write(`${JSON.stringify(line)}\n`);
  return line;
}

const numbers = (list) => list.split(",").map(Number);
const wants = (name) => only === undefined || only.includes(name);

function empty() {
  rmSync(dir, { recursive: true, force: true });
  mkdirSync(dir, { recursive: true });
}

async function appends() {
  for (const fill of values.fill.split(",")) {
    for (const bytes of numbers(values.bytes)) {
      for (const streams of numbers(values.streams)) {
        const shown = { fill, bytes, streams };
        const rates = {};
        for (const name of ["levelBaseline", "logBaseline", "append", "appendRuns"]) {
          if (streams !== 16 && name === "logBaseline") continue;
          empty();
          const line = await run(name, shown);
          rates[name] = line.perSecond;
          if (name.startsWith("append")) {
            line.ofLevelBaseline = Number((rates[name] / rates.levelBaseline).toFixed(2));
          }
        }
      }
    }
  }
}

async function reads() {
  empty();
  const count = Number(values.ttvs);
  await run("fill", { fill: "json", bytes: 100, streams: 16, count });
  await run("scans", { count });
}

async function starts() {
  const bytes = Number(values.restartBytes);
  const count = Math.round((Number(values.gigabytes) * 2 ** 30) / bytes);
  // One slab, so that its drop is that of all these gigabytes.
  const settings = { generationBytesMax: 2 ** 50 };
  empty();
  await run("fill", { fill: "json", bytes, streams: 16, count }, { settings, dies: true });
  await run("restart", { after: "kill -9" }, { settings });
  await run("restart", { after: "a start" }, { settings });
  await run("drop", {}, { settings });
}

mkdirSync(dir, { recursive: true });
const machine = await conditions(dir);
if (machine.fileSystem === "tmpfs") {
  process.stderr.write(`${dir} is on tmpfs, which syncs nothing; give another --dir\n`);
  process.exit(2);
}
process.stdout.write(`${JSON.stringify({ machine })}\n`);
if (wants("append")) await appends();
if (wants("scans")) await reads();
if (wants("transactions")) {
  empty();
  await run("transactions", {});
}
if (wants("restart")) await starts();
rmSync(dir, { recursive: true, force: true });
if (values.save !== undefined) {
  const path = new URL(`./results/${values.save}.json`, import.meta.url);
  writeFileSync(path, `${JSON.stringify({ machine, lines }, null, 2)}\n`);
}
