import { expect, test } from "vitest";
import {
  encodeFrame,
  encodeLetters,
  encodeNotice,
  frameKinds,
} from "../../../../src/raft/host/frames.ts";
import { hostOf, RaftCluster, raftDir, type Station } from "../../../support/raft-cluster.ts";
import { messagesIn } from "../../../support/raft-frames.ts";

const otherThan = (cluster: RaftCluster, node: number): Station[] =>
  cluster.stations.filter((station) => station.node !== node);

test("a proposal is answered with the machine's result once a majority holds it", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  expect(await cluster.propose(leader, "a", "b")).toEqual(["1", "2"]);
  await cluster.until(() => [1, 2, 3].every((node) => cluster.texts(node).length === 2));
  for (const node of [1, 2, 3]) expect(cluster.texts(node)).toEqual(["a", "b"]);
  await cluster.close();
});

test("a follower refuses proposals and names the leader", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  const [follower] = otherThan(cluster, leader.node) as [Station];
  await cluster.until(() => cluster.group(follower.node).leader === leader.node);
  const refused = cluster.propose(cluster.group(follower.node), "x");
  await expect(refused).rejects.toMatchObject({
    code: "RAFT_NOT_LEADER",
    details: { leader: leader.node },
  });
  await cluster.close();
});

test("acked entries survive a power cut of all nodes at once", async () => {
  for (const seed of [1, 2, 3, 4, 5]) {
    const cluster = new RaftCluster({ seed });
    await cluster.form(3);
    const leader = await cluster.leader();
    const acked: string[] = [];
    for (let count = 0; count < 10; count++) {
      await cluster.propose(leader, `t${count}`);
      acked.push(`t${count}`);
    }
    for (const station of cluster.stations) cluster.stop(station, "power");
    for (const station of cluster.stations) await cluster.restart(station);
    const next = await cluster.leader();
    await cluster.propose(next, "later");
    expect(cluster.texts(next.node)).toEqual([...acked, "later"]);
    await cluster.close();
  }
});

test("when the leader dies another takes over, and the old one comes back as follower", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const first = await cluster.leader();
  await cluster.propose(first, "a");
  cluster.stop(cluster.station(first.node), "kill");
  const second = await cluster.leader();
  expect(second.node).not.toBe(first.node);
  await cluster.propose(second, "b");
  await cluster.restart(cluster.station(first.node));
  await cluster.until(() => cluster.texts(first.node).length === 2);
  expect(cluster.texts(first.node)).toEqual(["a", "b"]);
  await cluster.close();
});

test("what a deposed leader appended alone is truncated, and its proposer is told it did not happen", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const first = await cluster.leader();
  await cluster.propose(first, "a");
  const own = cluster.station(first.node).siteId;
  const others = otherThan(cluster, first.node);
  for (const { siteId } of others) {
    cluster.network.cut(own, siteId);
    cluster.network.cut(siteId, own);
  }
  const lost = first.propose([{ version: 1, data: Buffer.from("lost") }]);
  const outcome = expect(lost).rejects.toMatchObject({ code: "RAFT_PROPOSAL_DROPPED" });
  await cluster.until(() => others.some(({ node }) => cluster.group(node).role === "leader"));
  const second = await cluster.leader();
  await cluster.propose(second, "b", "c");
  cluster.network.mend();
  await cluster.until(() => cluster.texts(first.node).length === 3);
  await outcome;
  expect(cluster.texts(first.node)).toEqual(["a", "b", "c"]);
  cluster.stop(cluster.station(first.node), "power");
  await cluster.restart(cluster.station(first.node));
  await cluster.until(() => cluster.texts(first.node).length === 3);
  expect(cluster.texts(first.node)).toEqual(["a", "b", "c"]);
  await cluster.close();
});

test("a read covers what was acknowledged before it, at any node", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  await cluster.propose(leader, "a", "b");
  for (const { node } of cluster.stations) {
    await cluster.complete(cluster.group(node).read());
    expect(cluster.texts(node)).toEqual(["a", "b"]);
  }
  await cluster.close();
});

