// The package as npm would publish it: what is in it, that it is well made by the word of publint and
// attw, and that it works where npm has installed it into an empty folder: for programs in ESM and
// CommonJS, for a compiler, and by its command.

import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const execute = promisify(execFile);
const bin = (name: string): string => join(root, "node_modules/.bin", name);

type Manifest = {
  readonly version: string;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly bin: Readonly<Record<string, string>>;
  readonly exports: Readonly<Record<string, unknown>>;
};

type TypesReport = {
  readonly analysis: { readonly entrypoints: Readonly<Record<string, unknown>> };
  readonly problems?: Readonly<
    Record<string, ReadonlyArray<{ readonly kind: string; readonly resolutionKind?: string }>>
  >;
};

type Locked = { readonly dependencies?: Readonly<Record<string, string>> };
type Lock = { readonly packages: Readonly<Record<string, Locked>> };

let folder = "";
let tarball = "";
let manifest: Manifest;
let files: readonly string[] = [];

beforeAll(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), "flagstone-package-")));
  manifest = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  const args = ["pack", "--json", "--ignore-scripts", "--pack-destination", folder];
  const { stdout } = await execute("npm", args, { cwd: root });
  const [packed] = JSON.parse(stdout) as Array<{
    filename: string;
    files: Array<{ path: string }>;
  }>;
  if (packed === undefined) throw new Error("npm packed nothing");
  files = packed.files.map(({ path }) => path);
  tarball = join(folder, packed.filename);
  await install(packed.filename);
});

afterAll(() => rm(folder, { recursive: true, force: true }));

/**
 * The packed file and what it depends on, as npm puts them into an empty folder; in the versions of
 * this checkout's lock, which are in npm's cache as a rule, so that no registry is asked.
 */
async function install(filename: string): Promise<void> {
  const lock: Lock = JSON.parse(await readFile(join(root, "package-lock.json"), "utf8"));
  const dependencies = { flagstone: `file:${filename}` };
  const { version, dependencies: own, bin: commands } = manifest;
  const packages = {
    "": { name: "program", dependencies },
    "node_modules/flagstone": {
      ...{ version, resolved: `file:${filename}`, dependencies: own, bin: commands },
    },
    ...neededBy(own, lock),
  };
  const program = { name: "program", private: true, type: "module", dependencies };
  await writeFile(join(folder, "package.json"), JSON.stringify(program));
  const text = JSON.stringify({ name: "program", lockfileVersion: 3, requires: true, packages });
  await writeFile(join(folder, "package-lock.json"), text);
  await execute("npm", ["ci", "--prefer-offline", "--no-audit", "--no-fund"], { cwd: folder });
}

/** Of the lock, what these need, and what that needs. */
function neededBy(dependencies: Manifest["dependencies"], lock: Lock): Record<string, Locked> {
  const needed: Record<string, Locked> = {};
  const take = (names: readonly string[], from: string): void => {
    for (const name of names) {
      const nested = `${from}/node_modules/${name}`;
      const path = nested in lock.packages ? nested : `node_modules/${name}`;
      const locked = lock.packages[path];
      if (locked === undefined) throw new Error(`${name} is not locked`);
      if (path in needed) continue;
      needed[path] = locked;
      take(Object.keys(locked.dependencies ?? {}), path);
    }
  };
  take(Object.keys(dependencies), "");
  return needed;
}

const program = `
import { connect } from "node:net";
import { createBroker, createSettings, type Hooks, type InsideMessage, startNode } from "flagstone";
import { type AdminClient } from "flagstone/admin";
import { type AedesPacket, createPersistence, type StorePersistence } from "flagstone/aedes";
import { type BackendRig, backendContract, type ContractRule } from "flagstone/contracts";
import { encodePacket } from "flagstone/mqtt";
import { Raft } from "flagstone/raft";
import { MemoryMachine, openLocalStore, storeSettingsDefault } from "flagstone/store";

const settings = createSettings({ data: { dir: "./data" }, listeners: { tcp: { port: 0 } } });
const node = await startNode(settings);
const [listener] = node.listeners;
if (listener === undefined) throw new Error("nothing listens");
const packet = encodePacket({ type: "pingreq" }, 5);
const socket = connect(listener.port, listener.host);
socket.on("connect", () => socket.end(packet));
await new Promise((resolve) => socket.on("close", resolve));
await node.close();

const hooks: Hooks = {
  authorizePublish: async (client, { topic }) => (client.user === undefined ? { topic } : false),
};
const broker = await createBroker({ memory: true, clock: "manual", hooks });
const cancel = broker.on("published", (client, publish) => publish.payload.length + client.clientId.length);
{
  await using other = await createBroker({ memory: true });
  const failed: Promise<never> = other.failed;
  failed.catch(() => undefined);
}
const messages = await broker.subscribe("a");
await broker.publish("a", "text", { qos: 2, properties: { contentType: "text/plain" } });
const next: IteratorResult<InsideMessage> = await messages.next();
const text: string = next.done ? "" : next.value.payload.toString();
const value: number = await broker.transact("owner", async (tx) => (await tx.list("", 1)).length);
const persistence: StorePersistence = createPersistence(node.store);
const kept: AedesPacket | undefined = undefined;
await messages.close();
cancel();
await broker.close();
if (text !== "text" || value !== 0 || kept !== undefined || persistence.broker !== undefined) {
  throw new Error("not what was expected");
}
const openRig = async (): Promise<BackendRig> => {
  const clock = { wallUs: () => 1e15, elapsedMs: () => 0, schedule: () => () => undefined, soon: setImmediate };
  const memory = new MemoryMachine(clock);
  return {
    run: (promise) => promise,
    open: async (settings = {}) => (await openLocalStore({ memory, settings, clock })).store,
    end: async () => memory.kill(),
    close: async () => undefined,
  };
};
const rules: ContractRule[] = backendContract(openRig);
await rules[0]?.run();
/** Not run: what the compiler refuses. */
export function wrong(admin: AdminClient): void {
  // @ts-expect-error: no such event
  broker.on("nothing", () => undefined);
  // @ts-expect-error: a QoS is 0, 1 or 2
  broker.publish("a", "x", { qos: 3 });
  // @ts-expect-error: a hook that refuses says so
  createBroker({ memory: true, hooks: { authorizePublish: () => "no" } });
  // @ts-expect-error: no such option
  createBroker({ memory: true, prot: 1883 });
  // @ts-expect-error: bytes
  broker.transact("owner", async (tx) => tx.put("key", 7));
  // @ts-expect-error: no such operation
  admin.nothing();
}
console.log(JSON.stringify({ packet: packet.toString("hex"), shards: storeSettingsDefault.shards, raft: typeof Raft }));
`;

