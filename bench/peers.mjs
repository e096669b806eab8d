// Flagstone beside its peers, on the same disk, in the same run: `npm run bench:peers`.
//
//   --brokers flagstone,mosquitto,nats,aedes   who takes part; peers that are missing are installed
//   --only qos1,store     some scenarios     --runs 3      --seconds 2
//   --cores pinned,free   broker on one core and load on the other, both free, or both
//   --dir bench-data      a folder on a real disk; tmpfs is refused
//   --save NAME           keeps the lines, a table and a plot under this name in bench/results
//   --smoke               every scenario once and small: shows that the bench works, not how fast
//
// Brokers take turns run by run. A line holds the median run, all rates, and what that run cost. A
// line with lost, doubled or reordered messages is wrong whatever its rate, and ends the bench with 1.

import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { brokerOf, startBroker } from "./support/brokers.mjs";
import { diskCounters, diskWork, logSyncs } from "./support/disk.mjs";
import { installPeers } from "./support/install-peers.mjs";
import { buildLoad, faultsOf, handledBy, latencyOf, median, runLoad } from "./support/load.mjs";
import { conditions, has, loadNow, settle } from "./support/machine.mjs";
import { peersPlot, peersTable } from "./support/peer-report.mjs";
import { peerScenarios } from "./support/peer-scenarios.mjs";

const { values } = parseArgs({
  options: {
    brokers: { type: "string", default: "flagstone,mosquitto,nats,aedes" },
    only: { type: "string" },
    runs: { type: "string", default: "3" },
    seconds: { type: "string", default: "2" },
    cores: { type: "string", default: "pinned,free" },
    dir: { type: "string", default: "bench-data" },
    save: { type: "string" },
    smoke: { type: "boolean", default: false },
  },
});
const isSmoke = values.smoke;
const runs = isSmoke ? 1 : Number(values.runs);
const seconds = isSmoke ? 0.1 : Number(values.seconds);
const countMax = 2_000_000;
const smokeCountMax = 2000;
const results = fileURLToPath(new URL("results", import.meta.url));
const lines = [];
let isWrong = false;
let runNumber = 0;

