import { expect, test } from "vitest";
import { silentLogger } from "../../../../src/base/index.ts";
import { defaultLogSettings, openLog } from "../../../../src/log/index.ts";
import { type GroupMeta, MetaFile } from "../../../../src/raft/host/meta-file.ts";
import {
  forceRecovery,
  formatReplicas,
  type RecoveryPlace,
  type ReplicaReport,
  rankReplicas,
  recoveryConfirmation,
  surveyReplicas,
} from "../../../../src/raft/index.ts";
import {
  hostOf,
  logDir,
  RaftCluster,
  raftDir,
  type Station,
} from "../../../support/raft-cluster.ts";

async function offline<T>(
  cluster: RaftCluster,
  station: Station,
  run: (place: RecoveryPlace) => Promise<T>,
): Promise<T> {
  const clock = cluster.clock.createProcess();
  const disk = station.disk.attach();
  const random = cluster.random.split(`offline${cluster.clock.elapsedMs()}`);
  const shared = { disk, clock, random, logger: silentLogger };
  const settings = { ...defaultLogSettings, segmentBytes: 64 * 1024, zeroFillBytes: 64 * 1024 };
  const log = await cluster.complete(openLog(settings, shared, logDir));
  try {
    return await cluster.complete(run({ disk, dir: raftDir, log }));
  } finally {
    await cluster.complete(log.close());
  }
}

const survey = async (cluster: RaftCluster, station: Station): Promise<ReplicaReport> =>
  (await offline(cluster, station, (place) => surveyReplicas(place)))[0] as ReplicaReport;

/** Ten writes acknowledged by all, five more by a majority; then the leader's machine burns. */
async function withLostMajority(): Promise<{
  cluster: RaftCluster;
  ahead: Station;
  behind: Station;
}> {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  const [behind, ahead] = cluster.stations.filter(({ node }) => node !== leader.node) as [
    Station,
    Station,
  ];
  for (let count = 0; count < 10; count++) await cluster.propose(leader, `all ${count}`);
  await cluster.until(() => cluster.texts(ahead.node).length === 10);
  await cluster.complete(cluster.group(ahead.node).checkpoint());
  await cluster.clock.advance(500);
  cluster.stop(behind, "power");
  for (let count = 0; count < 5; count++) await cluster.propose(leader, `two ${count}`);
  await cluster.clock.advance(500);
  cluster.stop(ahead, "power");
  cluster.stop(cluster.station(leader.node), "power");
  return { cluster, ahead, behind };
}

test("a survey tells term, index, time and gap of every replica that is left", async () => {
  const { cluster, ahead, behind } = await withLostMajority();
  const reports = [await survey(cluster, behind), await survey(cluster, ahead)];
  const [best, other] = rankReplicas(reports);
  expect(best).toMatchObject({ gapEntries: 0, report: { node: ahead.node, damage: undefined } });
  expect(other).toMatchObject({ gapEntries: 5, report: { node: behind.node, epoch: 1 } });
  const timed = await offline(cluster, ahead, (place) =>
    surveyReplicas(place, ({ data }) => new Date(1000 * Buffer.from(data).length)),
  );
  expect(formatReplicas([timed[0] as ReplicaReport])[0]).toMatch(
    /^group 1 node \d; epoch 1; last 1\/16 \(term\/index\); written 1970-01-01T00:00:05.000Z; 0 behind; \d+ not known to be committed; term 1; voters 1,2,3$/,
  );
  await cluster.close();
});

test("a replica whose making was cut off keeps no survey from the others", async () => {
  const { cluster, ahead } = await withLostMajority();
  const disk = ahead.disk.attach();
  const metas = await cluster.complete(MetaFile.open(disk, `${raftDir}/meta`));
  const made = { ...(metas.get(1) as GroupMeta), group: 2 };
  await cluster.complete(metas.saved({ ...made, hardState: { term: 0, vote: 0, commit: 0 } }));
  await cluster.complete(metas.close());
  expect(await survey(cluster, ahead)).toMatchObject({ group: 1, damage: undefined });
  await cluster.close();
});

