// The set-up behind `npm start` and `npm test`: installs from the lock when what is installed does
// not match it, and builds when a source is newer than the last build. Does nothing when all is
// fresh. Uses nothing but Node, because nothing else is there yet on a fresh clone.

import { spawnSync } from "node:child_process";
import { existsSync, lstatSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

export const root = dirname(dirname(fileURLToPath(import.meta.url)));

/** True when every package that the lock names for this platform is installed in that version. */
export function isInstalled(folder) {
  const installedPath = join(folder, "node_modules/.package-lock.json");
  if (!existsSync(installedPath)) return false;
  const wanted = JSON.parse(readFileSync(join(folder, "package-lock.json"), "utf8")).packages;
  const installed = JSON.parse(readFileSync(installedPath, "utf8")).packages;
  return Object.entries(wanted).every(([name, entry]) => {
    if (name === "") return true;
    const found = installed[name];
    // Optional packages are for other platforms, unless they are there.
    if (found === undefined) return entry.optional === true || entry.devOptional === true;
    return found.version === entry.version;
  });
}

/** True when the build is newer than every file it was made from. */
export function isBuilt(folder) {
  const stamps = ["dist/.built", "dist/.tsbuildinfo"].map((name) => join(folder, name));
  const builtMs = Math.max(0, ...stamps.filter(existsSync).map((path) => statSync(path).mtimeMs));
  const sources = ["tsconfig.json", "package.json", "package-lock.json"];
  return [...sources.map((name) => join(folder, name)), ...filesBelow(join(folder, "src"))].every(
    (path) => statSync(path).mtimeMs <= builtMs,
  );
}

function filesBelow(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? filesBelow(path) : [path];
  });
}

export function isLink(path) {
  return lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() ?? false;
}

/** Runs a command of the set-up; ends this process with its code when it fails. */
function must(command, args) {
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: "inherit" });
  if (status === 0) return;
  if (error !== undefined) console.error(`cannot run ${command}: ${error.message}`);
  process.exit(status ?? 1);
}

export function setUp() {
  if (!isInstalled(root)) {
    if (isLink(join(root, "node_modules"))) {
      // npm ci empties the folder behind a link, which others may be using.
      console.error("node_modules is a link and does not match package-lock.json; install there");
      process.exit(1);
    }
    console.error("installing packages from package-lock.json");
    must("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"]);
  }
  if (!isBuilt(root)) {
    console.error("building");
    must(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-p", "tsconfig.json"]);
    // The compiler leaves its own file alone when nothing changed but times.
    writeFileSync(join(root, "dist/.built"), "");
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) setUp();
