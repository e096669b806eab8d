import { expect, test } from "vitest";
import { hostOf, RaftCluster, raftDir, type Station } from "../../../support/raft-cluster.ts";

const otherThan = (cluster: RaftCluster, node: number): Station[] =>
  cluster.stations.filter((station) => station.node !== node);

test("an EIO in the log ends the node once, and the others go on", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  const station = cluster.station(leader.node);
  station.disk.inject({ on: "fdatasync", path: "log/", fails: "EIO" });
  const fate = cluster.propose(leader, "x");
  await expect(fate).rejects.toMatchObject({ code: "RAFT_PROPOSAL_UNKNOWN" });
  expect(station.failures).toHaveLength(1);
  expect(station.failures[0]).toMatchObject({ code: "RAFT_HOST_FAILED" });
  await expect(leader.propose([{ version: 1, data: Buffer.from("y") }])).rejects.toMatchObject({
    code: "RAFT_GROUP_FAILED",
  });
  cluster.stop(station, "kill");
  const next = await cluster.leader();
  await cluster.propose(next, "z");
  await cluster.close();
});

test("an EIO in the meta file ends the node before it votes", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  const [voter, other] = otherThan(cluster, leader.node) as [Station, Station];
  voter.disk.inject({ on: "fdatasync", path: "meta", fails: "EIO" });
  cluster.stop(cluster.station(leader.node), "kill");
  await cluster.until(() => voter.failures.length === 1);
  await cluster.clock.advance(10_000);
  expect(cluster.group(other.node).role).not.toBe("leader");
  await cluster.close();
});

test("without space a leader refuses proposals with retry, and takes them again by itself", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  const { disk } = cluster.station(leader.node);
  await cluster.propose(leader, "a");
  await cluster.clock.advance(1_000);
  disk.setCapacity(2 ** 40 - disk.freeBytes);
  let refused: unknown;
  for (let count = 0; count < 400 && refused === undefined; count++) {
    refused = await cluster.propose(leader, "f".repeat(1000)).catch((error: unknown) => error);
    if (Array.isArray(refused)) refused = undefined;
  }
  expect(refused).toMatchObject({ kind: "retry" });
  disk.setCapacity(2 ** 40);
  await cluster.clock.advance(30_000);
  expect(cluster.station(leader.node).failures).toEqual([]);
  const next = await cluster.leader();
  await cluster.propose(next, "after");
  await cluster.close();
});

test("a leader that stays without space hands over, until one has space, and catches up by itself", async () => {
  for (const fullCount of [1, 2]) {
    const cluster = new RaftCluster({ seed: `full ${fullCount}` });
    await cluster.form(3);
    const first = await cluster.leader();
    await cluster.propose(first, "before");
    await cluster.clock.advance(1_000);
    const circle = [first.node, (first.node % 3) + 1].slice(0, fullCount);
    for (const node of circle) cluster.station(node).disk.setCapacity(0);
    const isAway = (): boolean => {
      const leader = cluster.stations.find(({ node }) => cluster.group(node).role === "leader");
      return leader !== undefined && !circle.includes(leader.node);
    };
    for (let count = 0; count < 600 && !isAway(); count++) {
      const leader = await cluster.leader();
      await cluster.propose(leader, "f".repeat(1_000)).catch(() => undefined);
      await cluster.clock.advance(50);
    }
    expect(isAway()).toBe(true);
    const yielded = circle.map((node) => hostOf(cluster.station(node)).counters.fullLeadersYielded);
    expect(yielded[0]).toBeGreaterThan(0);
    for (const node of circle) cluster.station(node).disk.setCapacity(2 ** 40);
    const leader = await cluster.leader();
    await cluster.propose(leader, "after");
    const hasAll = ({ node }: Station): boolean => cluster.texts(node).at(-1) === "after";
    await cluster.until(() => cluster.stations.every(hasAll));
    expect(cluster.stations.flatMap(({ failures }) => failures)).toEqual([]);
    await cluster.close();
  }
});

test("a leader whose flush hangs for two elections steps down, and is not elected while it hangs", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  const station = cluster.station(leader.node);
  station.disk.inject({ on: "fdatasync", path: "log/", times: Infinity, hangs: true });
  const fate = leader.propose([{ version: 1, data: Buffer.from("slow") }]);
  const settled = Promise.allSettled([fate]);
  await cluster.until(() =>
    otherThan(cluster, leader.node).some(({ node }) => cluster.group(node).role === "leader"),
  );
  await cluster.clock.advance(5_000);
  expect(leader.role).not.toBe("leader");
  const next = await cluster.leader();
  expect(next.node).not.toBe(leader.node);
  station.disk.heal();
  await cluster.complete(settled);
  await cluster.propose(next, "after");
  await cluster.until(() => cluster.texts(leader.node).includes("after"));
  await cluster.close();
});

