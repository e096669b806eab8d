// The set-up scripts in a small project of their own, with an npm and a compiler on paper that write
// down what they are asked to do.

import { spawn } from "node:child_process";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { withTemporaryFolder } from "../../support/temporary-folder.ts";

const scripts = fileURLToPath(new URL("../../../scripts", import.meta.url));

const lock = { packages: { "": {}, "node_modules/a": { version: "1.0.0" } } };

/** Installs itself as the compiler, or fails when the test says so. */
const npm = `#!/bin/sh
echo "npm $*" >> calls
[ -e npm-fails ] && exit 9
mkdir -p node_modules/typescript/bin && cp tsc.cjs node_modules/typescript/bin/tsc
`;

const compiler = `
const fs = require("node:fs");
fs.appendFileSync("calls", "tsc\\n");
if (fs.existsSync("tsc-fails")) process.exit(2);
if (fs.existsSync("save-while-building")) {
  const soon = new Date(Date.now() + 2000);
  fs.utimesSync("src/a.ts", soon, soon);
}
fs.mkdirSync("dist/cli", { recursive: true });
fs.writeFileSync("dist/a.js", "");
fs.copyFileSync("main.cjs", "dist/cli/main.cjs");
`;

/** A broker on paper: says how it was called, ends with 7, or at SIGTERM with 3. */
const main = `
const { argv, env } = process;
process.on("SIGTERM", () => {
  require("node:fs").writeFileSync("stopped", "");
  process.exit(3);
});
console.log(JSON.stringify({ args: argv.slice(2), threads: env.UV_THREADPOOL_SIZE }));
if (argv.includes("--wait")) setInterval(() => undefined, 1000);
else process.exitCode = 7;
`;

class Project {
  readonly root: string;

  constructor(root: string) {
    this.root = root;
    cpSync(scripts, this.at("scripts"), { recursive: true });
    this.write("package.json", "{}");
    this.write("tsconfig.json", "{}");
    this.write("package-lock.json", JSON.stringify(lock));
    this.write("src/a.ts", "");
    this.write("src/cli/main.cts", "");
    this.write("tsc.cjs", compiler);
    this.write("main.cjs", main);
    this.write("bin/npm", npm);
    chmodSync(this.at("bin/npm"), 0o755);
    for (const path of ["package.json", "tsconfig.json", "src/a.ts", "src/cli", "src"]) {
      this.age(path);
    }
    this.age("src/cli/main.cts");
  }

  at(path: string): string {
    return join(this.root, path);
  }

  write(path: string, text: string): void {
    mkdirSync(dirname(this.at(path)), { recursive: true });
    writeFileSync(this.at(path), text);
  }

  /** As if last changed a minute ago, or a minute from now. */
  age(path: string, seconds = -60): void {
    const time = new Date(Date.now() + seconds * 1000);
    utimesSync(this.at(path), time, time);
  }

  /** What npm and the compiler were asked for since the last call. */
  calls(): string[] {
    const path = this.at("calls");
    const text = existsSync(path) ? readFileSync(path, "utf8") : "";
    rmSync(path, { force: true });
    return text.trim().split("\n").filter(Boolean);
  }

  run(script: string, ...args: string[]) {
    const path = `${this.at("bin")}${delimiter}${process.env.PATH}`;
    const env = { ...process.env, PATH: path };
    for (const name of ["UV_THREADPOOL_SIZE", "npm_lifecycle_event"]) {
      Reflect.deleteProperty(env, name);
    }
    const all = [...args];
    const nodeArgs = all[0]?.startsWith("--import") ? [all.shift() as string] : [];
    const child = spawn(process.execPath, [...nodeArgs, `scripts/${script}`, ...all], {
      cwd: this.root,
      env,
    });
    let stdout = "";
    let stderr = "";
    child.stdout.on("data", (bytes) => {
      stdout += bytes;
    });
    child.stderr.on("data", (bytes) => {
      stderr += bytes;
    });
    const done = new Promise<{ code: number | null; stdout: string; stderr: string }>((resolve) => {
      child.once("close", (code) => resolve({ code, stdout, stderr }));
    });
    return { child, done };
  }
}

