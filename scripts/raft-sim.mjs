// npm run raft:sim -- [--from S] [--seeds K] [--steps N] [--jobs J] [--without a,b] [--flaw NAME]
//                     [--twice] [--coverage] [--shrink] [--json] [--portion P]
// npm run raft:sim -- --sum FILE...
// Runs K seeds from S on, N events each before healing. `--json` prints a tally a portion as a line,
// and `--sum` adds such lines up. Exit codes: 0 all well, 1 a promise was broken, a hash differed or
// (over 1,000 seeds) a coverage counter is zero, 2 usage.

import { availableParallelism } from "node:os";
import { isMainThread, workerData } from "node:worker_threads";
import {
  addCoverage,
  coverageHelp,
  createCoverage,
  faultNames,
  flawNames,
  formatCommand,
  shrink,
  simulate,
} from "../dist/raft/index.js";
import { parseWords, runSeeds, runSlice } from "./raft-seeds.mjs";

const traceShown = 40;
/** Fewer seeds need not reach every state. */
const coverageSeedsMin = 1000;

if (isMainThread) await main();
else await runOwnSlice(workerData);

function usage(problem) {
  console.error(
    `${problem}\nusage: npm run raft:sim -- [--from S] [--steps N] [--seeds K] [--jobs J]`,
  );
  console.error("       [--without FAULT,...] [--flaw NAME] [--twice] [--coverage] [--shrink]");
  console.error("       [--json] [--portion P]");
  console.error("       npm run raft:sim -- --sum FILE...");
  console.error(`faults: ${faultNames.join(" ")}\nflaws: ${flawNames.join(" ")}`);
  process.exit(2);
}

function parseArguments(words) {
  const options = parseWords(words, {
    numbers: { seed: 1, steps: 1500, seeds: 1000, jobs: availableParallelism(), portion: 0 },
    texts: { without: "", flaw: "" },
    switches: ["twice", "coverage", "shrink", "json"],
    usage,
  });
  const unknown = options.without.split(",").find((name) => name && !faultNames.includes(name));
  if (unknown !== undefined) usage(`unknown fault ${unknown}`);
  if (options.flaw && !flawNames.includes(options.flaw)) usage(`unknown flaw ${options.flaw}`);
  return { ...options, kind: "core" };
}

async function main() {
  const options = parseArguments(process.argv.slice(2));
  const tell = (tally, failure) => report(tally, options, failure);
  const judged = { help: coverageHelp, coverageSeedsMin, report: tell };
  await runSeeds(import.meta.url, options, judged);
}

function simOptions({ steps, without, flaw }, seed) {
  const left = new Set(without.split(",").filter(Boolean));
  return { seed, steps, without: left, ...(flaw ? { flaw } : {}) };
}

function runOwnSlice(slice) {
  return runSlice(slice, {
    coverage: createCoverage(),
    add: addCoverage,
    simulate: (seed) => simulate(simOptions(slice, seed)),
  });
}

function report(tally, options, { seed, message }) {
  const base = simOptions(tally, seed);
  const run = options.shrink ? shrink(base).options : base;
  const { trace, failure, events, swarm } = simulate({ ...run, traceMax: traceShown });
  console.log(`seed ${seed}: ${failure?.message ?? message}`);
  console.log(`  at event ${events}, faults ${[...swarm.faults].join(",")}`);
  for (const line of trace) console.log(`    ${line}`);
  console.log(`  repeat: ${formatCommand(run)}`);
}
