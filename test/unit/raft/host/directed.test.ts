// The three directed checks that concern the host: answers wait for the sync, a wiped disk is
// nobody, and rot in synced records neither votes nor leads before it is repaired.

import { expect, test } from "vitest";
import type { Message } from "../../../../src/raft/core/types.ts";
import { formatRaftDir, openRaftHost } from "../../../../src/raft/index.ts";
import {
  clusterId,
  hostOf,
  logDir,
  RaftCluster,
  raftDir,
  type Station,
} from "../../../support/raft-cluster.ts";
import { messagesIn } from "../../../support/raft-frames.ts";

/** Accepted appends and granted votes that leave the site from now on. */
function promisesOf(cluster: RaftCluster, station: Station): Message[] {
  const promises: Message[] = [];
  cluster.network.tap = (from, _to, frame) => {
    if (from !== station.siteId) return;
    for (const { message } of messagesIn(frame)) {
      const isAccept = message.type === "append-resp" && !message.rejected;
      const isGrant = message.type === "vote-resp" && message.granted;
      if (isAccept || isGrant || message.type === "vote") promises.push(message);
    }
  };
  return promises;
}

const logBytes = (station: Station): number => station.log?.range(1)?.lastIndex ?? 0;

test("no acceptance of an append leaves before its record is synced, crash or not", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  await cluster.propose(leader, "before");
  const follower = cluster.stations.find(({ node }) => node !== leader.node) as Station;
  await cluster.until(() => cluster.texts(follower.node).length === 1);
  await cluster.clock.advance(500);
  const heldIndex = logBytes(follower);
  follower.disk.inject({ on: "fdatasync", path: "log/", times: Infinity, hangs: true });
  const promises = promisesOf(cluster, follower);
  await cluster.propose(leader, "x");
  await cluster.clock.advance(300);
  const beyond = (message: Message): boolean =>
    message.type === "append-resp" && message.index > heldIndex;
  expect(promises.filter(beyond)).toEqual([]);
  cluster.stop(follower, "power");
  follower.disk.heal();
  await cluster.restart(follower);
  await cluster.until(() => cluster.texts(follower.node).length === 2);
  await cluster.until(() => promises.some(beyond));
  await cluster.close();
});

test("no vote leaves before term and vote are synced in both slots, crash or not", async () => {
  for (const syncsDone of [0, 1]) {
    const cluster = new RaftCluster({ seed: `vote${syncsDone}` });
    await cluster.form(3);
    const leader = await cluster.leader();
    const others = cluster.stations.filter(({ node }) => node !== leader.node) as [
      Station,
      Station,
    ];
    const [voter, candidate] = others;
    await cluster.clock.advance(500);
    voter.disk.inject({
      on: "fdatasync",
      path: "meta",
      skip: syncsDone,
      times: Infinity,
      hangs: true,
    });
    const promises = promisesOf(cluster, voter);
    cluster.stop(cluster.station(leader.node), "kill");
    await cluster.clock.advance(3_000);
    const term = cluster.group(candidate.node).status().term;
    expect(term).toBeGreaterThanOrEqual(1);
    expect(promises.filter(({ type }) => type === "vote-resp" || type === "vote")).toEqual([]);
    cluster.stop(voter, "power");
    voter.disk.heal();
    await cluster.restart(voter);
    await cluster.leader();
    await cluster.close();
  }
});

test("an empty disk under its old name does not start as that member and grants no vote", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  await cluster.propose(leader, "acked");
  const wiped = cluster.stations.find(({ node }) => node !== leader.node) as Station;
  cluster.stop(wiped, "power");
  cluster.wipe(wiped);
  await expect(cluster.boot(wiped)).rejects.toMatchObject({ code: "RAFT_DIR_MISSING" });

  // Even formatted anew for the same site, with a copied group, it is another disk: nobody listens.
  await cluster.format(wiped);
  await cluster.boot(wiped);
  await cluster.admitAll(wiped);
  const configuration = { voters: [1, 2, 3], learners: [] };
  await cluster.complete(hostOf(wiped).createGroup({ group: 1, node: wiped.node, configuration }));
  cluster.stop(cluster.station(leader.node), "kill");
  const left = cluster.stations.find(({ node, host }) => host && node !== wiped.node) as Station;
  await cluster.clock.advance(20_000);
  expect(cluster.group(left.node).role).not.toBe("leader");
  expect(cluster.group(left.node).status().term).toBe(1);
  expect(hostOf(left).counters.refusedSender).toBeGreaterThan(0);
  expect(cluster.texts(left.node)).toEqual(["acked"]);
  await cluster.close();
});