test("a read without a majority is not answered, and told so in time", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  for (const station of otherThan(cluster, leader.node)) cluster.stop(station, "kill");
  const read = cluster.complete(leader.read());
  await expect(read).rejects.toMatchObject({ kind: "retry" });
  await cluster.close();
});

test("all groups' messages to a peer share one frame a tick", async () => {
  const groups = Array.from({ length: 40 }, (_, place) => place + 1);
  const cluster = new RaftCluster();
  await cluster.form(3, groups);
  for (const group of groups) await cluster.leader(group);
  await cluster.clock.advance(2_000);
  let frames = 0;
  let heartbeats = 0;
  cluster.network.tap = (_from, _to, frame) => {
    const messages = messagesIn(frame);
    const beats = messages.filter(({ message }) => message.type === "heartbeat").length;
    if (beats > 0) frames++;
    heartbeats += beats;
  };
  await cluster.clock.advance(1_000);
  expect(heartbeats).toBe(10 * groups.length * 2);
  // Ten ticks, at most three senders to two peers each.
  expect(frames).toBeLessThanOrEqual(10 * 6);
  await cluster.close();
});

test("a learner joins, is promoted, and a removed node is told so and can be taken in again", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  let leader = await cluster.leader();
  await cluster.propose(leader, "a");
  cluster.stations.push(await cluster.createStation(4));
  const joiner = cluster.station(4);
  await cluster.boot(joiner);
  for (const station of cluster.stations) await cluster.admitAll(station);
  await cluster.complete(hostOf(joiner).createGroup({ group: 1, node: 4 }));
  await cluster.complete(leader.changeMembership({ op: "learner", node: 4 }));
  await cluster.until(() => cluster.texts(4).length === 1);
  await cluster.complete(leader.changeMembership({ op: "promote", node: 4 }));
  const [removed] = otherThan(cluster, leader.node) as [Station];
  cluster.stop(removed, "kill");
  await cluster.complete(leader.changeMembership({ op: "remove", node: removed.node }));
  await cluster.restart(removed);
  await cluster.until(() => removed.removed.includes(1));
  expect(cluster.group(removed.node).status().state).toBe("removed");
  await cluster.clock.advance(500);
  cluster.stop(removed, "power");
  await cluster.restart(removed);
  expect(cluster.group(removed.node).status().state).toBe("removed");
  leader = await cluster.leader();
  await cluster.propose(leader, "b");
  await cluster.until(() => cluster.texts(4).length === 2);
  await cluster.complete(leader.changeMembership({ op: "learner", node: removed.node }));
  await cluster.until(() => cluster.texts(removed.node).length === 2);
  expect(cluster.group(removed.node).status().state).toBe("up");
  await cluster.clock.advance(500);
  cluster.stop(removed, "power");
  await cluster.restart(removed);
  expect(cluster.group(removed.node).status().state).toBe("up");
  await cluster.close();
});

test("who speaks in an epoch gone by is told of the later one, and stands for no election again", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  const [behind, other] = otherThan(cluster, leader.node) as [Station, Station];
  const notice = (epoch: number): Buffer => {
    const fields = { group: 1, epoch, incarnation: 1, node: behind.node, what: "epoch" as const };
    return encodeFrame(other.identity, "notice", encodeNotice(fields));
  };
  for (const epoch of [0, 1]) hostOf(behind).transportEvents.onFrame(notice(epoch));
  expect(cluster.group(behind.node).status().state).toBe("up");
  expect(hostOf(behind).counters.lettersWrongEpoch).toBe(2);
  cluster.stop(cluster.station(leader.node), "kill");
  await cluster.clock.advance(200);
  hostOf(behind).transportEvents.onFrame(notice(2));
  expect(behind.removed).toEqual([1]);
  await cluster.clock.advance(500);
  cluster.stop(behind, "power");
  await cluster.restart(behind);
  await cluster.clock.advance(10_000);
  expect(cluster.group(behind.node).status()).toMatchObject({ state: "removed", role: "follower" });
  const told: number[] = [];
  cluster.network.tap = (from, to, frame) => {
    if (from === other.siteId && to === behind.siteId && frame[7] === frameKinds.notice)
      told.push(1);
  };
  const letter = { group: 1, epoch: 0, incarnation: 1, message: Buffer.from("anything") };
  const late = encodeFrame(behind.identity, "messages", encodeLetters([letter]));
  hostOf(other).transportEvents.onFrame(late);
  expect(told).toHaveLength(1);
  expect(hostOf(other).counters.epochsTold).toBe(1);
  await cluster.close();
});

