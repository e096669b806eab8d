// npm run raft:hosts -- [--seed S] [--seeds K] [--steps N] [--jobs J] [--twice] [--coverage]
// Runs K seeds of the whole Raft host on simulated machines. Exit codes: 0 all well, 1 a promise was
// broken, a hash differed or (over 400 seeds) a coverage counter is zero, 2 usage.

import { availableParallelism } from "node:os";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import {
  addHostCoverage,
  createHostCoverage,
  hostCoverageHelp,
  simulateHosts,
  uncoveredHosts,
} from "../dist/raft/index.js";

const traceShown = 60;
/** Fewer seeds need not reach every state. */
const coverageSeedsMin = 400;

if (isMainThread) await main();
else await runSlice(workerData);

function parseArguments(words) {
  const options = { seed: 1, seeds: 100, steps: 300, jobs: availableParallelism() };
  const switches = { twice: false, coverage: false };
  for (let at = 0; at < words.length; at++) {
    const name = words[at].replace(/^--/, "");
    if (name in switches) switches[name] = true;
    else if (name in options && /^\d+$/.test(words[at + 1] ?? ""))
      options[name] = Number(words[++at]);
    else {
      console.error("usage: npm run raft:hosts -- [--seed S] [--seeds K] [--steps N] [--jobs J]");
      console.error("       [--twice] [--coverage]");
      process.exit(2);
    }
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
  const coverage = createHostCoverage();
  for (const part of parts) addHostCoverage(coverage, part.coverage);
  const failures = parts.flatMap((part) => part.failures).sort((a, b) => a.seed - b.seed);
  if (options.coverage) {
    for (const [name, help] of Object.entries(hostCoverageHelp)) {
      console.log(`${String(coverage[name]).padStart(10)}  ${name}: ${help}`);
    }
  }
  for (const { seed, message, trace } of failures) {
    console.log(`seed ${seed}: ${message}`);
    for (const line of trace) console.log(`    ${line}`);
    console.log(
      `  repeat: npm run raft:hosts -- --seed ${seed} --seeds 1 --steps ${options.steps}`,
    );
  }
  const missing = options.seeds >= coverageSeedsMin ? uncoveredHosts(coverage) : [];
  for (const name of missing) console.log(`never reached: ${name} (${hostCoverageHelp[name]})`);
  const seconds = (performance.now() - started) / 1000;
  console.log(
    `${options.seeds} seeds, ${failures.length} failures, ${missing.length} states never reached, ` +
      `${seconds.toFixed(1)} s`,
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

async function runSlice({ seed, seeds, steps, twice, job, jobs }) {
  const coverage = createHostCoverage();
  const failures = [];
  for (let at = seed + job; at < seed + seeds; at += jobs) {
    const result = await simulateHosts({ seed: at, steps, traceMax: traceShown });
    addHostCoverage(coverage, result.coverage);
    const { failure, trace } = result;
    if (failure) failures.push({ seed: at, message: `${failure.rule}: ${failure.message}`, trace });
    else if (twice && (await simulateHosts({ seed: at, steps })).hash !== result.hash) {
      const message = "equal seeds: the second run has another hash";
      failures.push({ seed: at, message, trace: [] });
    }
  }
  parentPort.postMessage({ coverage, failures });
}