test("a directory is opened only by the cluster and site it was formatted for", async () => {
  const cluster = new RaftCluster();
  await cluster.form(1);
  const station = cluster.station(1);
  cluster.stop(station, "kill");
  const components = {} as Parameters<typeof openRaftHost>[1];
  const open = (place: { clusterId?: string; siteId?: string }): Promise<unknown> => {
    const disk = station.disk.attach();
    const opened = openRaftHost(
      cluster.settings,
      { ...components, disk },
      { dir: raftDir, ...place },
    );
    return cluster.complete(opened);
  };
  await expect(open({ clusterId: "ff".repeat(16) })).rejects.toMatchObject({
    code: "RAFT_IDENTITY_FOREIGN",
    message: expect.stringContaining("belongs to cluster"),
  });
  await expect(open({ siteId: "ff".repeat(16) })).rejects.toMatchObject({
    code: "RAFT_IDENTITY_FOREIGN",
  });
  const again = formatRaftDir(station.disk.attach(), raftDir, {
    clusterId,
    siteId: station.siteId,
    random: cluster.random,
  });
  await expect(cluster.complete(again)).rejects.toMatchObject({ code: "RAFT_DIR_NOT_EMPTY" });
});

/** Turns a bit in the payload of an early record of the log. */
function rotLog(station: Station, text: string): void {
  for (const name of ["00000001.wal", "00000002.wal"]) {
    const path = `${logDir}/${name}`;
    let bytes: Buffer;
    try {
      bytes = station.disk.peek(path);
    } catch {
      continue;
    }
    const at = bytes.indexOf(text);
    if (at < 0) continue;
    station.disk.flipBit(path, at * 8 + 3);
    return;
  }
  throw new Error(`no log file holds ${text}`);
}

async function fillAndStop(cluster: RaftCluster): Promise<number> {
  const leader = await cluster.leader();
  for (let count = 0; count < 20; count++) await cluster.propose(leader, `entry-${count};`);
  await cluster.until(() => [1, 2, 3].every((node) => cluster.texts(node).length === 20));
  // Beyond the flush that is not yet proved synced, which would be cut as a torn tail.
  await cluster.clock.advance(3_000);
  return leader.node;
}

const acked = Array.from({ length: 20 }, (_, count) => `entry-${count};`);

test("with rot in two of three synced logs the whole one leads on, and the others are repaired", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leads = await fillAndStop(cluster);
  const leader = cluster.group(leads);
  for (const station of cluster.stations.filter(({ node }) => node !== leads)) {
    cluster.stop(station, "power");
    rotLog(station, "entry-10;");
  }
  for (const station of cluster.stations.filter(({ host }) => host === undefined)) {
    await cluster.restart(station);
    expect(cluster.group(station.node).status()).toMatchObject({
      state: "repairing",
      incarnation: 2,
    });
    expect(cluster.group(station.node).status().repairing).toBe(true);
  }
  const isRepaired = (): boolean =>
    cluster.stations.every(({ node }) => cluster.group(node).status().state === "up");
  await cluster.until(isRepaired);
  for (const { node } of cluster.stations) expect(cluster.texts(node)).toEqual(acked);
  expect(leader.role).toBe("leader");
  // The mark is gone from the disk, and the old damage is not taken for a new one.
  for (const station of cluster.stations) {
    await cluster.complete(hostOf(station).close());
    cluster.stop(station, "power");
    await cluster.restart(station);
    expect(cluster.group(station.node).status().state).toBe("up");
  }
  await cluster.leader();
  await cluster.close();
});

