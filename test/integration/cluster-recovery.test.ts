// Two of three nodes are lost for good: the third goes on alone, on words that somebody typed, with all
// that it has; then a new one joins. Real processes, formed from a list of three first members.

import { execFile } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { launcherPath } from "../support/broker-process.ts";
import { type LaunchedMember, spawnNode } from "../support/cluster-launch.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const names = ["n1", "n2", "n3"];
const base = 11_000 + (process.pid % 2_000) * 4;

const run = promisify(execFile);
const flagstone = async (cwd: string, ...args: string[]): Promise<string> =>
  (await run(process.execPath, [launcherPath(), ...args], { cwd })).stdout;

const topicsAt = async (node: LaunchedMember): Promise<string[]> => {
  const { items } = await node.call("GET", "/history?filter=%23&limit=1000");
  return items.map(({ topic }: { topic: string }) => topic).sort();
};

const publish = (node: LaunchedMember, topic: string): Promise<unknown> =>
  node.call("POST", "/publish", { topic, payload: "x" });

test("the last of three goes on alone with all it has, on typed words, and never by itself", () =>
  withTemporaryFolder(async (folder) => {
    const seeds = names.map((name, at) => `${name}=127.0.0.1:${base + at}`);
    const keysOf = (name: string) => {
      const port = base + names.indexOf(name);
      return { name: "plant", storeOnly: true, node: name, expect: 3, seeds, port };
    };
    const [n1, n2, n3] = (await Promise.all(
      names.map((name) => spawnNode(folder, name, keysOf(name))),
    )) as [LaunchedMember, LaunchedMember, LaunchedMember];
    const acked: string[] = [];
    const take = async (node: LaunchedMember, topic: string): Promise<void> => {
      await publish(node, topic);
      acked.push(topic);
    };
    for (let at = 10; at < 30; at++) await take(n3, `of-three/${at}`);
    // From here on each ack is of both others.
    await n3.kill();
    for (let at = 10; at < 30; at++) await take(n1, `of-two/${at}`);
    await n2.kill();
    await n1.kill();
    const config = ["cluster", "recover", "--config", "n1.json.yaml"];
    const second = await flagstone(folder, ...config.with(3, "n2.json.yaml"), "-o", "json");
    writeFileSync(join(folder, "n2.survey"), second);
    for (const name of ["n2", "n3"]) rmSync(join(folder, name), { recursive: true });

    const looked = await flagstone(folder, ...config, "--with", "n2.survey");
    expect(looked).toMatch(/GROUP +NODE +EPOCH +TERM +INDEX +WRITTEN +BEHIND/);
    expect(looked).toContain("Nothing is changed.");
    const words = /--confirm "(recover plant from node \d at \d+\/\d+ as epoch 2)"/.exec(
      looked,
    )?.[1];
    if (words === undefined) throw new Error(looked);
    await expect(flagstone(folder, ...config, "--confirm", `${words}!`)).rejects.toThrow(
      "does not go on alone: it takes the words",
    );
    const told = await flagstone(folder, ...config, "--confirm", words);
    expect(told).toContain("is the only voter of all its groups: start it");
    await expect(flagstone(folder, ...config, "--confirm", words)).rejects.toThrow("start it");

    await using alone = disposable(await spawnNode(folder, "n1", keysOf("n1"), n1.key));
    expect(await topicsAt(alone.node)).toEqual(acked.toSorted());
    await take(alone.node, "of-one/1");
    await alone.node.call("PUT", "/cluster/replicas", { count: 1 });
    const { node, sites } = await alone.node.call("GET", "/cluster");
    for (const site of sites) {
      if (site.node !== node) await alone.node.call("POST", `/cluster/sites/${site.node}/forget`);
    }
    await take(alone.node, "of-one/2");
    expect(await topicsAt(alone.node)).toEqual(acked.toSorted());
  }));

function disposable(node: LaunchedMember) {
  return { node, [Symbol.asyncDispose]: () => node.kill() };
}
