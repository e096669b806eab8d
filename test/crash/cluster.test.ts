// A replicated store of real processes on TCP, under kill -9, SIGSTOP and cuts: what was acked is on
// every replica, once and in order, and the replicas hold the same. The closing lines say what ran.

import { rmSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { nodeDisk, SeededRandom } from "../../src/base/index.ts";
import { readIdentity } from "../../src/raft/index.ts";
import { isLong } from "../support/amount.ts";
import { ClusterProcesses, shardGroups } from "../support/cluster-processes.ts";
import { ProxyLinks } from "../support/raft-links.ts";
import { type KvNode, sleep, slowdownNow } from "../support/raft-processes.ts";
import { cutOff, kill, pause, type Strike } from "../support/strikes.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const seed = process.env.FLAGSTONE_SEED ?? "1";
const faultsMin = Number(process.env.FLAGSTONE_FAULTS ?? (isLong ? 250 : 14));
const publishers = ["p1", "p2", "p3", "p4"];
/** With an election of 1 to 2 s. */
const stallMsMax = 8_000;
/** The limit leaves room for a machine that is this busy, and grows on one that is busier. */
const slowdownMax = 2;

const killAll: Strike<ClusterProcesses> = async ({ nodes }) => {
  await Promise.all(nodes.map((node) => node.stop("SIGKILL")));
  for (const node of nodes) node.start();
  return undefined;
};

const strikes: ReadonlyArray<readonly [string, Strike<ClusterProcesses>]> = [
  ["kill -9", kill],
  ["kill -9", kill],
  ["SIGSTOP", pause],
  ["kill -9", kill],
  ["cut", cutOff(true)],
  ["one-way cut", cutOff(false)],
  ["kill -9 of all", killAll],
];

/** Strikes the leader of a shard more often than not. */
async function besiege(cluster: ClusterProcesses, random: SeededRandom): Promise<string> {
  let isOver = false;
  const sending = publishers.map((name) => cluster.publish(name, () => isOver));
  const endMs = performance.now() + 240_000;
  while (cluster.acked.length < 50 && performance.now() < endMs) await sleep(50);
  expect(cluster.acked.length, cluster.told()).toBeGreaterThan(0);
  const counts = new Map<string, number>();
  const slowdowns: number[] = [];
  /** Times at which all were down together: no fail-over is quicker than their start. */
  const outages: Array<readonly [fromMs: number, toMs: number]> = [];
  for (let fault = 0; fault < faultsMin; fault++) {
    const [name, strike] = strikes[fault % strikes.length] as (typeof strikes)[number];
    const leader = await cluster.leader(random.pick(shardGroups));
    const isAimed = leader !== undefined && strike !== killAll && random.chance(0.7);
    const victim = isAimed ? leader : random.pick(cluster.nodes);
    const beginMs = performance.now();
    await strike(cluster, victim, random);
    const full = `${name}${isAimed ? " of a leader" : ""}`;
    counts.set(full, (counts.get(full) ?? 0) + 1);
    slowdowns.push(slowdownNow());
    await cluster.until("whole", () => cluster.isWhole());
    // The first acks behind it may have waited for a leader that is gone.
    await sleep(random.between(500, 2_500));
    if (strike === killAll) outages.push([beginMs, performance.now() + stallMsMax]);
  }
  isOver = true;
  await Promise.all(sending);
  await cluster.settle();
  expect(await cluster.faults()).toEqual([]);
  slowdowns.sort((one, other) => one - other);
  const slowdown = slowdowns[Math.floor(slowdowns.length / 2)] ?? 1;
  const stallsMs = stallsOf(cluster.ackMs, outages);
  const longestMs = stallsMs[Math.floor(stallsMs.length / 100)] ?? 0;
  expect(longestMs).toBeLessThan(stallMsMax * Math.max(1, slowdown / slowdownMax));
  const told = [...counts].map(([name, times]) => `${times} ${name}`).join(", ");
  const acks = `${cluster.acked.length} appends acked, ${cluster.unanswered} of unknown fate`;
  const stalls = `${stallsMs.length} stalls, longest ${(longestMs / 1000).toFixed(1)} s`;
  return `${acks}, ${stalls}; ${told}; ${slowdown.toFixed(1)} times slowed down`;
}

/** Times without an ack that are worth a word, longest first. */
function stallsOf(
  moments: readonly number[],
  outages: ReadonlyArray<readonly [fromMs: number, toMs: number]>,
): number[] {
  const sorted = [...moments].sort((one, other) => one - other);
  const gaps = sorted.flatMap((moment, place) => {
    const before = sorted[place - 1] ?? moment;
    const isOutage = outages.some(([fromMs, toMs]) => before < toMs && moment > fromMs);
    return isOutage ? [] : [moment - before];
  });
  return gaps.filter((gapMs) => gapMs > 500).sort((one, other) => other - one);
}

test("three processes lose no acked append under kills, stops and cuts, and hold the same", () =>
  withTemporaryFolder(async (folder) => {
    const cluster = await ClusterProcesses.start(folder, 3);
    try {
      const told = await besiege(cluster, new SeededRandom(`cluster ${seed}`));
      console.log(`3 processes behind proxies, seed ${seed}: ${told}`);
    } finally {
      await cluster.close();
    }
  }));

const groups = [0, ...shardGroups];

test("a site that joins takes the place of a dead one while publishers go on, and leaders are even", () =>
  withTemporaryFolder(async (folder) => {
    const cluster = await ClusterProcesses.start(folder, 3);
    const [first, , third] = cluster.nodes as [KvNode, KvNode, KvNode];
    let isOver = false;
    const areAt = async (nodes: string): Promise<boolean> =>
      (await cluster.voters(groups)).every((voters) => voters === nodes);
    try {
      const sending = publishers.map((name) => cluster.publish(name, () => isOver));
      await cluster.until("200 acks", async () => cluster.acked.length >= 200, 240_000);
      await cluster.until("even", async () => Math.max(...(await cluster.leads())) <= 2);
      await cluster.until("formed", () => areAt("1,2,3"));

      // Its disk is gone with it.
      await third.stop("SIGKILL");
      rmSync(cluster.dirOf(3), { recursive: true });
      cluster.nodes.splice(2, 1);
      expect(await cluster.change(first, { kind: "forget", node: 3 })).toContain(
        "without node 3 2 sites are left for 3 replicas: join another site first",
      );
      const { clusterId } = await readIdentity(nodeDisk, join(cluster.dirOf(1), "raft"));
      const fourth = await cluster.join(4, first, clusterId);
      const isActive = async (): Promise<boolean> => {
        const { sites } = await cluster.roster(first);
        return sites.some(({ name, state }) => name === "n4" && state === "active");
      };
      await cluster.until("active", isActive);
      await cluster.until(
        "open",
        async () => (await fourth.ask({ op: "status" }))?.value !== undefined,
      );
      expect(await cluster.change(fourth, { kind: "forget", node: 3 })).toEqual({ ok: true });
      await cluster.until("moved", () => areAt("1,2,4"));
      const before = cluster.acked.length;
      await cluster.until("300 more acks", async () => cluster.acked.length >= before + 300);

      isOver = true;
      await Promise.all(sending);
      await cluster.settle();
      expect(await cluster.faults()).toEqual([]);
      await cluster.until("even", async () => Math.max(...(await cluster.leads())) <= 2);
      await first.ask({ op: "drain" }, 20_000);
      expect((await cluster.leads())[0]).toBe(0);
      console.log(`node 4 took the place of node 3: ${cluster.acked.length} appends acked`);
    } finally {
      isOver = true;
      await cluster.close();
    }
  }));

test("a local directory grows to three members under kills and publishers, and nothing is lost", () =>
  withTemporaryFolder(async (folder) => {
    const random = new SeededRandom(`grow ${seed}`);
    const links = await ProxyLinks.open(folder, 3);
    const cluster = await ClusterProcesses.grow(folder, links, 1_500);
    const first = cluster.nodes[0] as KvNode;
    let isOver = false;
    /** One after the other: while it joins, is sent what it lacks, and has become a voter. */
    const killSome = async (count: number): Promise<void> => {
      for (let kills = 0; kills < count; kills++) {
        await sleep(random.between(100, 2_500));
        const victim = random.pick(cluster.nodes);
        await victim.stop("SIGKILL");
        victim.start();
      }
    };
    try {
      const { clusterId } = await readIdentity(nodeDisk, join(cluster.dirOf(1), "raft"));
      const sending = publishers.map((name) => cluster.publish(name, () => isOver));
      const before = cluster.acked.length;
      await cluster.until("100 acks", async () => cluster.acked.length >= before + 100, 240_000);
      for (const number of [2, 3]) {
        await cluster.join(number, first, clusterId);
        await killSome(4);
        const voters = cluster.nodes.map(({ node }) => node).join();
        await cluster.until(`voted by ${voters}`, async () =>
          (await cluster.voters(groups)).every((each) => each === voters),
        );
        await cluster.until("whole", () => cluster.isWhole());
      }
      isOver = true;
      await Promise.all(sending);
      await cluster.settle();
      expect(await cluster.faults()).toEqual([]);
      const acks = `${cluster.acked.length} appends acked, 1,500 of them before it was a cluster`;
      console.log(`one became three, seed ${seed}: ${acks}; 8 kill -9`);
    } finally {
      isOver = true;
      await cluster.close();
    }
  }));

test("a node that cannot be the member it says is refused in a sentence, and the others go on", () =>
  withTemporaryFolder(async (folder) => {
    const cluster = await ClusterProcesses.start(folder, 3);
    const [first, , third] = cluster.nodes as [KvNode, KvNode, KvNode];
    try {
      const isOpen = async (): Promise<boolean> =>
        (await first.ask({ op: "append", topic: "t", publisher: "p", value: "p.1" }))?.value !==
        undefined;
      await cluster.until("open", isOpen, 240_000);
      expect(await cluster.refusalOf(3, {})).toContain("in use by another process");
      await third.stop("SIGKILL");
      expect(await cluster.refusalOf(3, { clockAheadMs: 3_600_000 })).toMatch(
        /CLUSTER_CLOCK_OFF the clock of this node is 3[56]\d{5} ms ahead of node \d's; 10000 ms/,
      );
      const members = [1, 2, 4].map((node) => ({ name: `n${node}`, address: { path: "/none" } }));
      const founding = { cluster: "test", members };
      expect(await cluster.refusalOf(3, { founding })).toContain(
        "CLUSTER_FOUNDING_INVALID the cluster test cannot be formed: n3 is not among",
      );
      expect(await cluster.refusalOf(3, { founding, name: "n4" })).toContain(
        "RAFT_IDENTITY_FOREIGN",
      );
      // An empty disk under the old name.
      rmSync(cluster.dirOf(3), { recursive: true });
      expect(await cluster.refusalOf(3, {})).toMatch(
        /RAFT_IDENTITY_REFUSED the cluster knows site \w+ with disk \w+/,
      );
      expect(await cluster.refusalOf(3, { founding: undefined })).toContain("CLUSTER_NOT_MEMBER");
      expect(await isOpen()).toBe(true);
    } finally {
      await cluster.close();
    }
  }));