test("when two of three logs are rotten at the start nobody votes, leads or forgets", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const whole = await fillAndStop(cluster);
  for (const station of cluster.stations) {
    cluster.stop(station, "power");
    if (station.node !== whole) rotLog(station, "entry-10;");
  }
  const grants: Message[] = [];
  cluster.network.tap = (_from, _to, frame) => {
    for (const { message } of messagesIn(frame)) {
      const isVote = message.type === "vote-resp" || message.type === "pre-vote-resp";
      if (isVote && message.granted) grants.push(message);
    }
  };
  for (const station of cluster.stations) await cluster.restart(station);
  await cluster.clock.advance(60_000);
  expect(grants).toEqual([]);
  for (const { node } of cluster.stations) {
    const { role, state } = cluster.group(node).status();
    expect(role).not.toBe("leader");
    expect(state).toBe(node === whole ? "up" : "repairing");
    // The operator is told.
    const { repairsAlone } = hostOf(cluster.station(node)).counters;
    expect(repairsAlone).toBe(node === whole ? 0 : 1);
  }
  // The mark is on the disk: another start does not forget it.
  for (const station of cluster.stations) cluster.stop(station, "power");
  for (const station of cluster.stations) await cluster.restart(station);
  for (const { node } of cluster.stations) {
    expect(cluster.group(node).incarnation).toBe(node === whole ? 1 : 3);
  }
  await cluster.clock.advance(20_000);
  expect(cluster.stations.some(({ node }) => cluster.group(node).role === "leader")).toBe(false);
  await cluster.close();
});

async function removeLog(cluster: RaftCluster, station: Station): Promise<void> {
  const disk = station.disk.attach();
  for (const { name } of await cluster.complete(disk.list(logDir))) {
    await cluster.complete(disk.remove(`${logDir}/${name}`));
  }
  await cluster.complete(disk.syncDir(logDir));
}

test("a log that is gone as a whole is damage: without it nobody is voted into office who lacks what it held", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  const [holder, behind] = cluster.stations.filter(({ node }) => node !== leader.node) as [
    Station,
    Station,
  ];
  cluster.stop(behind, "kill");
  for (const text of acked) await cluster.propose(leader, text);
  await cluster.clock.advance(3_000);
  cluster.stop(holder, "power");
  cluster.stop(cluster.station(leader.node), "power");
  await removeLog(cluster, holder);
  await cluster.restart(holder);
  await cluster.restart(behind);
  expect(cluster.group(holder.node).status()).toMatchObject({ state: "repairing", incarnation: 2 });
  await cluster.clock.advance(60_000);
  expect(cluster.group(behind.node).role).not.toBe("leader");
  await cluster.restart(cluster.station(leader.node));
  await cluster.until(() => cluster.group(holder.node).status().state === "up");
  for (const { node } of cluster.stations) {
    await cluster.until(() => cluster.texts(node).length === acked.length);
    expect(cluster.texts(node)).toEqual(acked);
  }
  await cluster.close();
});

test("a log that ends below what was committed here is damage, whatever came between", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leads = await fillAndStop(cluster);
  const follower = cluster.stations.find(({ node }) => node !== leads) as Station;
  // Term, vote and with them the commit index are written anew.
  cluster.group(leads).transfer(follower.node);
  await cluster.until(() => cluster.group(follower.node).role === "leader");
  await cluster.clock.advance(3_000);
  cluster.stop(follower, "power");
  await removeLog(cluster, follower);
  // A start that ends before it could tell of the loss.
  await cluster.boot(follower);
  cluster.stop(follower, "kill");
  await cluster.restart(follower);
  expect(cluster.group(follower.node).status().state).toBe("repairing");
  await cluster.until(() => cluster.group(follower.node).status().state === "up");
  expect(cluster.texts(follower.node)).toEqual(acked);
  await cluster.close();
});
