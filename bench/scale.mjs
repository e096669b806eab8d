// Cost by message against what may grow: `npm run bench:scale`.
//
//   --only backlog,topics   some series      --max 1000000   points up to this
//   --runs 3                the cheapest of so many runs counts
//   --dir bench-data        a folder on a real disk; tmpfs is refused
//   --save NAME             keeps the lines, tables and plots under this name in bench/results
//   --smoke                 the first point of each series once: shows that the bench works
//
// Cost is CPU of the broker, all its threads, by message handled. Each point has a broker of its own,
// warmed up by the same load. A growth above what a series allows is printed, not an error: machines
// differ. Lost, doubled or reordered messages are an error.

import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { brokerOf, startBroker } from "./support/brokers.mjs";
import { buildLoad, faultsOf, handledBy, runLoad } from "./support/load.mjs";
import { conditions, has, loadNow, settle } from "./support/machine.mjs";
import { linePlot } from "./support/plot.mjs";
import { scaleSeries } from "./support/scale-series.mjs";

const { values } = parseArgs({
  options: {
    only: { type: "string" },
    max: { type: "string", default: "1000000" },
    runs: { type: "string", default: "3" },
    dir: { type: "string", default: "bench-data" },
    save: { type: "string" },
    smoke: { type: "boolean", default: false },
  },
});
const isSmoke = values.smoke;
const runs = isSmoke ? 1 : Number(values.runs);
const isPinned = !isSmoke && cpus().length > 1 && has("taskset");
const cores = isPinned ? { broker: 0, load: 1 } : {};
const results = fileURLToPath(new URL("results", import.meta.url));
/** Slow points take their time: a million sessions, ten million messages. */
const timeoutS = 600;
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
    if (scaleSeries.some((series) => series.name === name)) continue;
    throw new Error(`no series "${name}": ${scaleSeries.map((one) => one.name).join(", ")}`);
  }
  return scaleSeries.filter(({ name }) => names === undefined || names.includes(name));
}

function pointsOf(series) {
  const points = series.points.filter((n) => n <= Number(values.max));
  return isSmoke ? points.slice(0, 1) : points;
}

async function run(broker, args, name) {
  const result = await runLoad(args, { broker, core: cores.load, name, timeoutS });
  const faults = faultsOf([result]);
  if (Object.keys(faults).length === 0) return result;
  isWrong = true;
  process.stderr.write(`${args.join(" ")}: ${JSON.stringify(faults)}\n`);
  return result;
}

function nextName() {
  runNumber++;
  return `r${runNumber}`;
}

/** The cheapest of the runs: what disturbs a run makes it dearer. A replay can be had once. */
async function costOf(broker, { args, same }, prepared) {
  const found = [];
  for (let left = same ? 1 : runs; left > 0; left--) {
    if (!isSmoke) await settle();
    const result = await run(broker, args, same ? prepared : nextName());
    found.push((result.broker_cpu_s * 1e6) / handledBy(result));
  }
  return Number(Math.min(...found).toFixed(2));
}

function rssKib({ pid }) {
  return Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]);
}

async function measure(series, n, dir) {
  const extra = series.settings?.(n) ?? [];
  const broker = await startBroker(brokerOf("flagstone"), { dir, core: cores.broker, extra });
  try {
    const warm = series.costs(series.points[0]).filter(({ same }) => !same);
    if (!isSmoke) for (const { args } of warm) await run(broker, args, nextName());
    const rssBefore = rssKib(broker);
    let prepared;
    for (const args of series.prepare(n)) {
      prepared = nextName();
      await run(broker, args, prepared);
    }
    const rss = rssKib(broker);
    const costUs = {};
    for (const cost of series.costs(n)) costUs[cost.name] = await costOf(broker, cost, prepared);
    const each = Math.round(((rss - rssBefore) * 1024) / n);
    const rssEach = series.perUnitRss ? { rssBytesEach: each } : {};
    emit({ series: series.name, n, costUs, ...rssEach, rssMib: Math.round(rss / 1024) });
  } finally {
    await broker.stop();
    rmSync(dir, { recursive: true, force: true });
  }
}

/** Of a cost along the points: the dearest over the cheapest before it. */
function growthOf(costs) {
  let least = Number.POSITIVE_INFINITY;
  let growth = 1;
  for (const cost of costs) {
    least = Math.min(least, cost);
    growth = Math.max(growth, cost / least);
  }
  return growth;
}

function seriesLines({ name }) {
  return lines.filter((line) => line.series === name);
}

function tableOf(series) {
  const own = seriesLines(series);
  const names = Object.keys(own[0].costUs);
  const hasRss = own[0].rssBytesEach !== undefined;
  const head = [series.name, ...names.map((name) => `${name}, us`), ...(hasRss ? ["B each"] : [])];
  const rows = own.map((line) => [
    line.n.toLocaleString("en"),
    ...names.map((name) => line.costUs[name]),
    ...(hasRss ? [line.rssBytesEach] : []),
  ]);
  const bound = series.growthMax === undefined ? "" : ` (asked: <= ${series.growthMax})`;
  const growth = names.map((name) => growthOf(own.map((line) => line.costUs[name])));
  const last = growth.map((value) => `x ${value.toFixed(2)}`);
  const all = [head, head.map(() => "---"), ...rows, [`growth${bound}`, ...last]];
  const text = all.map((cells) => `| ${cells.join(" | ")} |`).join("\n");
  return `${series.about}\n\n${text}\n`;
}

function plotOf(series) {
  const own = seriesLines(series);
  const names = Object.keys(own[0].costUs);
  const plotted = names.map((name) => ({
    name,
    points: own.map((line) => [line.n, line.costUs[name]]),
  }));
  const title = `Cost against ${series.name}`;
  return linePlot({ title, xLabel: series.name, yLabel: "CPU us/message", series: plotted });
}

function save(name, done) {
  mkdirSync(results, { recursive: true });
  const text = lines.map((line) => JSON.stringify(line)).join("\n");
  writeFileSync(join(results, `${name}.json`), `${text}\n`);
  writeFileSync(join(results, `${name}.md`), done.map(tableOf).join("\n"));
  for (const series of done) {
    writeFileSync(join(results, `${name}-${series.name}.svg`), plotOf(series));
  }
}

buildLoad();
mkdirSync(values.dir, { recursive: true });
try {
  const facts = await conditions(values.dir);
  if (facts.fileSystem === "tmpfs") {
    throw new Error(`${values.dir} is on tmpfs, which syncs nothing; give another --dir`);
  }
  emit({ scenario: "conditions", ...facts, pinned: isPinned, runs, loadAverage: loadNow() });
  const done = chosen();
  for (const series of done) {
    for (const n of pointsOf(series)) await measure(series, n, join(values.dir, series.name));
  }
  process.stdout.write(`\n${done.map(tableOf).join("\n")}`);
  if (values.save !== undefined) save(values.save, done);
} finally {
  rmSync(values.dir, { recursive: true, force: true });
}
process.exitCode = isWrong ? 1 : 0;