test("a leader alone steps down as well while its flush hangs, and leads again when it ends", async () => {
  const cluster = new RaftCluster();
  await cluster.form(1);
  const leader = await cluster.leader();
  const { disk } = cluster.station(1);
  disk.inject({ on: "fdatasync", path: "log/", times: Infinity, hangs: true });
  const fate = leader.propose([{ version: 1, data: Buffer.from("slow") }]);
  await cluster.clock.advance(900);
  expect(leader.role).toBe("leader");
  await cluster.clock.advance(1_000);
  expect(leader.role).toBe("follower");
  await cluster.clock.advance(5_000);
  expect(leader.role).toBe("follower");
  disk.heal();
  await cluster.complete(fate);
  expect((await cluster.leader()).status().term).toBe(2);
  await cluster.close();
});

test("after a stall a follower listens for its leader before it stands", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  const term = leader.status().term;
  const [sleeper] = otherThan(cluster, leader.node) as [Station];
  // The clock of one process jumps: its next tick is late by an hour.
  const { clock } = sleeper;
  if (clock === undefined) throw new Error("down");
  const late = clock.elapsedMs.bind(clock);
  clock.elapsedMs = () => late() + 3_600_000;
  await cluster.clock.advance(10_000);
  expect(hostOf(sleeper).counters.stalls).toBe(1);
  expect(leader.status()).toMatchObject({ role: "leader", term });
  await cluster.close();
});

test("nodes that stall again and again still elect a leader", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  const left = otherThan(cluster, leader.node);
  for (const { clock } of left) {
    if (clock === undefined) throw new Error("down");
    // A tick in four is late by 700 ms, as on a machine that has too much to do.
    const late = clock.elapsedMs.bind(clock);
    clock.elapsedMs = () => late() + Math.floor(late() / 400) * 700;
  }
  cluster.stop(cluster.station(leader.node), "kill");
  await cluster.until(() => left.some(({ node }) => cluster.group(node).role === "leader"), 10_000);
  for (const station of left) expect(hostOf(station).counters.stalls).toBeGreaterThan(2);
  await cluster.close();
});

test("rot of either slot of term and vote changes nothing; rot of both is a dead replica", async () => {
  for (const slots of [[0], [1], [0, 1]]) {
    const cluster = new RaftCluster();
    await cluster.form(3);
    const leader = await cluster.leader();
    const { term } = leader.status();
    const station = cluster.station(leader.node);
    cluster.stop(station, "power");
    for (const slot of slots) station.disk.garble(`${raftDir}/meta`, slot * 512 + 40, 4);
    if (slots.length === 1) {
      await cluster.restart(station);
      expect(cluster.group(station.node).status()).toMatchObject({ term, vote: station.node });
    } else {
      await cluster.boot(station);
      const opened = cluster.complete(hostOf(station).openGroup(1));
      await expect(opened).rejects.toMatchObject({
        code: "RAFT_META_LOST",
        message:
          `term and vote of group 1 cannot be read in ${raftDir}/meta, and this replica may have ` +
          "voted: remove it from the group, and add it again under a new number",
      });
      const configuration = { voters: [1, 2, 3], learners: [] };
      const made = hostOf(station).createGroup({ group: 1, node: station.node, configuration });
      await expect(cluster.complete(made)).rejects.toMatchObject({ code: "RAFT_META_LOST" });
    }
    await cluster.close();
  }
});

test("identity, members and snapshots survive the loss of one copy, and no loss makes a new member", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  await cluster.leader();
  const station = cluster.station(1);
  cluster.stop(station, "power");
  for (const name of ["identity.a", "members.b"]) station.disk.garble(`${raftDir}/${name}`, 20, 8);
  await cluster.restart(station);
  cluster.stop(station, "power");
  for (const name of ["identity.a", "identity.b"]) station.disk.garble(`${raftDir}/${name}`, 20, 8);
  await expect(cluster.boot(station)).rejects.toMatchObject({ code: "RAFT_DIR_DAMAGED" });
  await cluster.close();
});
