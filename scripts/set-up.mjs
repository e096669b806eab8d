// The set-up that `npm start`, `npm test` and `npm run docs` share, in plain JavaScript and without
// dependencies: it has to run in a fresh clone. Installs from the lock file when node_modules is
// missing or older than the lock; builds when the newest source is newer than the last build.

import { spawn, spawnSync } from "node:child_process";
import {
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { constants } from "node:os";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

export const root = dirname(dirname(fileURLToPath(import.meta.url)));

const nodeMin = [20, 19];
const installStamp = join(root, "node_modules", ".flagstone-lock");
const buildStamp = join(root, "dist", ".built");

export function setUp() {
  checkNode();
  // `npm ci` empties the folder behind a link: an install shared by several checkouts is its owner's.
  if (isLinked()) checkLinked();
  else if (!isInstalled()) install();
  if (!isBuilt()) build();
}

function checkNode() {
  const [major, minor] = process.versions.node.split(".").map(Number);
  if (major > nodeMin[0] || (major === nodeMin[0] && minor >= nodeMin[1])) return;
  console.error(
    `Flagstone needs Node.js ${nodeMin.join(".")} or newer; this is ${process.version}.`,
  );
  process.exit(4);
}

// By content, not by time: a fresh clone gives every file the time of the checkout.
function isInstalled() {
  const lock = readFileSync(join(root, "package-lock.json"), "utf8");
  try {
    return readFileSync(installStamp, "utf8") === lock;
  } catch {
    return isInstalledByNpm(lock);
  }
}

// `npm ci` by hand leaves no stamp of ours, but its own record of every package.
function isInstalledByNpm(lock) {
  try {
    const hidden = join(root, "node_modules", ".package-lock.json");
    const installed = JSON.parse(readFileSync(hidden, "utf8")).packages;
    const wanted = Object.entries(JSON.parse(lock).packages).filter(
      ([path, entry]) => path !== "" && !entry.optional,
    );
    return wanted.every(([path, { version }]) => installed[path]?.version === version);
  } catch {
    return false;
  }
}

function isLinked() {
  return (
    lstatSync(join(root, "node_modules"), { throwIfNoEntry: false })?.isSymbolicLink() === true
  );
}

function checkLinked() {
  if (existsSync(join(root, "node_modules/typescript/bin/tsc"))) return;
  console.error(
    "flagstone: node_modules is a link to an install that lacks packages; install there,",
  );
  console.error("flagstone: or remove the link to get an install of this folder's own");
  process.exit(1);
}

function install() {
  if (isLinked()) throw new Error("node_modules is a link: refusing to install through it");
  console.error("flagstone: installing packages from package-lock.json (npm ci)");
  console.error(
    "flagstone: a note that install scripts of classic-level are not allowed is harmless:",
  );
  console.error("flagstone: its prebuilt binary loads all the same");
  run("npm", ["ci", "--no-audit", "--no-fund"]);
  writeFileSync(installStamp, readFileSync(join(root, "package-lock.json"), "utf8"));
}

export function isBuilt() {
  const built = timeOf(buildStamp);
  // Folders count too: a renamed file keeps its time, its folder does not.
  const sources = [
    ...["package.json", "tsconfig.json", "src"].map((name) => join(root, name)),
    ...entriesUnder("src").map(pathOf),
  ];
  return sources.every((path) => timeOf(path) < built);
}

export function build() {
  console.error("flagstone: building");
  // Taken before the compiler reads: what is saved while it runs is newer than this build.
  const startedAt = new Date();
  run(process.execPath, [
    join(root, "node_modules/typescript/bin/tsc"),
    "-p",
    join(root, "tsconfig.json"),
  ]);
  removeOrphans();
  linkMain();
  writeFileSync(buildStamp, "");
  utimesSync(buildStamp, startedAt, startedAt);
}

// The compiler leaves the output of a source that is gone: it would be tested and packed.
function removeOrphans() {
  for (const entry of entriesUnder("dist")) {
    const path = pathOf(entry);
    const match = /^(.*?)(?:\.d)?\.(c?)[jt]s(?:\.map)?$/.exec(path);
    if (!entry.isFile() || match === null) continue;
    const [, stem, kind] = match;
    const source = `${join(root, "src", relative(join(root, "dist"), stem))}.${kind}ts`;
    if (!existsSync(source)) rmSync(path);
  }
}

// `node dist/cli/main.js` has to start as CommonJS (see src/cli/main.cts) in a package of ES modules:
// Node goes by the name behind the link. Where links are not possible a file with the same text
// works too, but with Node's own number of threads.
function linkMain() {
  const link = join(root, "dist/cli/main.js");
  rmSync(link, { force: true });
  try {
    symlinkSync("main.cjs", link);
  } catch {
    writeFileSync(link, readFileSync(join(root, "dist/cli/main.cjs")));
  }
}

function entriesUnder(folder) {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true });
}

function pathOf(entry) {
  return join(entry.parentPath, entry.name);
}

function timeOf(file) {
  try {
    return statSync(file).mtimeMs;
  } catch {
    return 0;
  }
}

function run(command, args) {
  // Standard output belongs to the program that is started afterwards.
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: ["ignore", 2, 2] });
  if (status === 0) return;
  console.error(`flagstone: ${command} failed${error === undefined ? "" : `: ${error.message}`}`);
  process.exit(status ?? 1);
}

/** Runs a program in place of this one: its signals, its streams, its exit code. */
export function become(args, environment = {}) {
  const child = spawn(process.execPath, args, {
    stdio: "inherit",
    env: { ...process.env, ...environment },
  });
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) {
    // A terminal signals the whole group already; sent again, a Ctrl-C would count as two.
    process.on(signal, () => {
      if (!(signal === "SIGINT" && process.stdin.isTTY)) child.kill(signal);
    });
  }
  if (process.env.npm_lifecycle_event !== undefined) stopWithNpm(child);
  child.on("exit", (code, signal) => {
    process.exit(code ?? 128 + (constants.signals[signal] ?? 0));
  });
}

// npm passes a signal to the shell between us, which dies of it and tells nobody: without npm's shell
// the program would run on unseen.
function stopWithNpm(child) {
  const shell = process.ppid;
  setInterval(() => {
    if (process.ppid !== shell) child.kill("SIGTERM");
  }, 250).unref();
}