test("the package holds what runs and what explains it, and nothing else", () => {
  for (const path of [
    "package.json",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "config/flagstone.yaml",
    "config/flagstone.schema.json",
    "docs/reference/configuration.md",
    "dist/cli/main.cjs",
    "dist/node/index.js",
    "dist/node/index.d.ts",
    "dist/store/index.d.ts",
    "dist/contracts/index.d.ts",
    "dist/mqtt/index.d.ts",
  ]) {
    expect(files).toContain(path);
  }
  const strangers = files.filter(
    (path) =>
      !/^(dist\/.*\.(js|cjs|d\.ts)|docs\/.*\.md|config\/(examples\/)?[^/]+)$/.test(path) &&
      !/^(package\.json|README\.md|LICENSE|CHANGELOG\.md)$/.test(path),
  );
  expect(strangers).toEqual([]);
});

test("publint finds nothing to say about it", async () => {
  const { stdout } = await execute(bin("publint"), ["run", tarball, "--strict"], { cwd: root });
  expect(stdout).toContain("All good!");
});

test("attw resolves the types of every face, in ESM, in CommonJS and for bundlers", async () => {
  const args = [tarball, "--profile", "node16", "--ignore-rules", "cjs-resolves-to-esm"];
  const options = ["--no-definitely-typed", "--format", "json"];
  const { stdout } = await execute(bin("attw"), [...args, ...options], { cwd: root });
  const { analysis, problems = {} } = JSON.parse(stdout) as TypesReport;
  expect(Object.keys(analysis.entrypoints).sort()).toEqual(Object.keys(manifest.exports).sort());
  // CommonJS gets the ES modules themselves: Node 20.19 can require them, as a test below does. The
  // resolution of Node before 12.7 knows no exports.
  const others = Object.values(problems)
    .flat()
    .filter(({ kind, resolutionKind }) => {
      return kind !== "CJSResolvesToESM" && resolutionKind !== "node10";
    });
  expect(others).toEqual([]);
});

test("a program in TypeScript can embed a node, and its types hold", async () => {
  const types = join(folder, "node_modules/@types/node");
  await mkdir(dirname(types), { recursive: true });
  await symlink(join(root, "node_modules/@types/node"), types);
  await writeFile(join(folder, "program.ts"), program);
  const compiler = join(root, "node_modules/typescript/bin/tsc");
  const options = ["--module", "nodenext", "--target", "es2023", "--strict", "--types", "node"];
  await execute(process.execPath, [compiler, ...options, "program.ts"], { cwd: folder });
  const { stdout } = await execute(process.execPath, ["program.js"], { cwd: folder });
  expect(JSON.parse(stdout)).toEqual({ packet: "c000", shards: 4, raft: "function" });
});

const faces = ["", "/store", "/mqtt", "/raft", "/aedes", "/admin", "/contracts"];

/** The same broker by both ways in. */
const broker = `
const broker = await createBroker({ memory: true });
await broker.publish("a", "kept", { retain: true });
await broker.crash();
console.log((await broker.retained("a")).payload.toString(), faces.join());
await broker.close();
`;

test("ESM programs can import every face and run a broker", async () => {
  const text = `
import { createBroker } from "flagstone";
const faces = await Promise.all(${JSON.stringify(faces)}.map((face) => import("flagstone" + face)));
for (const [at, face] of faces.entries()) faces[at] = typeof face;
${broker}`;
  await writeFile(join(folder, "program.mjs"), text);
  const { stdout, stderr } = await execute(process.execPath, ["program.mjs"], { cwd: folder });
  expect(stderr).toBe("");
  expect(stdout).toBe(`kept ${faces.map(() => "object").join()}\n`);
});

test("CommonJS programs can require every face and run a broker", async () => {
  const text = `
const { createBroker } = require("flagstone");
const faces = ${JSON.stringify(faces)}.map((face) => typeof require("flagstone" + face));
(async () => {${broker}})();`;
  await writeFile(join(folder, "program.cjs"), text);
  const { stdout } = await execute(process.execPath, ["program.cjs"], { cwd: folder });
  expect(stdout).toBe(`kept ${faces.map(() => "object").join()}\n`);
});

test("its command runs by the name that npm linked", async () => {
  const command = join(folder, "node_modules/.bin/flagstone");
  const { stdout } = await execute(command, ["version"], { cwd: folder });
  expect(stdout).toMatch(/^flagstone \d+\.\d+\.\d+ \(node /);
  const help = await execute(command, ["pub", "--help"], { cwd: folder });
  expect(help.stdout).toContain("  flagstone pub -t demo/hello -m world -q 1");
});
