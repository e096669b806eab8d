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
import { createSettings, startNode } from "flagstone";
import { encodePacket } from "flagstone/mqtt";
import { Raft } from "flagstone/raft";
import { storeSettingsDefault } from "flagstone/store";

const settings = createSettings({ data: { dir: "./data" }, listeners: { tcp: { port: 0 } } });
const node = await startNode(settings);
const [listener] = node.listeners;
if (listener === undefined) throw new Error("nothing listens");
const packet = encodePacket({ type: "pingreq" }, 5);
const socket = connect(listener.port, listener.host);
socket.on("connect", () => socket.end(packet));
await new Promise((resolve) => socket.on("close", resolve));
await node.close();
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
      "dist/mqtt/index.d.ts",
    ]) {
      expect(files).toContain(path);
    }
    const strangers = files.filter(
      (path) =>
        !/^(dist\/.*\.(js|cjs|d\.ts)|docs\/.*\.md|config\/[^/]+)$/.test(path) &&
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
