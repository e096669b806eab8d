// What `raft:sim` and `raft:hosts` share: ranges of seeds over threads, and tallies of ranges that
// can be kept as lines of JSON and summed, so that a million seeds can be run in pieces, on several
// machines, and be interrupted. Only whole pieces are ever printed.

import { readFileSync } from "node:fs";
import { parentPort, Worker } from "node:worker_threads";

/** What must be equal for two tallies to be of one run. */
const sameFields = ["kind", "steps", "without", "flaw", "twice"];
/** Failures kept in a tally; all are counted. */
const failuresKept = 20;
const failuresShownMax = 5;

/**
 * Reads `--name value` and `--switch`. `usage` is told what is wrong and does not return.
 * Numbers are the options whose default is one; `--from` is the same as `--seed`.
 */
export function parseWords(words, { numbers, texts = {}, switches, usage }) {
  const options = { ...numbers, ...texts, ...Object.fromEntries(switches.map((n) => [n, false])) };
  for (let at = 0; at < words.length; at++) {
    const given = words[at].replace(/^--/, "");
    const name = given === "from" ? "seed" : given;
    if (switches.includes(name)) {
      options[name] = true;
    } else if (name in numbers) {
      if (!/^\d+$/.test(words[at + 1] ?? "")) usage(`--${given} needs a number`);
      options[name] = Number(words[++at]);
    } else if (name in texts) {
      if (words[at + 1] === undefined) usage(`--${given} needs a value`);
      options[name] = words[++at];
    } else if (given === "sum") {
      options.sum = words.slice(at + 1);
      if (options.sum.length === 0) usage("--sum needs files");
      break;
    } else {
      usage(`unknown option ${words[at]}`);
    }
  }
  return options;
}

/**
 * The whole of a run, or the sum of earlier ones: prints what is asked for, and ends the process.
 * `help` has the states to be reached by `coverageSeedsMin` seeds; `report` tells of a failure.
 */
export async function runSeeds(script, options, { help, coverageSeedsMin, report }) {
  const tallies = options.sum ? readTallies(options.sum) : [];
  if (!options.sum) {
    for await (const tally of runPieces(script, options)) {
      tallies.push(tally);
      if (options.json) console.log(JSON.stringify(tally));
      else if (options.portion) console.log(formatTally(tally, []));
    }
  }
  const total = sumTallies(tallies);
  if (options.coverage) {
    for (const [name, text] of Object.entries(help)) {
      console.log(`${String(total.coverage[name] ?? 0).padStart(10)}  ${name}: ${text}`);
    }
  }
  for (const failure of total.failures.slice(0, failuresShownMax)) await report(total, failure);
  const missing = missingStates(total, help, coverageSeedsMin);
  for (const name of missing) console.log(`never reached: ${name} (${help[name]})`);
  console.log(formatTally(total, missing));
  process.exit(total.failed > 0 || missing.length > 0 ? 1 : 0);
}

/** What a thread does: its seeds of a piece, each by `simulate`, whose failure has a `message`. */
export async function runSlice({ seed, seeds, twice, job, jobs }, { coverage, add, simulate }) {
  const failures = [];
  let events = 0;
  let hash = 0;
  for (let at = seed + job; at < seed + seeds; at += jobs) {
    const result = await simulate(at);
    events += result.events;
    hash = (hash + result.hash) % 2 ** 32;
    add(coverage, result.coverage);
    const { failure } = result;
    if (failure) failures.push({ seed: at, message: failure.message });
    else if (twice && (await simulate(at)).hash !== result.hash) {
      failures.push({ seed: at, message: "equal seeds: the second run has another hash" });
    }
  }
  parentPort.postMessage({ coverage, failures, events, hash });
}

/**
 * Runs `seeds` seeds from `seed` on in pieces of `portion`; each piece on all threads. Yields the
 * tally of a piece when all of it is done.
 */