test("a number is never given to another disk, and a forgotten node is not heard", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const [first] = cluster.stations as [Station];
  const [, second] = cluster.members();
  if (second === undefined) throw new Error("no second member");
  const other = { ...second, diskId: "ab".repeat(16) };
  const conflict = cluster.complete(hostOf(first).admit([other]));
  await expect(conflict).rejects.toMatchObject({ code: "RAFT_MEMBER_CONFLICT" });
  await cluster.complete(hostOf(first).forget(2));
  const again = cluster.complete(hostOf(first).admit([second]));
  await expect(again).rejects.toMatchObject({ code: "RAFT_MEMBER_CONFLICT" });
  const before = hostOf(first).counters.refusedSender;
  await cluster.clock.advance(5_000);
  expect(hostOf(first).counters.refusedSender).toBeGreaterThan(before);
  await cluster.close();
});

test("leadership moves on request without an outage", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  await cluster.propose(leader, "a");
  const [target] = otherThan(cluster, leader.node) as [Station];
  leader.transfer(target.node);
  await cluster.until(() => cluster.group(target.node).role === "leader", 500);
  expect(await cluster.propose(cluster.group(target.node), "b")).toEqual(["2"]);
  await cluster.close();
});

test("at the limit of uncommitted bytes proposals are refused, and none is dropped", async () => {
  const base = new RaftCluster().settings;
  const settings = { proposedBytesMax: 1000, raft: { ...base.raft, uncommittedBytesMax: 600 } };
  const cluster = new RaftCluster({ settings });
  await cluster.form(3);
  const leader = await cluster.leader();
  for (const station of otherThan(cluster, leader.node)) cluster.stop(station, "kill");
  const asked = Array.from({ length: 10 }, (_, count) => `${count}`.repeat(100));
  const outcomes = asked.map((text) => leader.propose([{ version: 1, data: Buffer.from(text) }]));
  const settled = Promise.allSettled(outcomes);
  const refused = await Promise.allSettled(outcomes.slice(4));
  expect(refused.every((one) => one.status === "rejected")).toBe(true);
  expect(hostOf(cluster.station(leader.node)).counters.proposalsRefused).toBe(6);
  for (const station of cluster.stations) if (!station.host) await cluster.restart(station);
  const all = await cluster.complete(settled);
  const done = all.filter(({ status }) => status === "fulfilled").length;
  const stored = cluster.texts((await cluster.leader()).node);
  expect(stored.length).toBeGreaterThanOrEqual(done);
  await cluster.close();
});

test("above the soft mark answers wait for the next tick", async () => {
  const cluster = new RaftCluster({ settings: { proposedBytesSoft: 50 } });
  await cluster.form(3);
  const leader = await cluster.leader();
  const big = Array.from({ length: 4 }, () =>
    leader.propose([{ version: 1, data: Buffer.alloc(80) }]),
  );
  await cluster.complete(Promise.all(big));
  expect(cluster.texts(leader.node)).toHaveLength(4);
  await cluster.close();
});

test("a command that no record can hold is refused at once", async () => {
  const cluster = new RaftCluster();
  await cluster.form(1);
  const leader = await cluster.leader();
  const data = Buffer.alloc(9 * 1024 * 1024);
  await expect(leader.propose([{ version: 1, data }])).rejects.toMatchObject({
    code: "RAFT_LIMIT_REACHED",
  });
  await cluster.close();
});

