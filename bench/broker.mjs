// Brokers beside each other under mqttload, each pinned to one core and the load to another:
//
//   npm run bench -- broker [--brokers flagstone,mosquitto] [--only store,replay] [--runs 3]
//                           [--seconds 3] [--count N] [--dir bench-data] [--save NAME]
//                           [--profile DIR]
//
// Prints one JSON line for the machine, one for what its disk gives to the log alone, and one for
// each scenario and broker: the median of the runs, with the run that gave it. The runs of the
// brokers take turns, so that a machine that drifts drifts for all. `--save` keeps the lines in
// bench/results/NAME.json. `--brokers old=PATH/dist/cli/main.js,flagstone` compares two builds.
//
// A line with `lost`, `reorder`, `corrupt` or `foreign` is wrong whatever its rate; the exit code
// says so.

import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { brokerOf, startBroker } from "./support/brokers.mjs";
import { buildLoad, faultsOf, handledBy, latencyOf, median, runLoad } from "./support/load.mjs";
import { conditions, has, loadNow, pinned, settle } from "./support/machine.mjs";
import { scenarios } from "./support/scenarios.mjs";

const { values } = parseArgs({
  options: {
    brokers: { type: "string", default: "flagstone,mosquitto" },
    only: { type: "string" },
    runs: { type: "string", default: "3" },
    seconds: { type: "string", default: "3" },
    /** Messages of a run, for brokers that are too slow for what warms others up. */
    count: { type: "string" },
    dir: { type: "string", default: "bench-data" },
    save: { type: "string" },
    profile: { type: "string" },
  },
});
const bench = fileURLToPath(new URL(".", import.meta.url));
const runs = Number(values.runs);
const seconds = Number(values.seconds);
const isPinned = cpus().length > 1 && has("taskset");
const cores = isPinned ? { broker: 0, load: 1 } : { broker: undefined, load: undefined };
const lines = [];
let isWrong = false;
let runNumber = 0;

function emit(line) {
  const text = JSON.stringify(line);
  lines.push(text);
  process.stdout.write(`${text}\n`);
}

function chosen() {
  const names = values.only?.split(",");
  for (const name of names ?? []) {
    if (!scenarios.some((scenario) => scenario.name === name)) {
      throw new Error(`no scenario "${name}": ${scenarios.map((one) => one.name).join(", ")}`);
    }
  }
  // A replay needs what `store` left; `store` alone is drained all the same.
  const wanted = (name) => names === undefined || names.includes(name);
  return scenarios.filter(
    ({ name, next }) => name !== "replay" && (wanted(name) || (next !== undefined && wanted(next))),
  );
}

function countArgs(scenario, count) {
  return [scenario.countFlag ?? "-n", String(count)];
}

function mqttload(scenario, broker, name, count) {
  const args = [...scenario.args, ...countArgs(scenario, count)];
  return runLoad(args, { broker, core: cores.load, name });
}

/** One run of a scenario and of what belongs behind it. Gives the results by scenario name. */
async function runOnce(scenario, broker, count) {
  runNumber++;
  const runName = `r${runNumber}`;
  await settle();
  const results = { [scenario.name]: await mqttload(scenario, broker, runName, count) };
  if (scenario.next !== undefined) {
    const behind = scenarios.find(({ name }) => name === scenario.next);
    results[behind.name] = await mqttload(behind, broker, runName, count);
  }
  return results;
}

/** Warms the broker up and finds how many messages make a run of the wanted length. */
async function countFor(scenario, broker) {
  if (values.count !== undefined) {
    await runOnce(scenario, broker, Number(values.count));
    return Number(values.count);
  }
  const warm = await runOnce(scenario, broker, scenario.countMin);
  if (scenario.ratePinned !== undefined) return scenario.ratePinned * (seconds + 1);
  const again = await runOnce(scenario, broker, scenario.countMin * 2);
  const field = scenario.name.startsWith("fanout") ? "pub_per_s" : scenario.rate;
  const rate = Math.max(warm[scenario.name][field], again[scenario.name][field]);
  const count = Math.round(rate * seconds);
  return Math.min(scenario.countMax ?? 4_000_000, Math.max(scenario.countMin, count));
}

function report(scenario, broker, results) {
  const middle = median(results, scenario.rate);
  const found = faultsOf(results);
  if (Object.keys(found).length > 0) isWrong = true;
  const handled = handledBy(middle);
  const busy = (field) => Number((middle[field] / middle.seconds).toFixed(2));
  emit({
    scenario: scenario.name,
    broker: broker.name,
    rate: middle[scenario.rate],
    unit: scenario.unit,
    runs: results.map((one) => one[scenario.rate]),
    cpuUsPerMessage: Number(((middle.broker_cpu_s * 1e6) / handled).toFixed(2)),
    brokerBusy: busy("broker_cpu_s"),
    loadBusy: busy("load_cpu_s"),
    rssMib: Math.round(middle.broker_rss_kb / 1024),
    ...found,
    latencyUs: latencyOf(middle.latency_us),
    ackUs: latencyOf(middle.ack_us),
    loadAverage: loadNow(),
  });
}

async function measure(scenario, brokers, dir) {
  const running = [];
  try {
    for (const broker of brokers) {
      const profileDir = values.profile && join(values.profile, scenario.name);
      running.push(await startBroker(broker, { dir, core: cores.broker, profileDir }));
    }
    const counts = new Map();
    for (const broker of running) counts.set(broker, await countFor(scenario, broker));
    const results = new Map(running.map((broker) => [broker, []]));
    for (let run = 0; run < runs; run++) {
      for (const broker of running) {
        results.get(broker).push(await runOnce(scenario, broker, counts.get(broker)));
      }
    }
    const names = [scenario.name, ...(scenario.next === undefined ? [] : [scenario.next])];
    for (const name of names) {
      const part = scenarios.find((one) => one.name === name);
      for (const broker of running) {
        report(
          part,
          broker,
          results.get(broker).map((one) => one[name]),
        );
      }
    }
  } finally {
    for (const broker of running) await broker.stop();
    rmSync(dir, { recursive: true, force: true });
  }
}

/** What the disk gives to the write-ahead log with nothing around it, on the broker's core. */
function logOnly(dir) {
  const command = [process.execPath, join(bench, "log.js"), "--dir", dir, "--seconds", "3"];
  const [program, ...args] = pinned(cores.broker, command);
  const windows = ["400", "8192"];
  for (const outstanding of windows) {
    const text = execFileSync(program, [...args, "--outstanding", outstanding], {
      encoding: "utf8",
    });
    emit(JSON.parse(text));
  }
}

buildLoad();
const brokers = values.brokers
  .split(",")
  .map(brokerOf)
  .filter((broker) => broker !== undefined);
mkdirSync(values.dir, { recursive: true });
const facts = await conditions(values.dir);
if (facts.fileSystem === "tmpfs") {
  process.stderr.write(`${values.dir} is on tmpfs, which syncs nothing; give another --dir\n`);
  process.exit(2);
}
emit({ scenario: "conditions", ...facts, pinned: isPinned, runs, seconds });
try {
  if (values.only === undefined) logOnly(join(values.dir, "log-only"));
  for (const scenario of chosen())
    await measure(scenario, brokers, join(values.dir, scenario.name));
} finally {
  rmSync(values.dir, { recursive: true, force: true });
}
if (values.save !== undefined) {
  writeFileSync(join(bench, "results", `${values.save}.json`), `${lines.join("\n")}\n`);
}
process.exitCode = isWrong ? 1 : 0;