async function* runPieces(script, options) {
  const end = options.seed + options.seeds;
  const size = options.portion || options.seeds;
  for (let from = options.seed; from < end; from += size) {
    const seeds = Math.min(size, end - from);
    const started = performance.now();
    const jobs = Math.max(1, Math.min(options.jobs, seeds));
    const parts = await Promise.all(
      Array.from({ length: jobs }, (_, job) =>
        runWorker(script, { ...options, seed: from, seeds, job, jobs }),
      ),
    );
    const seconds = (performance.now() - started) / 1000;
    yield tallyOf(options, { from, seeds, seconds }, parts);
  }
}

function tallyOf(options, { from, seeds, seconds }, parts) {
  const failures = parts.flatMap((part) => part.failures).sort((a, b) => a.seed - b.seed);
  const tally = {
    ...Object.fromEntries(sameFields.map((name) => [name, options[name] ?? null])),
    from,
    seeds,
    events: parts.reduce((sum, { events }) => sum + events, 0),
    hash: parts.reduce((sum, { hash }) => (sum + hash) % 2 ** 32, 0),
    failed: failures.length,
    failures: failures.slice(0, failuresKept),
    coverage: {},
    seconds: Math.round(seconds * 10) / 10,
  };
  for (const { coverage } of parts) addCounts(tally.coverage, coverage);
  return tally;
}

/** One tally of many. Throws when they are not of one run, overlap, or leave seeds out. */
export function sumTallies(tallies) {
  const [first, ...rest] = [...tallies].sort((one, other) => one.from - other.from);
  if (first === undefined) throw new Error("there is nothing to sum");
  const sum = { ...first, failures: [...first.failures], coverage: { ...first.coverage } };
  for (const tally of rest) {
    const differs = sameFields.find((name) => tally[name] !== sum[name]);
    if (differs !== undefined) throw new Error(`seeds ${tally.from}: another ${differs}`);
    const due = sum.from + sum.seeds;
    if (tally.from < due) throw new Error(`seeds ${tally.from} to ${due - 1} are counted twice`);
    if (tally.from > due) throw new Error(`seeds ${due} to ${tally.from - 1} are missing`);
    sum.seeds += tally.seeds;
    sum.events += tally.events;
    sum.hash = (sum.hash + tally.hash) % 2 ** 32;
    sum.failed += tally.failed;
    sum.failures = [...sum.failures, ...tally.failures].slice(0, failuresKept);
    sum.seconds = Math.round((sum.seconds + tally.seconds) * 10) / 10;
    addCounts(sum.coverage, tally.coverage);
  }
  return sum;
}

/** Every line of the files that is a tally; other lines are let pass. */
function readTallies(paths) {
  return paths.flatMap((path) =>
    readFileSync(path, "utf8")
      .split("\n")
      .filter((line) => line.startsWith('{"kind":'))
      .map((line) => JSON.parse(line)),
  );
}

/** The states that a run of enough seeds must have reached and did not. */
export function missingStates(tally, help, seedsMin) {
  if (tally.seeds < seedsMin || tally.flaw) return [];
  return Object.keys(help).filter((name) => !(tally.coverage[name] > 0));
}

function formatTally(tally, missing) {
  const perSecond = Math.round(tally.seeds / tally.seconds);
  const twice = tally.twice ? ", each twice with equal hashes" : "";
  return (
    `seeds ${tally.from} to ${tally.from + tally.seeds - 1}: ${tally.seeds} seeds${twice}, ` +
    `${tally.events} events, ${tally.failed} failures, ${missing.length} states never reached, ` +
    `hash ${tally.hash.toString(16)}, ${tally.seconds.toFixed(1)} s, ${perSecond} seeds/s`
  );
}

function addCounts(total, counts) {
  for (const [name, count] of Object.entries(counts)) total[name] = (total[name] ?? 0) + count;
}

function runWorker(script, data) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL(script), { workerData: data });
    worker.once("message", resolve);
    worker.once("error", reject);
  });
}