test("a group goes on from the replica that holds the most, and nothing that was here is lost", async () => {
  const { cluster, ahead, behind } = await withLostMajority();
  const report = await survey(cluster, ahead);
  const typed = recoveryConfirmation(report);
  for (const wrong of ["", "yes", recoveryConfirmation({ ...report, lastIndex: 3 })]) {
    const forced = offline(cluster, ahead, (place) => forceRecovery(place, 1, wrong));
    await expect(forced).rejects.toMatchObject({ code: "RAFT_RECOVERY_REFUSED" });
  }
  const after = await offline(cluster, ahead, (place) => forceRecovery(place, 1, typed));
  expect(after).toMatchObject({ epoch: 2, configuration: { voters: [ahead.node], learners: [] } });
  const again = offline(cluster, ahead, (place) =>
    forceRecovery(place, 1, recoveryConfirmation(after)),
  );
  await expect(again).rejects.toMatchObject({ code: "RAFT_RECOVERY_REFUSED" });
  await cluster.restart(ahead);
  await cluster.until(() => cluster.group(ahead.node).role === "leader");
  await cluster.propose(cluster.group(ahead.node), "after");
  expect(cluster.texts(ahead.node)).toHaveLength(16);
  expect(cluster.group(ahead.node).status()).toMatchObject({ epoch: 2, term: report.term + 2 });
  // One of before comes back, and hears that its epoch is over.
  await cluster.restart(behind);
  await cluster.until(() => behind.removed.includes(1));
  expect(hostOf(cluster.station(ahead.node)).counters.epochsTold).toBeGreaterThan(0);
  // A new one gets the snapshot of the new epoch and the rest.
  cluster.stations.push(await cluster.createStation(4));
  const joiner = cluster.station(4);
  await cluster.boot(joiner);
  for (const station of [ahead, joiner]) await cluster.admitAll(station);
  await cluster.complete(hostOf(joiner).createGroup({ group: 1, node: 4, epoch: 2 }));
  const leader = cluster.group(ahead.node);
  await cluster.complete(leader.changeMembership({ op: "learner", node: 4 }));
  await cluster.until(() => cluster.texts(4).length === 16);
  expect(hostOf(joiner).counters.snapshotsInstalled).toBe(1);
  await cluster.close();
});

test("a recovery that is cut off anywhere leaves the old epoch or a replica that can be recovered", async () => {
  let cuts = 0;
  let isDone = false;
  for (let calls = 1; !isDone; calls += 7) {
    const { cluster, ahead } = await withLostMajority();
    const typed = recoveryConfirmation(await survey(cluster, ahead));
    const forced = offline(cluster, ahead, async (place) => {
      const started = forceRecovery(place, 1, typed);
      started.then(
        () => {
          isDone = true;
        },
        () => undefined,
      );
      await new Promise<void>((resolve) => cluster.clock.schedule(calls / 8, resolve));
      ahead.disk.crash();
    });
    await forced.catch(() => undefined);
    const report = await survey(cluster, ahead);
    expect(report.lastIndex).toBeGreaterThanOrEqual(16);
    expect(report.damage).toBeUndefined();
    if (report.configuration.voters.length === 1) expect(report.epoch).toBe(2);
    if (report.configuration.voters.length > 1) {
      cuts++;
      const words = recoveryConfirmation(report);
      await offline(cluster, ahead, (place) => forceRecovery(place, 1, words));
    }
    await cluster.restart(ahead);
    await cluster.until(() => cluster.group(ahead.node).role === "leader");
    await cluster.until(() => cluster.texts(ahead.node).length === 15);
    await cluster.close();
  }
  expect(cuts).toBeGreaterThan(2);
});

test("a damaged replica is not recovered from", async () => {
  const { cluster, ahead } = await withLostMajority();
  const folder = `${raftDir}/snapshots/00000001`;
  ahead.disk.garble(`${folder}/manifest`, 20, 4);
  const report = await survey(cluster, ahead);
  expect(report.damage).toBe("its snapshot is lost");
  const forced = offline(cluster, ahead, (place) =>
    forceRecovery(place, 1, recoveryConfirmation(report)),
  );
  await expect(forced).rejects.toMatchObject({ code: "RAFT_RECOVERY_REFUSED" });
  await cluster.close();
});