function emit(line) {
  lines.push(line);
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

function chosen() {
  const names = values.only?.split(",");
  for (const name of names ?? []) {
    if (!peerScenarios.some((scenario) => scenario.name === name)) {
      const known = peerScenarios.map((one) => one.name).join(", ");
      throw new Error(`no scenario "${name}": ${known}`);
    }
  }
  const behind = new Set(peerScenarios.map(({ next }) => next));
  const wanted = (name) => names === undefined || names.includes(name);
  return peerScenarios.filter(
    ({ name, next }) => !behind.has(name) && (wanted(name) || (next && wanted(next))),
  );
}

/** One measured call, with what the disk and the log did meanwhile. */
async function call(scenario, broker, core, name, count) {
  const args = [...scenario.args, scenario.countFlag ?? "-n", String(count)];
  const disk = diskCounters(broker.data);
  const syncs = await logSyncs(broker);
  const result = await runLoad(args, { broker, core, name });
  const syncsAfter = await logSyncs(broker);
  const work = diskWork(disk, diskCounters(broker.data));
  return { ...result, ...work, syncs: syncs === undefined ? undefined : syncsAfter - syncs };
}

/** A scenario and the one that belongs behind it, once. Results by scenario name. */
async function runOnce(scenario, broker, core, count) {
  runNumber++;
  const name = `r${runNumber}`;
  if (!isSmoke) await settle();
  const found = { [scenario.name]: await call(scenario, broker, core, name, count) };
  const behind = peerScenarios.find((one) => one.name === scenario.next);
  if (behind !== undefined) found[behind.name] = await call(behind, broker, core, name, count);
  return found;
}

/** Warms the broker up and finds how many messages make a run of the wanted length. */
async function countFor(scenario, broker, core) {
  const { countMin } = scenario;
  if (isSmoke) return Math.min(countMin, smokeCountMax);
  const warm = await runOnce(scenario, broker, core, countMin);
  if (scenario.ratePinned !== undefined) return scenario.ratePinned * (seconds + 1);
  if (scenario.countMax === countMin) return countMin;
  const field = scenario.countRate ?? scenario.rate;
  const middle = Math.max(countMin, Math.round((warm[scenario.name][field] * seconds) / 3));
  const again = await runOnce(scenario, broker, core, middle);
  const rate = Math.max(warm[scenario.name][field], again[scenario.name][field]);
  return Math.min(countMax, Math.max(countMin, Math.round(rate * seconds)));
}

function report(scenario, broker, place, found) {
  const middle = median(found, scenario.rate);
  const faults = faultsOf(found);
  if (Object.keys(faults).length > 0) isWrong = true;
  const handled = handledBy(middle);
  const each = (value, digits = 2) =>
    value === undefined ? undefined : Number((value / handled).toFixed(digits));
  emit({
    scenario: scenario.name,
    broker: broker.name,
    place,
    rate: middle[scenario.rate],
    rates: found.map((one) => one[scenario.rate]),
    cpuUs: each(middle.broker_cpu_s * 1e6),
    writtenBytes: each(middle.writtenBytes, 0),
    diskFlushes: middle.flushes,
    syncs: middle.syncs,
    acksPerSync: middle.syncs ? Number(((middle.acked ?? 0) / middle.syncs).toFixed(1)) : undefined,
    brokerBusy: Number((middle.broker_cpu_s / middle.seconds).toFixed(2)),
    loadBusy: Number((middle.load_cpu_s / middle.seconds).toFixed(2)),
    rssMib: Math.round(middle.broker_rss_kb / 1024),
    latencyUs: latencyOf(middle.latency_us),
    ackUs: latencyOf(middle.ack_us),
    ...faults,
    loadAverage: loadNow(),
  });
}

async function measure(scenario, brokers, place, dir) {
  const cores = place === "pinned" ? { broker: 0, load: 1 } : {};
  const running = [];
  try {
    for (const broker of brokers)
      running.push(await startBroker(broker, { dir, core: cores.broker }));
    const counts = new Map();
    for (const broker of running) {
      counts.set(broker, await countFor(scenario, broker, cores.load));
    }
    const found = new Map(running.map((broker) => [broker, []]));
    for (let run = 0; run < runs; run++) {
      for (const broker of running) {
        found.get(broker).push(await runOnce(scenario, broker, cores.load, counts.get(broker)));
      }
    }
    for (const name of [scenario.name, scenario.next]) {
      const part = peerScenarios.find((one) => one.name === name);
      if (part === undefined) continue;
      for (const broker of running) {
        const own = found.get(broker).map((one) => one[name]);
        report(part, broker, place, own);
      }
    }
  } finally {
    for (const broker of running) await broker.stop();
    rmSync(dir, { recursive: true, force: true });
  }
}

function save(name) {
  mkdirSync(results, { recursive: true });
  const at = (ending) => join(results, `${name}.${ending}`);
  writeFileSync(at("json"), `${lines.map((line) => JSON.stringify(line)).join("\n")}\n`);
  writeFileSync(at("md"), peersTable(lines));
  writeFileSync(at("svg"), peersPlot(lines));
}

buildLoad();
const names = values.brokers.split(",");
if (!isSmoke) installPeers(names);
const brokers = names.map(brokerOf).filter((broker) => broker !== undefined);
mkdirSync(values.dir, { recursive: true });
try {
  const facts = await conditions(values.dir);
  if (facts.fileSystem === "tmpfs") {
    throw new Error(`${values.dir} is on tmpfs, which syncs nothing; give another --dir`);
  }
  emit({ scenario: "conditions", ...facts, runs, seconds });
  const canPin = cpus().length > 1 && has("taskset");
  const places = isSmoke ? ["free"] : values.cores.split(",");
  for (const place of places.filter((one) => one !== "pinned" || canPin)) {
    for (const scenario of chosen()) {
      await measure(scenario, brokers, place, join(values.dir, scenario.name));
    }
  }
  process.stdout.write(`\n${peersTable(lines)}`);
  if (values.save !== undefined) save(values.save);
} finally {
  rmSync(values.dir, { recursive: true, force: true });
}
process.exitCode = isWrong ? 1 : 0;
