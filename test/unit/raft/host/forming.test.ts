import { expect, test } from "vitest";
import { silentLogger } from "../../../../src/base/index.ts";
import { type Expected, formCluster, type Member } from "../../../../src/raft/index.ts";
import { clusterId, RaftCluster, raftDir, type Station } from "../../../support/raft-cluster.ts";

const expectedOf = (cluster: RaftCluster): Expected[] =>
  cluster.stations.map(({ node, siteId }) => {
    return { node, siteId, name: `node${node}`, address: { host: `node${node}`, port: 7000 } };
  });

function form(
  cluster: RaftCluster,
  station: Station,
  expected = expectedOf(cluster),
): { members: Promise<Member[]>; stop: AbortController } {
  const stop = new AbortController();
  const clock = cluster.clock.createProcess();
  const transport = cluster.network.host(station.siteId);
  const disk = station.disk.attach();
  const components = { disk, clock, logger: silentLogger, transport };
  return { members: formCluster(components, raftDir, expected, stop.signal), stop };
}

async function stations(count: number, seed = 1): Promise<RaftCluster> {
  const cluster = new RaftCluster({ seed });
  for (let node = 1; node <= count; node++) {
    cluster.stations.push(await cluster.createStation(node));
  }
  return cluster;
}

test("all that expect each other become members with the same list, and later start as such", async () => {
  const cluster = await stations(3);
  const forming = cluster.stations.map((station) => form(cluster, station).members);
  // The first to be done leaves; those that wait for it are taken in by its host.
  const open = forming.map(async (members, place) => {
    await members;
    return cluster.stations[place] as Station;
  });
  const first = await cluster.complete(Promise.race(open));
  await cluster.boot(first);
  const lists = await cluster.complete(Promise.all(forming));
  for (const list of lists) expect(list).toEqual(cluster.members());
  const again = form(cluster, cluster.station(2));
  expect(await cluster.complete(again.members)).toEqual(cluster.members());
});

test("nobody forms a cluster without all that are expected", async () => {
  const cluster = await stations(3);
  const [first, second] = cluster.stations as [Station, Station];
  const forming = [form(cluster, first), form(cluster, second)];
  let done = 0;
  const outcomes = forming.map(({ members }) =>
    members.then(
      () => done++,
      (error: unknown) => error,
    ),
  );
  await cluster.clock.advance(600_000);
  expect(done).toBe(0);
  for (const { stop } of forming) stop.abort();
  for (const outcome of await cluster.complete(Promise.all(outcomes))) {
    expect(outcome).toMatchObject({ code: "RAFT_HOST_CLOSED" });
  }
});

test("a list that differs anywhere stops the forming", async () => {
  const cluster = await stations(3);
  const [first, second, third] = cluster.stations as [Station, Station, Station];
  const other = expectedOf(cluster).map((expected) => ({ ...expected, node: 4 - expected.node }));
  const forming = [form(cluster, first), form(cluster, second), form(cluster, third, other)];
  let done = 0;
  for (const { members } of forming) members.then(() => done++).catch(() => undefined);
  await cluster.clock.advance(60_000);
  expect(done).toBe(0);
});

test("a wiped disk that expects its old cluster is refused in a sentence", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  await cluster.leader();
  const wiped = cluster.station(3);
  const before = wiped.identity.diskId;
  cluster.stop(wiped, "power");
  cluster.wipe(wiped);
  await cluster.format(wiped);
  const { members } = form(cluster, wiped);
  await expect(cluster.complete(members)).rejects.toMatchObject({
    code: "RAFT_IDENTITY_REFUSED",
    message:
      `the cluster knows site ${wiped.siteId} with disk ${before}, and this disk is ` +
      `${wiped.identity.diskId}: it was replaced or wiped. Remove that member, and join with this ` +
      "directory under a new number",
  });
  await cluster.close();
});

test("a forming site of another cluster is not heard", async () => {
  const cluster = new RaftCluster();
  await cluster.form(2);
  const stranger = await cluster.createStation(3);
  cluster.stations.push(stranger);
  expect(stranger.identity.clusterId).toBe(clusterId);
  const { members, stop } = form(cluster, stranger);
  const outcome = members.catch((error: unknown) => error);
  await cluster.clock.advance(5_000);
  stop.abort();
  expect(await cluster.complete(outcome)).toMatchObject({ code: "RAFT_HOST_CLOSED" });
  await cluster.close();
});
