// npm run raft:mutants -- [--only TEXT,...] [--part I/N] [--again LOG] [--seeds K] [--jobs J] [--list]
// `--again` takes only what survived according to the output of an earlier run, `--part` every N-th.
//
// Breaks the Raft core in every small way, one at a time, and sees whether conversations,
// simulator and unit tests notice (docs/raft-testing.md). Works on a copy of the built JavaScript.
//
// Mutants: each comparison (bound moved, equality turned), each guard (never taken), each
// assignment and each call whose result is unused (left out); the faults of the field, by hand; and
// faults of host and log, by hand, which their unit tests must notice.
// Exit codes: 0 at least 95 % killed, not counting those argued to be equivalent; 1 fewer; 2 usage.

import { fork, spawn } from "node:child_process";
import {
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const coreFiles = readdirSync(join(root, "dist/raft/core")).filter((name) => name.endsWith(".js"));
const killedShareMin = 0.95;
/** A mutant that loops for ever, or fills the memory, counts as noticed, and is named. */
const checkMsMin = 60_000;
/** How much longer than the intact code, which a busy machine slows down as well. */
const slowdownMax = 5;
const intactMsMax = 600_000;
let checkMsMax = intactMsMax;
const heapMibMax = 512;
/** Seeds run before the unit tests, which cost a process; the others come last. */
const seedsFirst = 60;
/** Modules of mutants stay in memory: a checker makes place for a new one after so many. */
const checksMax = 100;
/** Those of the core, run on what conversations and a few seeds let pass. */
const unitTests = ["raft", "log", "losses", "progress", "membership", "quorum"];

const turned = { "<": "<=", "<=": "<", ">": ">=", ">=": ">", "===": "!==", "!==": "===" };

const words = process.argv.slice(2);

async function main() {
  const options = { seeds: 600, jobs: availableParallelism(), only: "", list: false };
  for (let at = 0; at < words.length; at++) {
    const name = words[at].replace(/^--/, "");
    if (name === "list") options.list = true;
    else if (name === "only") options.only = words[++at] ?? "";
    else if (name === "again") options.again = readSurvivors(words[++at]);
    else if (name === "part") options.part = (words[++at] ?? "").split("/").map(Number);
    else if (name === "seeds" || name === "jobs") options[name] = Number(words[++at]);
    else {
      console.error(
        "usage: npm run raft:mutants -- [--only TEXT,...] [--part I/N] [--again LOG] [--seeds K]\n" +
          "       [--jobs J] [--list]",
      );
      process.exit(2);
    }
  }
  const { parseAst } = await import("vite");
  const wanted = options.only.split(",");
  const [part, parts] = options.part ?? [1, 1];
  const all = [...mechanical(parseAst), ...fieldFaults(), ...hostFaults()];
  const mutants = all.filter((mutant, place) => {
    if (place % parts !== part - 1) return false;
    if (options.again) return options.again.has(mutant.name);
    return wanted.some((text) => mutant.name.includes(text));
  });
  if (options.list) {
    for (const mutant of mutants) console.log(mutant.name);
    console.log(`${mutants.length} mutants`);
    return;
  }
  const survivors = await runAll(mutants, options);
  report(mutants, survivors);
}

function readSurvivors(log) {
  const lines = readFileSync(log, "utf8").split("\n");
  const mark = "survived: ";
  return new Set(
    lines.filter((line) => line.startsWith(mark)).map((line) => line.slice(mark.length)),
  );
}

function mechanical(parseAst) {
  const mutants = [];
  for (const file of coreFiles) {
    const text = readFileSync(join(root, "dist/raft/core", file), "utf8");
    const seen = new Map();
    walk(parseAst(text), (kind, start, end, replacement) => {
      const line = text
        .slice(text.lastIndexOf("\n", start) + 1)
        .split("\n")[0]
        .trim();
      const whole = text.slice(start, end);
      const what = whole.split("\n")[0];
      const label = `${file} ${kind} \`${what}\` in \`${line}\``;
      const count = (seen.get(label) ?? 0) + 1;
      seen.set(label, count);
      const name = count === 1 ? label : `${label} #${count}`;
      const put = typeof replacement === "string" ? replacement : replacement(whole);
      mutants.push({ name, file, text: text.slice(0, start) + put + text.slice(end) });
    });
  }
  return mutants;
}

// Assertions are not mutated: they notice, they do nothing.
function walk(node, add) {
  if (node === null || typeof node !== "object") return;
  if (Array.isArray(node)) {
    for (const each of node) walk(each, add);
    return;
  }
  if (node.type === "CallExpression" && node.callee.name === "assert") return;
  if (node.type === "BinaryExpression" && node.operator in turned) {
    const { left, right, operator } = node;
    // Between the two there may be brackets as well.
    const turn = (whole) => whole.replace(operator, turned[operator]);
    add("comparison", left.end, right.start, turn);
  }
  if (node.type === "IfStatement") add("guard", node.test.start, node.test.end, "false");
  if (node.type === "ConditionalExpression") add("choice", node.test.start, node.test.end, "false");
  if (node.type === "ExpressionStatement") {
    const { type } = node.expression;
    const isCall = type === "CallExpression" && node.expression.callee.name !== "assert";
    const changes = type === "AssignmentExpression" || type === "UpdateExpression";
    if (isCall || changes) add(isCall ? "call" : "assignment", node.start, node.end, ";");
  }
  for (const [key, value] of Object.entries(node)) {
    if (key !== "type" && key !== "start" && key !== "end") walk(value, add);
  }
}

// One per cause that field reports of Raft libraries name, as far as it lies in the core.
function fieldFaults() {
  const faults = JSON.parse(readFileSync(join(root, "test/sim/raft/field-faults.json"), "utf8"));
  return faults.map(({ cause, file, find, put }) => {
    const text = readFileSync(join(root, "dist/raft/core", file), "utf8");
    const at = text.indexOf(find);
    if (at < 0 || text.indexOf(find, at + 1) >= 0) {
      throw new Error(`field fault "${cause}": its place in ${file} is not unique`);
    }
    return { name: `field: ${cause}`, file, text: text.replace(find, () => put) };
  });
}

async function runAll(mutants, { seeds, jobs }) {
  const folder = mkdtempSync(join(tmpdir(), "raft-mutants-"));
  const queue = [...mutants];
  const survivors = [];
  const noticed = {};
  let done = 0;
  const judgeIn = (own, checker) => (mutant) =>
    mutant.isHost ? judgeHost(own, mutant) : judgeCore(checker, own, { mutant, seeds });
  const intact = join(folder, "intact");
  copyTree(intact);
  const intactChecker = new Checker();
  await checkIntact(mutants, judgeIn(intact, intactChecker));
  intactChecker.end();
  const runner = async (job) => {
    const own = join(folder, String(job));
    copyTree(own);
    const checker = new Checker();
    const judge = judgeIn(own, checker);
    for (let mutant = queue.shift(); mutant !== undefined; mutant = queue.shift()) {
      const by = await judge(mutant);
      if (by === undefined) {
        survivors.push(mutant.name);
        console.log(`survived: ${mutant.name}`);
      } else {
        noticed[by] = (noticed[by] ?? 0) + 1;
        if (by === hung) console.log(`hung: ${mutant.name}`);
      }
      if (++done % 50 === 0) console.log(`${done} of ${mutants.length}`);
    }
    checker.end();
  };
  await Promise.all(Array.from({ length: jobs }, (_, job) => runner(job)));
  rmSync(folder, { recursive: true });
  console.log(
    `noticed by: ${Object.entries(noticed)
      .map(([by, count]) => `${by} ${count}`)
      .join(", ")}`,
  );
  return survivors;
}

/** The intact code must pass, and shows how long a check takes on this machine now. */
async function checkIntact(mutants, judge) {
  const file = coreFiles[0];
  const text = readFileSync(join(root, "dist/raft/core", file), "utf8");
  const path = "src/raft/host/group.ts";
  const probes = [
    { isHost: false, file, text },
    { isHost: true, path, text: readFileSync(join(root, path), "utf8") },
  ];
  let longestMs = 0;
  for (const probe of probes) {
    if (!mutants.some(({ isHost = false }) => isHost === probe.isHost)) continue;
    const beginMs = performance.now();
    const by = await judge(probe);
    if (by !== undefined) throw new Error(`the intact code does not pass (${by}): mend that first`);
    longestMs = Math.max(longestMs, performance.now() - beginMs);
  }
  checkMsMax = Math.max(checkMsMin, slowdownMax * longestMs);
}

/** What notices the mutant; undefined if nothing does. */
async function judgeCore(checker, folder, { mutant, seeds }) {
  const { file, text } = mutant;
  const first = await checker.check({ file, text, from: 1, to: Math.min(seedsFirst, seeds) });
  // It would be noticed by anything, and shows nothing.
  if (first === "load") throw new Error(`${mutant.name} is no code that loads: mend it`);
  if (first !== undefined) return first;
  const units = await runUnitTests(folder, mutant);
  if (units !== undefined) return units;
  return checker.check({ file, text, from: seedsFirst + 1, to: seeds });
}

const hung = "hang or crash";

/** A child that runs conversations and seeds on a core with one file replaced. */
class Checker {
  #child;
  #checks = 0;

  /** Resolves with what noticed it. A fresh child that hangs or dies noticed it, too. */
  async check(request) {
    const isFresh = this.#child === undefined;
    const by = await this.#ask(request);
    // One that had checked others may have died of what they left behind.
    return by === hung && !isFresh ? this.#ask(request) : by;
  }

  #ask(request) {
    this.#child ??= fork(fileURLToPath(new URL("raft-mutant-check.mjs", import.meta.url)), {
      execArgv: ["--experimental-vm-modules", `--max-old-space-size=${heapMibMax}`],
      stdio: ["ignore", "ignore", "ignore", "ipc"],
    });
    const child = this.#child;
    return new Promise((resolve) => {
      const settle = (by) => {
        clearTimeout(timer);
        child.removeAllListeners();
        if (by === hung || ++this.#checks % checksMax === 0) this.end();
        resolve(by);
      };
      const timer = setTimeout(() => settle(hung), checkMsMax);
      child.once("message", ({ by }) => settle(by));
      child.once("exit", () => settle(hung));
      child.send(request);
    });
  }

  end() {
    this.#child?.kill("SIGKILL");
    this.#child = undefined;
  }
}