test("a snapshot of a newer program stops the group on the older one, not the node", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  const behind = otherThan(cluster, leader.node)[0] as Station;
  await cluster.propose(leader, "before");
  await cluster.until(() => cluster.texts(behind.node).length === 1);
  const had = cluster.group(behind.node).status().persisted;
  cluster.stop(behind, "kill");
  for (let count = 0; count < 20; count++) await cluster.propose(leader, `${count}`);
  await cluster.clock.advance(2_000);
  const machine = cluster.station(leader.node).machines.get(1);
  Object.defineProperty(machine, "version", { value: 2 });
  await cluster.complete(leader.checkpoint());
  await cluster.restart(behind);
  await cluster.until(() => cluster.group(behind.node).status().state === "failed");
  const { failure } = cluster.group(behind.node).status();
  expect(failure?.message).toContain("a Raft snapshot has version 2, this release reads 1");
  expect(hostOf(behind).failure).toBeUndefined();
  // Nothing was given up for it: the older program starts again with the log that it had.
  for (const station of cluster.stations) cluster.stop(station, "power");
  await cluster.restart(behind);
  expect(cluster.group(behind.node).status()).toMatchObject({ state: "up", lastIndex: had });
  await cluster.close();
});

test("a snapshot taken before a version is in force helps members that are not upgraded yet", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  const behind = otherThan(cluster, leader.node)[0] as Station;
  cluster.stop(behind, "kill");
  for (let count = 0; count < 20; count++) await cluster.propose(leader, `${count}`);
  await cluster.clock.advance(2_000);
  const machine = cluster.station(leader.node).machines.get(1);
  Object.defineProperty(machine, "version", { value: 2 });
  Object.defineProperty(machine, "captureVersion", { value: 1 });
  await cluster.complete(leader.checkpoint());
  await cluster.restart(behind);
  await cluster.until(() => cluster.texts(behind.node).length === 20);
  expect(hostOf(behind).counters.snapshotsInstalled).toBe(1);
  expect(cluster.group(behind.node).status().state).toBe("up");
  await cluster.close();
});

test("a group whose making was cut off anywhere is made to its end, and no replica that promised is", async () => {
  let unfinished = 0;
  for (let cut = 0; cut < 40; cut++) {
    const cluster = new RaftCluster({ seed: cut });
    cluster.stations.push(await cluster.createStation(1));
    const station = cluster.station(1);
    await cluster.boot(station);
    await cluster.admitAll(station);
    const given = { group: 1, node: 1, configuration: { voters: [1], learners: [] } };
    hostOf(station)
      .createGroup(given)
      .catch(() => undefined);
    await cluster.clock.advance(cut / 4);
    cluster.stop(station, cut % 2 === 0 ? "power" : "kill");
    await cluster.boot(station);
    const isKnown = hostOf(station).storedGroups().length === 1;
    const opened = await cluster
      .complete(hostOf(station).openGroup(1))
      .then((group) => group.close(new Error("over")))
      .catch((error: unknown) => error);
    if (opened === undefined) continue;
    expect(opened).toMatchObject({ code: "RAFT_GROUP_UNKNOWN" });
    if (isKnown) unfinished++;
    await cluster.complete(hostOf(station).ensureGroup(given));
    const leader = await cluster.leader();
    await cluster.propose(leader, "x");
    // What has voted is not made anew, whatever was lost of it.
    cluster.stop(station, "kill");
    await cluster.complete(station.disk.attach().removeDir(`${raftDir}/snapshots`));
    await cluster.restart(station);
    expect(cluster.group(1).status().state).toBe("repairing");
    await expect(cluster.complete(hostOf(station).createGroup(given))).rejects.toMatchObject({
      code: "RAFT_GROUP_EXISTS",
    });
    await cluster.close();
  }
  expect(unfinished).toBeGreaterThan(5);
});
