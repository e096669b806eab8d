// The package as npm would publish it: what is in it, and that a program and a compiler can use it.
// Its dependencies are those of this checkout.

import { execFile } from "node:child_process";
import { chmod, mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const execute = promisify(execFile);

/** Packs this checkout and unpacks it as a dependency of an empty project. */
async function unpackInto(folder: string): Promise<string[]> {
  const args = ["pack", "--json", "--ignore-scripts", "--pack-destination", folder];
  const { stdout } = await execute("npm", args, { cwd: root });
  const [packed] = JSON.parse(stdout) as Array<{
    filename: string;
    files: Array<{ path: string }>;
  }>;
  if (packed === undefined) throw new Error("npm packed nothing");
  const target = join(folder, "node_modules/flagstone");
  await mkdir(target, { recursive: true });
  await execute("tar", ["-xzf", join(folder, packed.filename), "-C", target, "--strip=1"]);
  const manifest = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  for (const name of [...Object.keys(manifest.dependencies), "@types/node"]) {
    const link = join(folder, "node_modules", name);
    await mkdir(dirname(link), { recursive: true });
    await symlink(join(root, "node_modules", name), link);
  }
  await writeFile(join(folder, "package.json"), `{ "type": "module" }`);
  return packed.files.map(({ path }) => path);
}

const program = `
import { connect } from "node:net";
import { createBroker, createSettings, type Hooks, type InsideMessage, startNode } from "flagstone";
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
// @ts-expect-error: no such event
broker.on("nothing", () => undefined);
const messages = await broker.subscribe("a");
await broker.publish("a", "text", { qos: 2, properties: { contentType: "text/plain" } });
const next: IteratorResult<InsideMessage> = await messages.next();
const text: string = next.done ? "" : next.value.payload.toString();
const value: number = await broker.transact("owner", async (tx) => (await tx.list("", 1)).length);
const persistence: StorePersistence = createPersistence(node.store);
const kept: AedesPacket | undefined = undefined;
// @ts-expect-error: a QoS is 0, 1 or 2
broker.publish("a", "x", { qos: 3 }).catch(() => undefined);
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
console.log(JSON.stringify({ packet: packet.toString("hex"), shards: storeSettingsDefault.shards, raft: typeof Raft }));
`;

test("the package holds what runs and what explains it, and nothing else", () =>
  withTemporaryFolder(async (folder) => {
    const files = await unpackInto(folder);
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
  }));

test("a program can embed a node, and its types hold", () =>
  withTemporaryFolder(async (folder) => {
    await unpackInto(folder);
    await writeFile(join(folder, "program.ts"), program);
    const compiler = join(root, "node_modules/typescript/bin/tsc");
    const options = ["--module", "nodenext", "--target", "es2023", "--strict", "--types", "node"];
    await execute(process.execPath, [compiler, ...options, "program.ts"], { cwd: folder });
    const { stdout } = await execute(process.execPath, ["program.js"], { cwd: folder });
    expect(JSON.parse(stdout)).toEqual({ packet: "c000", shards: 4, raft: "function" });
  }));

test("CommonJS programs can require it", () =>
  withTemporaryFolder(async (folder) => {
    await unpackInto(folder);
    const faces = ["flagstone", "flagstone/store", "flagstone/mqtt", "flagstone/contracts"];
    const text = [...faces, "flagstone/raft", "flagstone/aedes"]
      .map((face) => `typeof require("${face}")`)
      .join(",");
    await writeFile(join(folder, "program.cjs"), `console.log([${text}].join());`);
    const { stdout } = await execute(process.execPath, ["program.cjs"], { cwd: folder });
    expect(stdout.trim()).toBe("object,object,object,object,object,object");
  }));

test("its command starts by the name that npm links", () =>
  withTemporaryFolder(async (folder) => {
    await unpackInto(folder);
    const installed = join(folder, "node_modules/flagstone");
    const manifest = JSON.parse(await readFile(join(installed, "package.json"), "utf8"));
    const main = join(installed, manifest.bin.flagstone);
    const command = join(folder, "flagstone");
    await symlink(main, command);
    await chmod(main, 0o755);
    const { stdout } = await execute(command, ["version"], { cwd: folder });
    expect(stdout).toMatch(/^flagstone \d+\.\d+\.\d+ \(node /);
    const help = await execute(command, ["pub", "--help"], { cwd: folder });
    expect(help.stdout).toContain("  flagstone pub -t demo/hello -m world -q 1");
  }));
