// npm run raft:mutants -- [--only TEXT,...] [--again LOG] [--seeds K] [--jobs J] [--list]
// `--again` takes only what survived according to the output of an earlier run.
//
// Breaks the Raft core in every small way, one at a time, and sees whether conversations,
// simulator and unit tests notice (docs/raft-testing.md). Works on a copy of the built JavaScript.
//
// Mutants: each comparison (bound moved, equality turned), each guard (never taken), each
// assignment and each call whose result is unused (left out); the faults of the field, by hand; and
// faults of host and log, by hand, which their unit tests must notice.
// Exit codes: 0 at least 95 % killed, not counting those argued to be equivalent; 1 fewer; 2 usage.

import { spawn } from "node:child_process";
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
import { fileURLToPath, pathToFileURL } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const coreFiles = readdirSync(join(root, "dist/raft/core")).filter((name) => name.endsWith(".js"));
const killedShareMin = 0.95;
/** A mutant that loops for ever, or fills the memory, counts as noticed. */
const checkMsMax = 60_000;
const heapMibMax = 512;
const exitNoticed = 10;
/** Those of the core, run on what conversations and simulator let pass. */
const unitTests = ["raft", "log", "progress", "membership", "quorum"];

const turned = { "<": "<=", "<=": "<", ">": ">=", ">=": ">", "===": "!==", "!==": "===" };

const words = process.argv.slice(2);
// In a child: exits with `exitNoticed` if anything looks wrong.
async function check(folder, seeds) {
  const raft = await import(pathToFileURL(join(folder, "raft/index.js")).href).catch(() => {
    process.exit(exitNoticed);
  });
  const conversations = join(folder, "conversations");
  for (const name of readdirSync(conversations).filter((each) => each.endsWith(".txt"))) {
    const { mismatches } = raft.runConversation(readFileSync(join(conversations, name), "utf8"));
    if (mismatches.length > 0) process.exit(exitNoticed);
  }
  for (let seed = 1; seed <= seeds; seed++) {
    if (raft.simulate({ seed, steps: 1500 }).failure) process.exit(exitNoticed);
  }
}

async function main() {
  const options = { seeds: 600, jobs: availableParallelism(), only: "", list: false };
  for (let at = 0; at < words.length; at++) {
    const name = words[at].replace(/^--/, "");
    if (name === "list") options.list = true;
    else if (name === "only") options.only = words[++at] ?? "";
    else if (name === "again") options.again = readSurvivors(words[++at]);
    else if (name === "seeds" || name === "jobs") options[name] = Number(words[++at]);
    else {
      console.error(
        "usage: npm run raft:mutants -- [--only TEXT,...] [--seeds K] [--jobs J] [--list]",
      );
      process.exit(2);
    }
  }
  const { parseAst } = await import("vite");
  const wanted = options.only.split(",");
  const mutants = [...mechanical(parseAst), ...fieldFaults(), ...hostFaults()].filter((mutant) =>
    options.again
      ? options.again.has(mutant.name)
      : wanted.some((text) => mutant.name.includes(text)),
  );
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
      const what = text.slice(start, end).split("\n")[0];
      const label = `${file} ${kind} \`${what}\` in \`${line}\``;
      const count = (seen.get(label) ?? 0) + 1;
      seen.set(label, count);
      const name = count === 1 ? label : `${label} #${count}`;
      mutants.push({ name, file, text: text.slice(0, start) + replacement + text.slice(end) });
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
    add("comparison", left.end, right.start, ` ${turned[operator]} `);
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
  let done = 0;
  const note = (name) => {
    survivors.push(name);
    console.log(`survived: ${name}`);
  };
  const runner = async (job) => {
    const own = join(folder, String(job));
    for (const room of ["base", "log", "raft"]) {
      cpSync(join(root, "dist", room), join(own, room), { recursive: true });
    }
    copyTree(join(own, "tree"));
    cpSync(join(root, "test/sim/raft"), join(own, "conversations"), { recursive: true });
    writeFileSync(join(own, "package.json"), '{"type":"module"}');
    symlinkSync(join(root, "node_modules"), join(own, "node_modules"));
    if (job === 0 && !(await acceptsIntact(own, seeds))) {
      throw new Error("the intact core does not pass: mend that first");
    }
    for (let mutant = queue.shift(); mutant !== undefined; mutant = queue.shift()) {
      if (mutant.isHost) {
        if (await passesHostTests(own, mutant)) note(mutant.name);
        done++;
        continue;
      }
      const path = join(own, "raft/core", mutant.file);
      const intact = readFileSync(path, "utf8");
      writeFileSync(path, mutant.text);
      if ((await survives(own, seeds)) && (await passesUnitTests(own, mutant))) {
        note(mutant.name);
      }
      writeFileSync(path, intact);
      done++;
      if (done % 50 === 0) console.log(`${done} of ${mutants.length}`);
    }
  };
  await Promise.all(Array.from({ length: jobs }, (_, job) => runner(job)));
  rmSync(folder, { recursive: true });
  return survivors;
}

async function acceptsIntact(folder, seeds) {
  const file = coreFiles[0];
  const intact = { file, text: readFileSync(join(folder, "raft/core", file), "utf8") };
  return (await survives(folder, seeds)) && (await passesUnitTests(folder, intact));
}

function survives(folder, seeds) {
  return succeeds([fileURLToPath(import.meta.url), "--check", folder, String(seeds)], folder);
}

// The unit tests import sources: a copy of them with the mutated file in the place of its source.
async function passesUnitTests(folder, mutant) {
  const tree = join(folder, "tree");
  const source = join(tree, "src/raft/core", mutant.file.replace(/\.js$/, ".ts"));
  const intact = readFileSync(source, "utf8");
  writeFileSync(source, mutant.text.replace(/(from "[^"]+)\.js"/g, '$1.ts"'));
  const files = unitTests.map((name) => `test/unit/raft/${name}.test.ts`);
  const vitest = join(root, "node_modules/vitest/vitest.mjs");
  const passed = await succeeds(
    [vitest, "run", "--project", "unit", "--bail", "1", ...files],
    tree,
  );
  writeFileSync(source, intact);
  return passed;
}

// Faults of host and log, by hand: seen by their unit tests.
async function passesHostTests(folder, { path, text }) {
  const tree = join(folder, "tree");
  const source = join(tree, path);
  const intact = readFileSync(source, "utf8");
  writeFileSync(source, text);
  const vitest = join(root, "node_modules/vitest/vitest.mjs");
  const files = path.startsWith("src/log") ? ["test/unit/log"] : [];
  const words = ["run", "--project", "unit", "--bail", "1", "test/unit/raft/host", ...files];
  const passed = await succeeds([vitest, ...words], tree);
  writeFileSync(source, intact);
  return passed;
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
  for (const part of ["src/base", "src/log", "src/raft", ...tests]) {
    cpSync(join(root, part), join(tree, part), { recursive: true });
  }
  for (const part of ["package.json", "tsconfig.json", "vitest.config.ts"]) {
    cpSync(join(root, part), join(tree, part));
  }
  symlinkSync(join(root, "node_modules"), join(tree, "node_modules"));
}

function succeeds(words, cwd) {
  return new Promise((resolve) => {
    const options = { cwd, stdio: "ignore", timeout: checkMsMax, killSignal: "SIGKILL" };
    const limited = [`--max-old-space-size=${heapMibMax}`, ...words];
    spawn(process.execPath, limited, options).once("exit", (code) => resolve(code === 0));
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

if (words[0] === "--check") await check(words[1], Number(words[2]));
else await main();