// The unit tests import sources: a copy of them with the mutated file in the place of its source.
async function runUnitTests(folder, mutant) {
  const source = join(folder, "src/raft/core", mutant.file.replace(/\.js$/, ".ts"));
  const intact = readFileSync(source, "utf8");
  writeFileSync(source, mutant.text.replace(/(from "[^"]+)\.js"/g, '$1.ts"'));
  const files = unitTests.map((name) => `test/unit/raft/${name}.test.ts`);
  const vitest = join(root, "node_modules/vitest/vitest.mjs");
  const words = [vitest, "run", "--project", "unit", "--bail", "1", ...files];
  const by = await run(words, { cwd: folder, name: "unit tests" });
  writeFileSync(source, intact);
  return by;
}

// Faults of host and log, by hand: seen by their unit tests.
async function judgeHost(folder, { path, text }) {
  const source = join(folder, path);
  const intact = readFileSync(source, "utf8");
  writeFileSync(source, text);
  const vitest = join(root, "node_modules/vitest/vitest.mjs");
  const files = path.startsWith("src/log") ? ["test/unit/log"] : [];
  const words = ["run", "--project", "unit", "--bail", "1", "test/unit/raft/host", ...files];
  const by = await run([vitest, ...words], { cwd: folder, name: "host tests" });
  writeFileSync(source, intact);
  return by;
}

function hostFaults() {
  const faults = JSON.parse(readFileSync(join(root, "test/sim/raft/host-faults.json"), "utf8"));
  return faults.map(({ cause, path, find, put }) => {
    const text = readFileSync(join(root, path), "utf8");
    if (text.split(find).length !== 2) {
      throw new Error(`host fault "${cause}": its place in ${path} is not unique`);
    }
    return { name: `host: ${cause}`, isHost: true, path, text: text.replace(find, () => put) };
  });
}

function copyTree(tree) {
  const tests = ["test/unit/raft", "test/unit/log", "test/support"];
  for (const part of ["src/base", "src/kv", "src/log", "src/raft", ...tests]) {
    cpSync(join(root, part), join(tree, part), { recursive: true });
  }
  const files = ["package.json", "tsconfig.json", "vitest.config.ts"];
  for (const part of [...files, "scripts/set-up.mjs"]) {
    cpSync(join(root, part), join(tree, part));
  }
  symlinkSync(join(root, "node_modules"), join(tree, "node_modules"));
}

/** Undefined when all pass. A run that takes too long, or fills the memory, hung. */
function run(words, { cwd, name }) {
  return new Promise((resolve) => {
    const limited = [`--max-old-space-size=${heapMibMax}`, ...words];
    // A group of its own: its workers end with it.
    const child = spawn(process.execPath, limited, { cwd, stdio: "ignore", detached: true });
    const timer = setTimeout(() => process.kill(-child.pid, "SIGKILL"), checkMsMax);
    child.once("exit", (code) => {
      clearTimeout(timer);
      const failed = code === null ? hung : name;
      resolve(code === 0 ? undefined : failed);
    });
  });
}

function report(mutants, survivors) {
  const path = join(root, "test/sim/raft/equivalent-mutants.json");
  const argued = JSON.parse(readFileSync(path, "utf8"));
  const open = survivors.filter((name) => !(name in argued));
  const counted = mutants.length - (survivors.length - open.length);
  const share = (counted - open.length) / counted;
  for (const name of open) console.log(`not noticed: ${name}`);
  console.log(
    `${mutants.length} mutants, ${survivors.length} survived, ` +
      `${survivors.length - open.length} of them argued to be equivalent; ` +
      `${(share * 100).toFixed(1)} % of the others killed`,
  );
  process.exit(share >= killedShareMin ? 0 : 1);
}

await main();
