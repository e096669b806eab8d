// A replicated key-value store of real processes under kill -9, SIGSTOP, cuts and a full disk: what
// its clients saw must be linearizable.

import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { SeededRandom } from "../../src/base/index.ts";
import { findAnomaly } from "../../src/raft/index.ts";
import { KvCluster, type KvNode, sleep } from "../support/raft-processes.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const seed = process.env.FLAGSTONE_SEED ?? "1";
const faults = process.env.FLAGSTONE_LONG === "1" ? 60 : 12;
const ran = new Map<string, number>();

function count(what: string): void {
  ran.set(what, (ran.get(what) ?? 0) + 1);
}

function judge(cluster: KvCluster): void {
  for (const [key, history] of cluster.histories) {
    expect(`${key}: ${findAnomaly(history) ?? "linearizable"}`).toBe(`${key}: linearizable`);
  }
  expect(cluster.acks.length).toBeGreaterThan(20);
}

async function strike(cluster: KvCluster, random: SeededRandom): Promise<void> {
  const leader = (await cluster.leader()) ?? (cluster.nodes[0] as KvNode);
  const victim = random.chance(0.6) ? leader : random.pick(cluster.nodes);
  const what = random.pick(["kill -9", "kill -9", "SIGSTOP", "cut", "one-way cut"]);
  count(what);
  if (what === "kill -9") {
    await victim.stop("SIGKILL");
    await sleep(random.between(0, 1_500));
    victim.start();
  } else if (what === "SIGSTOP") {
    victim.signal("SIGSTOP");
    await sleep(random.between(500, 4_000));
    victim.signal("SIGCONT");
  } else {
    for (const other of cluster.nodes) {
      cluster.cut(victim.node, other.node);
      if (what === "cut") cluster.cut(other.node, victim.node);
    }
    await sleep(random.between(500, 4_000));
    cluster.mend();
  }
  await sleep(random.between(500, 1_500));
}

for (const size of [3, 5]) {
  test(`a store of ${size} processes stays linearizable under kills, stops and cuts`, () =>
    withTemporaryFolder(async (folder) => {
      const random = new SeededRandom(`${seed} ${size}`);
      const cluster = await KvCluster.start(folder, size);
      try {
        let isOver = false;
        const clients = ["a", "b", "c", "a", "b"].map((key) => cluster.client(key, () => isOver));
        const endMs = performance.now() + 60_000;
        while (cluster.acks.length < 10 && performance.now() < endMs) await sleep(50);
        for (let fault = 0; fault < faults / 2; fault++) await strike(cluster, random);
        isOver = true;
        await Promise.all(clients);
        for (const node of cluster.nodes) if (!node.isUp) node.start();
        await cluster.readAll();
        judge(cluster);
        const stall = (cluster.longestStallMs() / 1000).toFixed(1);
        const what = [...ran].map(([name, times]) => `${times} ${name}`).join(", ");
        console.log(
          `${size} processes, seed ${seed}: ${cluster.acks.length} writes acknowledged, longest stall ${stall} s; so far ${what}`,
        );
      } finally {
        await cluster.close();
      }
    }));
}

test("a store goes on, and comes back to its size, when the volume of one is full", () =>
  withTemporaryFolder(async (folder) => {
    const small = join(folder, "small");
    mkdirSync(small);
    const isMounted =
      process.getuid?.() === 0 &&
      spawnSync("mount", ["-t", "tmpfs", "-o", "size=6m", "tmpfs", small]).status === 0;
    const dirOf = (node: number): string => join(node === 1 ? small : folder, `n${node}`);
    const cluster = await KvCluster.start(folder, 3, dirOf);
    try {
      let isOver = false;
      const padding = "p".repeat(20_000);
      const clients = ["a", "b"].map((key) => cluster.client(key, () => isOver, padding));
      const endMs = performance.now() + 90_000;
      while (cluster.acks.length < 600 && performance.now() < endMs) await sleep(50);
      isOver = true;
      await Promise.all(clients);
      for (const node of cluster.nodes) if (!node.isUp) node.start();
      await cluster.readAll();
      judge(cluster);
      const where = isMounted ? "node 1 on a tmpfs of 6 MiB" : "no small volume: not root";
      console.log(`${cluster.acks.length} writes of 20 kB acknowledged, ${where}`);
    } finally {
      await cluster.close();
      if (isMounted) spawnSync("umount", [small]);
    }
  }));
