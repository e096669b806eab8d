// npm run raft:hosts -- [--from S] [--seeds K] [--steps N] [--jobs J] [--twice] [--coverage]
//                       [--json] [--portion P]
// npm run raft:hosts -- --sum FILE...
// Runs K seeds of the whole Raft host on simulated machines. `--json` prints a tally a portion as a
// line, and `--sum` adds such lines up. Exit codes: 0 all well, 1 a promise was broken, a hash
// differed or (over 400 seeds) a coverage counter is zero, 2 usage.

import { availableParallelism } from "node:os";
import { isMainThread, workerData } from "node:worker_threads";
import {
  addHostCoverage,
  createHostCoverage,
  hostCoverageHelp,
  simulateHosts,
} from "../dist/raft/index.js";
import { parseWords, runSeeds, runSlice } from "./raft-seeds.mjs";

const traceShown = 60;
/** Fewer seeds need not reach every state. */
const coverageSeedsMin = 400;

if (isMainThread) await main();
else await runOwnSlice(workerData);

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
  const judged = { help: hostCoverageHelp, coverageSeedsMin, report };
  await runSeeds(import.meta.url, { ...options, kind: "hosts" }, judged);
}

function runOwnSlice(slice) {
  const simulate = async (seed) => {
    const result = await simulateHosts({ seed, steps: slice.steps });
    const { rule, message } = result.failure ?? {};
    return result.failure ? { ...result, failure: { message: `${rule}: ${message}` } } : result;
  };
  return runSlice(slice, { coverage: createHostCoverage(), add: addHostCoverage, simulate });
}

async function report({ steps }, { seed, message }) {
  const { trace } = await simulateHosts({ seed, steps, traceMax: traceShown });
  console.log(`seed ${seed}: ${message}`);
  for (const line of trace) console.log(`    ${line}`);
  console.log(`  repeat: npm run raft:hosts -- --from ${seed} --seeds 1 --steps ${steps}`);
}
