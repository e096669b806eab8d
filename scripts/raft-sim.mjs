// npm run raft:sim -- [--seed S] [--steps N] [--seeds K] [--jobs J] [--without a,b] [--flaw NAME]
//                     [--twice] [--coverage] [--shrink]
// Runs K seeds from S on, N events each before healing. Exit codes: 0 all well, 1 a promise was
// broken, a hash differed or (over 1,000 seeds) a coverage counter is zero, 2 usage.

import { availableParallelism } from "node:os";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import {
  addCoverage,
  coverageHelp,
  createCoverage,
  faultNames,
  flawNames,
  formatCommand,
  shrink,
  simulate,
  uncovered,
} from "../dist/raft/index.js";

const failuresShownMax = 5;
const traceShown = 40;
/** Fewer seeds need not reach every state. */
const coverageSeedsMin = 1000;

if (isMainThread) await main();
else runSlice(workerData);

function usage(problem) {
  console.error(
    `${problem}\nusage: npm run raft:sim -- [--seed S] [--steps N] [--seeds K] [--jobs J]`,
  );
  console.error("       [--without FAULT,...] [--flaw NAME] [--twice] [--coverage] [--shrink]");
  console.error(`faults: ${faultNames.join(" ")}\nflaws: ${flawNames.join(" ")}`);
  process.exit(2);
}

function parseArguments(words) {
  const options = { seed: 1, steps: 1500, seeds: 1000, jobs: availableParallelism(), without: [] };
  const switches = { twice: false, coverage: false, shrink: false };
  for (let at = 0; at < words.length; at++) {
    const name = words[at].replace(/^--/, "");
    if (name in switches) {
      switches[name] = true;
      continue;
    }
    const value = words[++at];
    if (["seed", "steps", "seeds", "jobs"].includes(name)) {
      if (!/^\d+$/.test(value ?? "")) usage(`--${name} needs a number`);
      options[name] = Number(value);
    } else if (name === "without") {
      options.without = (value ?? "").split(",").filter(Boolean);
      const unknown = options.without.find((each) => !faultNames.includes(each));
      if (unknown !== undefined) usage(`unknown fault ${unknown}`);
    } else if (name === "flaw") {
      if (!flawNames.includes(value)) usage(`unknown flaw ${value}`);
      options.flaw = value;
    } else usage(`unknown option ${words[at - 1]}`);
  }
  return { ...options, ...switches };
}

async function main() {
  const options = parseArguments(process.argv.slice(2));
  const started = performance.now();
  const jobs = Math.max(1, Math.min(options.jobs, options.seeds));
  const parts = await Promise.all(
    Array.from({ length: jobs }, (_, job) => runWorker({ ...options, job, jobs })),
  );
  const coverage = createCoverage();
  for (const part of parts) addCoverage(coverage, part.coverage);
  const events = parts.reduce((sum, part) => sum + part.events, 0);
  const hash = parts.reduce((sum, part) => (sum + part.hash) % 2 ** 32, 0);
  const failures = parts.flatMap((part) => part.failures).sort((a, b) => a.seed - b.seed);
  if (options.coverage) printCoverage(coverage);
  for (const failure of failures.slice(0, failuresShownMax)) report(options, failure);
  const seconds = (performance.now() - started) / 1000;
  const missing = options.seeds >= coverageSeedsMin && !options.flaw ? uncovered(coverage) : [];
  for (const name of missing) console.log(`never reached: ${name} (${coverageHelp[name]})`);
  console.log(
    `${options.seeds} seeds, ${events} events, ${failures.length} failures, ` +
      `${missing.length} states never reached, hash ${hash.toString(16)}, ` +
      `${seconds.toFixed(1)} s, ${Math.round(options.seeds / seconds)} seeds/s`,
  );
  process.exit(failures.length > 0 || missing.length > 0 ? 1 : 0);
}

function runWorker(data) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL(import.meta.url), { workerData: data });
    worker.once("message", resolve);
    worker.once("error", reject);
  });
}

function runSlice({ seed, seeds, steps, without, flaw, twice, job, jobs }) {
  const coverage = createCoverage();
  const failures = [];
  let events = 0;
  let hash = 0;
  for (let at = seed + job; at < seed + seeds; at += jobs) {
    const options = { seed: at, steps, without: new Set(without), ...(flaw ? { flaw } : {}) };
    const result = simulate(options);
    events += result.events;
    hash = (hash + result.hash) % 2 ** 32;
    addCoverage(coverage, result.coverage);
    if (result.failure) failures.push({ seed: at, message: result.failure.message });
    else if (twice && simulate(options).hash !== result.hash) {
      failures.push({ seed: at, message: "equal seeds: the second run has another hash" });
    }
  }
  parentPort.postMessage({ coverage, failures, events, hash });
}

function report(options, { seed, message }) {
  const { steps, flaw } = options;
  const base = { seed, steps, without: new Set(options.without), ...(flaw ? { flaw } : {}) };
  const run = options.shrink ? shrink(base).options : base;
  const { trace, failure, events, swarm } = simulate({ ...run, traceMax: traceShown });
  console.log(`seed ${seed}: ${failure?.message ?? message}`);
  console.log(`  at event ${events}, faults ${[...swarm.faults].join(",")}`);
  for (const line of trace) console.log(`    ${line}`);
  console.log(`  repeat: ${formatCommand(run)}`);
}

function printCoverage(coverage) {
  for (const [name, help] of Object.entries(coverageHelp)) {
    console.log(`${String(coverage[name]).padStart(10)}  ${name}: ${help}`);
  }
}
