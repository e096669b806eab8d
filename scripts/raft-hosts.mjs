// npm run raft:hosts -- [--from S] [--seeds K] [--steps N] [--jobs J] [--twice] [--coverage]
//                       [--json] [--portion P]
// npm run raft:hosts -- --sum FILE...
// Runs K seeds of the whole Raft host on simulated machines. `--json` prints a tally a portion as a
// line, and `--sum` adds such lines up. Exit codes: 0 all well, 1 a promise was broken, a hash
// differed or (over 400 seeds) a coverage counter is zero, 2 usage.

import { availableParallelism } from "node:os";
import { isMainThread, parentPort, workerData } from "node:worker_threads";
import {
  addHostCoverage,
  createHostCoverage,
  hostCoverageHelp,
  simulateHosts,
} from "../dist/raft/index.js";
import {
  formatTally,
  missingStates,
  parseWords,
  readTallies,
  runPieces,
  sumTallies,
} from "./raft-seeds.mjs";

const traceShown = 60;
/** Fewer seeds need not reach every state. */
const coverageSeedsMin = 400;

if (isMainThread) await main();
else await runSlice(workerData);

function usage(problem) {
  console.error(problem);
  console.error("usage: npm run raft:hosts -- [--from S] [--seeds K] [--steps N] [--jobs J]");
  console.error("       [--twice] [--coverage] [--json] [--portion P]");
  console.error("       npm run raft:hosts -- --sum FILE...");
  process.exit(2);
}

async function main() {
  const options = parseWords(process.argv.slice(2), {
    numbers: { seed: 1, seeds: 100, steps: 300, jobs: availableParallelism(), portion: 0 },
    switches: ["twice", "coverage", "json"],
    usage,
  });
  const tallies = options.sum ? readTallies(options.sum) : [];
  if (!options.sum) {
    for await (const tally of runPieces(import.meta.url, { ...options, kind: "hosts" })) {
      tallies.push(tally);
      if (options.json) console.log(JSON.stringify(tally));
      else if (options.portion) console.log(formatTally(tally, []));
    }
  }
  const total = sumTallies(tallies);
  if (options.coverage) printCoverage(total.coverage);
  for (const failure of total.failures) await report(total, failure);
  const missing = missingStates(total, hostCoverageHelp, coverageSeedsMin);
  for (const name of missing) console.log(`never reached: ${name} (${hostCoverageHelp[name]})`);
  console.log(formatTally(total, missing));
  process.exit(total.failed > 0 || missing.length > 0 ? 1 : 0);
}

async function runSlice({ seed, seeds, steps, twice, job, jobs }) {
  const coverage = createHostCoverage();
  const failures = [];
  let events = 0;
  let hash = 0;
  for (let at = seed + job; at < seed + seeds; at += jobs) {
    const result = await simulateHosts({ seed: at, steps });
    events += result.events;
    hash = (hash + result.hash) % 2 ** 32;
    addHostCoverage(coverage, result.coverage);
    const { failure } = result;
    if (failure) failures.push({ seed: at, message: `${failure.rule}: ${failure.message}` });
    else if (twice && (await simulateHosts({ seed: at, steps })).hash !== result.hash) {
      failures.push({ seed: at, message: "equal seeds: the second run has another hash" });
    }
  }
  parentPort.postMessage({ coverage, failures, events, hash });
}

async function report({ steps }, { seed, message }) {
  const { trace } = await simulateHosts({ seed, steps, traceMax: traceShown });
  console.log(`seed ${seed}: ${message}`);
  for (const line of trace) console.log(`    ${line}`);
  console.log(`  repeat: npm run raft:hosts -- --from ${seed} --seeds 1 --steps ${steps}`);
}

function printCoverage(coverage) {
  for (const [name, help] of Object.entries(hostCoverageHelp)) {
    console.log(`${String(coverage[name] ?? 0).padStart(10)}  ${name}: ${help}`);
  }
}