async function until(holds: () => boolean): Promise<void> {
  for (let waited = 0; !holds(); waited += 20) {
    if (waited > 10_000) throw new Error("it did not happen within 10 s");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const inProject = (use: (project: Project) => Promise<void>): Promise<void> =>
  withTemporaryFolder((folder) => use(new Project(folder)));

const install = "npm ci --no-audit --no-fund";

test("a fresh clone is installed from its lock, built, and started; then nothing is done twice", () =>
  inProject(async (project) => {
    const first = await project.run("start.mjs").done;
    expect(project.calls()).toEqual([install, "tsc"]);
    expect(first.code).toBe(7);
    expect(first.stderr).toContain("a note that install scripts of classic-level are not allowed");
    const second = await project.run("start.mjs").done;
    expect(project.calls()).toEqual([]);
    expect(second).toMatchObject({ code: 7, stderr: "" });
  }));

test("the broker gets the arguments, data in ./data, and eight threads for the disk", () =>
  inProject(async (project) => {
    const { stdout } = await project.run("start.mjs", "--port", "5").done;
    expect(JSON.parse(stdout)).toEqual({
      args: ["start", "--data", "./data", "--port", "5"],
      threads: "8",
    });
    const other = await project.run("start.mjs", "--data", "/srv/d").done;
    expect(JSON.parse(other.stdout).args).toEqual(["start", "--data", "/srv/d"]);
  }));

test("a signal reaches the broker and its exit code comes back", () =>
  inProject(async (project) => {
    const { child, done } = project.run("start.mjs", "--wait");
    await new Promise((resolve) => child.stdout.once("data", resolve));
    child.kill("SIGTERM");
    expect((await done).code).toBe(3);
  }));

test("the broker stops with the shell that npm put between, which passes no signals on", () =>
  inProject(async (project) => {
    await project.run("build.mjs").done;
    await project.run("start.mjs").done;
    // The second command keeps the shell from becoming the first one.
    const shell = spawn("sh", ["-c", `"${process.execPath}" scripts/start.mjs --wait; true`], {
      cwd: project.root,
      env: { ...process.env, npm_lifecycle_event: "start" },
    });
    await new Promise((resolve) => shell.stdout.once("data", resolve));
    shell.kill("SIGTERM");
    await until(() => existsSync(project.at("stopped")));
  }));

test("a changed lock is installed again, a newer source is only built", () =>
  inProject(async (project) => {
    await project.run("build.mjs").done;
    await project.run("start.mjs").done;
    project.calls();
    project.write("package-lock.json", JSON.stringify({ ...lock, more: true }));
    await project.run("start.mjs").done;
    expect(project.calls()).toEqual([install]);
    project.age("src/a.ts", 60);
    await project.run("start.mjs").done;
    expect(project.calls()).toEqual(["tsc"]);
  }));

test("a renamed source is built although it is old, and the output of its old name goes", () =>
  inProject(async (project) => {
    await project.run("start.mjs").done;
    project.calls();
    project.write("dist/old.js", "");
    project.write("dist/old.d.ts.map", "");
    project.age("src", 60);
    renameSync(project.at("src/a.ts"), project.at("src/b.ts"));
    project.age("src", 60);
    await project.run("start.mjs").done;
    expect(project.calls()).toEqual(["tsc"]);
    expect(existsSync(project.at("dist/old.js"))).toBe(false);
    expect(existsSync(project.at("dist/old.d.ts.map"))).toBe(false);
    expect(existsSync(project.at("dist/a.js"))).toBe(false);
    expect(existsSync(project.at("dist/cli/main.js"))).toBe(true);
  }));

test("a source saved while it is built is built again", () =>
  inProject(async (project) => {
    project.write("save-while-building", "");
    await project.run("start.mjs").done;
    rmSync(project.at("save-while-building"));
    project.calls();
    await project.run("start.mjs").done;
    expect(project.calls()).toEqual(["tsc"]);
  }));

test("packages that npm installed by hand from the same lock are taken as they are", () =>
  inProject(async (project) => {
    project.write("node_modules/.package-lock.json", JSON.stringify(lock));
    project.write("node_modules/typescript/bin/tsc", compiler);
    await project.run("start.mjs").done;
    expect(project.calls()).toEqual(["tsc"]);
    const older = { packages: { "node_modules/a": { version: "0.9.0" } } };
    project.write("node_modules/.package-lock.json", JSON.stringify(older));
    await project.run("start.mjs").done;
    expect(project.calls()).toEqual([install]);
  }));

test("an install behind a link is used, never changed", () =>
  inProject(async (project) => {
    mkdirSync(project.at("elsewhere/typescript/bin"), { recursive: true });
    project.write("elsewhere/typescript/bin/tsc", compiler);
    symlinkSync(project.at("elsewhere"), project.at("node_modules"));
    await project.run("start.mjs").done;
    expect(project.calls()).toEqual(["tsc"]);
    expect(existsSync(project.at("elsewhere/.flagstone-lock"))).toBe(false);
  }));

test("a link to an install that lacks the compiler is refused, not filled", () =>
  inProject(async (project) => {
    mkdirSync(project.at("elsewhere"));
    symlinkSync(project.at("elsewhere"), project.at("node_modules"));
    const { code, stderr } = await project.run("start.mjs").done;
    expect(code).toBe(1);
    expect(stderr).toContain("node_modules is a link to an install that lacks packages");
    expect(project.calls()).toEqual([]);
  }));

test("an install that failed ends with its code and is tried again", () =>
  inProject(async (project) => {
    project.write("npm-fails", "");
    const failed = await project.run("start.mjs").done;
    expect(failed).toMatchObject({ code: 9, stdout: "" });
    expect(failed.stderr).toContain("flagstone: npm failed");
    rmSync(project.at("npm-fails"));
    await project.run("start.mjs").done;
    expect(project.calls()).toEqual([install, install, "tsc"]);
  }));

test("a build that failed ends with its code and is tried again", () =>
  inProject(async (project) => {
    project.write("tsc-fails", "");
    expect(await project.run("start.mjs").done).toMatchObject({ code: 2, stdout: "" });
    rmSync(project.at("tsc-fails"));
    expect((await project.run("start.mjs").done).code).toBe(7);
    expect(project.calls()).toEqual([install, "tsc", "tsc"]);
  }));

test("a Node.js that is too old is told so before anything is installed", () =>
  inProject(async (project) => {
    const pretend = `Object.defineProperty(process, "versions", { value: { node: "18.20.1" } })`;
    const { code, stderr } = await project.run(
      "start.mjs",
      `--import=data:text/javascript,${encodeURIComponent(pretend)}`,
    ).done;
    expect(code).toBe(4);
    expect(stderr).toContain("Flagstone needs Node.js 20.19 or newer");
    expect(project.calls()).toEqual([]);
  }));
