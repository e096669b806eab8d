// A replicated key-value store of real processes under kill -9, SIGSTOP, cuts and a full disk: what
// its clients saw must be linearizable, and a fail-over must not take long. The closing lines say
// what ran.

import { spawnSync } from "node:child_process";
import { closeSync, mkdirSync, openSync, rmSync, statfsSync, writeSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { SeededRandom } from "../../src/base/index.ts";
import { findAnomaly } from "../../src/raft/index.ts";
import { isLong } from "../support/amount.ts";
import { NamespaceLinks } from "../support/raft-links.ts";
import { KvCluster, type KvNode, sleep, slowdownNow } from "../support/raft-processes.ts";
import { cutOff, kill, pause, type Strike } from "../support/strikes.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const seed = process.env.FLAGSTONE_SEED ?? "1";
const faults = isLong ? 40 : 7;
const volumeBytes = 6 * 1024 * 1024;
/** Two MiB of log that are kept for the others, segments begun and spare ones, a snapshot. */
const keptBytesMax = 5.5 * 1024 * 1024;
/** With an election of 1 to 2 s, and clients that wait 3 s for an answer. */
const failoverMsMax = 8_000;
/** The limit leaves room for a machine that is this busy, and grows on one that is busier. */
const slowdownMax = 2;

class Tally {
  readonly #counts = new Map<string, number>();

  note(what: string): void {
    this.#counts.set(what, (this.#counts.get(what) ?? 0) + 1);
  }

  toString(): string {
    return [...this.#counts].map(([name, times]) => `${times} ${name}`).join(", ");
  }
}

/** The last word, if it is not an option of the tool, is typed. */
function recover(...words: string[]) {
  const isForced = words.includes("--force");
  const typed = isForced ? words.at(-1) : undefined;
  const script = fileURLToPath(new URL("../../scripts/raft-recover.mjs", import.meta.url));
  const given = [script, ...(isForced ? words.slice(0, -1) : words)];
  return spawnSync(process.execPath, given, { input: `${typed ?? ""}\n`, encoding: "utf8" });
}

function judge(cluster: KvCluster): void {
  for (const [key, history] of cluster.histories) {
    expect(`${key}: ${findAnomaly(history) ?? "linearizable"}`).toBe(`${key}: linearizable`);
  }
  expect(cluster.acks.length).toBeGreaterThan(20);
}

const strikes: ReadonlyArray<readonly [string, Strike<KvCluster>]> = [
  ["kill -9", kill],
  ["kill -9", kill],
  ["SIGSTOP", pause],
  ["cut", cutOff(true)],
  ["one-way cut", cutOff(false)],
];

/** Writes until the volume takes no more. */
function fillVolume(path: string): void {
  const file = openSync(path, "w");
  try {
    for (;;) writeSync(file, Buffer.alloc(16 * 1024));
  } catch (error) {
    expect((error as NodeJS.ErrnoException).code).toBe("ENOSPC");
  } finally {
    closeSync(file);
  }
}

function usedBytes(volume: string): number {
  const { bsize, blocks, bfree } = statfsSync(volume);
  return bsize * (blocks - bfree);
}

/** Clients write and read while faults strike, half of them and more at the leader. */
async function besiege(
  cluster: KvCluster,
  random: SeededRandom,
  given: typeof strikes,
): Promise<string> {
  let isOver = false;
  const tally = new Tally();
  const clients = ["a", "b", "c", "a", "b"].map((key) => cluster.client(key, () => isOver));
  await cluster.untilAcked(10);
  const places = random.below(given.length);
  const slowdowns: number[] = [];
  for (let fault = 0; fault < faults; fault++) {
    const leader = (await cluster.leader()) ?? (cluster.nodes[0] as KvNode);
    const victim = random.chance(0.6) ? leader : random.pick(cluster.nodes);
    const [name, strike] = given[(places + fault) % given.length] as (typeof strikes)[number];
    tally.note((await strike(cluster, victim, random)) ?? name);
    slowdowns.push(slowdownNow());
    await sleep(random.between(500, 1_500));
  }
  isOver = true;
  await Promise.all(clients);
  for (const node of cluster.nodes) if (!node.isUp) node.start();
  await cluster.readAll();
  judge(cluster);
  const stalls = cluster.stallsMs();
  const late = stalls[Math.floor(stalls.length / 100)] ?? 0;
  slowdowns.sort((one, other) => one - other);
  const slowdown = slowdowns[Math.floor(slowdowns.length / 2)] ?? 1;
  expect(late).toBeLessThan(failoverMsMax * Math.max(1, slowdown / slowdownMax));
  const longest = ((stalls[0] ?? 0) / 1000).toFixed(1);
  const written = `${cluster.acks.length} writes acknowledged, ${stalls.length} stalls`;
  return `${written}, longest ${longest} s; ${tally}; ${slowdown.toFixed(1)} times slowed down`;
}

for (const size of [3, 5]) {
  test(`a store of ${size} processes stays linearizable under kills, stops and cuts`, () =>
    withTemporaryFolder(async (folder) => {
      const cluster = await KvCluster.start(folder, size);
      try {
        const told = await besiege(cluster, new SeededRandom(`${seed} ${size}`), strikes);
        console.log(`${size} processes behind proxies, seed ${seed}: ${told}`);
      } finally {
        await cluster.close();
      }
    }));
}

test("a store stays linearizable on networks that drop packets without a word", () =>
  withTemporaryFolder(async (folder) => {
    const links = NamespaceLinks.open(3);
    if (links === undefined) {
      console.log("network namespaces: not run, since they need root and ip");
      return;
    }
    const unplug: Strike<KvCluster> = async (_cluster, victim, random) => {
      links.unplug(victim.node);
      await sleep(random.between(500, 4_000));
      links.mend();
      return undefined;
    };
    const impair: Strike<KvCluster> = async (cluster, victim, random) => {
      const done = links.impair(victim.node);
      links.impair(random.pick(cluster.nodes).node);
      await sleep(random.between(1_000, 4_000));
      links.mend();
      return done;
    };
    const own: typeof strikes = [
      ["unplugged", unplug],
      ["kill -9", kill],
      ["cut", cutOff(true)],
      ["one-way cut", cutOff(false)],
      ["impaired", impair],
    ];
    const cluster = await KvCluster.start(folder, 3, { links });
    try {
      const told = await besiege(cluster, new SeededRandom(`${seed} namespaces`), own);
      console.log(`3 processes in network namespaces, seed ${seed}: ${told}`);
    } finally {
      await cluster.close();
    }
  }));

test("a store that lost its majority for good goes on from the replica that the survey ranks first", () =>
  withTemporaryFolder(async (folder) => {
    const cluster = await KvCluster.start(folder, 3);
    try {
      let isOver = false;
      const clients = ["a", "b"].map((key) => cluster.client(key, () => isOver));
      await cluster.untilAcked(210);
      expect(recover(join(folder, "n1")).stderr).toContain("in use by another process");
      for (const node of cluster.nodes) await node.stop("SIGKILL");
      isOver = true;
      await Promise.all(clients);
      // The machine of node 3 is gone. What a majority acknowledged is on one of the others.
      const dirOf = (node: number): string => join(folder, `n${node}`);
      const survey = recover(dirOf(1), dirOf(2));
      expect(survey.status, survey.stderr).toBe(0);
      const best = Number(/node (\d)/.exec(survey.stdout)?.[1]);
      const force = [dirOf(best), "--group", "1", "--force"];
      expect(recover(...force, "yes").stderr).toContain('it takes the words "recover group 1');
      const words = /^recover group .*$/m.exec(recover(...force, "").stdout)?.[0] ?? "";
      const done = new RegExp(`epoch 2; .*; voters ${best}$`, "m");
      expect(recover(...force, words).stdout).toMatch(done);
      cluster.nodes.splice(0, 3, cluster.nodes[best - 1] as KvNode);
      cluster.nodes[0]?.start();
      await cluster.readAll();
      judge(cluster);
      console.log(
        `recovered from node ${best} of 3: ${survey.stdout.trim().split("\n").join(" | ")}`,
      );
    } finally {
      await cluster.close();
    }
  }));

test("a store goes on, and comes back to its size, when the volume of one is full", () =>
  withTemporaryFolder(async (folder) => {
    const small = join(folder, "small");
    mkdirSync(small);
    const isMounted =
      process.getuid?.() === 0 &&
      spawnSync("mount", ["-t", "tmpfs", "-o", "size=6m", "tmpfs", small]).status === 0;
    const dirOf = (node: number): string => join(node === 1 ? small : folder, `n${node}`);
    const cluster = await KvCluster.start(folder, 3, { dirOf });
    try {
      const [node] = cluster.nodes as [KvNode];
      let isOver = false;
      const padding = "p".repeat(20_000);
      const clients = ["a", "b"].map((key) => cluster.client(key, () => isOver, padding));
      await cluster.untilAcked(300);
      // Somebody else takes what is left of the volume, until the log has met its end.
      const ballast = join(small, "ballast");
      if (isMounted) fillVolume(ballast);
      const isFull = (): boolean => !isMounted || node.timesTold("log.disk_full") > 0;
      await cluster.untilAcked(100, isFull);
      const fullBytes = usedBytes(small);
      const timesFull = node.timesTold("log.disk_full");
      rmSync(ballast, { force: true });
      await cluster.untilAcked(200);
      isOver = true;
      await Promise.all(clients);
      for (const each of cluster.nodes) if (!each.isUp) each.start();
      await cluster.readAll();
      judge(cluster);
      let where = "no small volume: not root";
      if (isMounted) {
        expect(timesFull).toBeGreaterThan(0);
        expect(fullBytes).toBeGreaterThan(volumeBytes - 64 * 1024);
        // What the node keeps is bounded, whatever went through it, and it went through here as well.
        await cluster.until(() => usedBytes(small) <= keptBytesMax, "the volume stays full");
        const left = (usedBytes(small) / 1024 / 1024).toFixed(1);
        where = `node 1 on a tmpfs of 6 MiB that was full, its log ${timesFull} times; ${left} MiB after`;
      }
      console.log(`${cluster.acks.length} writes of 20 kB acknowledged, ${where}`);
    } finally {
      await cluster.close();
      if (isMounted) spawnSync("umount", [small]);
    }
  }));
