import { expect, test } from "vitest";
import { SeededRandom, SimClock, SimDisk } from "../../../../src/base/index.ts";
import { encodeMessage } from "../../../../src/raft/codec.ts";
import { encodeFrame, encodeLetters, frameKinds } from "../../../../src/raft/host/frames.ts";
import {
  createDiskSnapshots,
  createMemorySnapshots,
  type SnapshotHead,
  type SnapshotReader,
  type SnapshotStore,
} from "../../../../src/raft/index.ts";
import {
  hostOf,
  logDir,
  RaftCluster,
  raftDir,
  type Station,
} from "../../../support/raft-cluster.ts";

const head = (index: number): SnapshotHead => ({
  group: 1,
  epoch: 1,
  meta: { index, term: 2, configuration: { voters: [1], learners: [] }, configurationIndex: 0 },
  machineVersion: 7,
});

async function contents(reader: SnapshotReader): Promise<string> {
  let text = "";
  for (let chunk = 0; chunk < reader.manifest.chunks.length; chunk++) {
    text += (await reader.read(chunk)).toString();
  }
  await reader.close();
  return text;
}

function stores(): Array<{ clock: SimClock; disk: SimDisk; store: SnapshotStore }> {
  const clock = new SimClock();
  const disk = new SimDisk({ clock, random: new SeededRandom(1) });
  return [
    { clock, disk, store: createDiskSnapshots(disk, "snapshots", { chunkBytes: 4 }) },
    { clock, disk, store: createMemorySnapshots({ chunkBytes: 4 }) },
  ];
}

test("both stores keep the newest complete snapshot and cut pieces into equal chunks", async () => {
  for (const { clock, store } of stores()) {
    expect(await clock.complete(store.latest(1))).toBeUndefined();
    await clock.complete(store.write(head(5), [Buffer.from("ab"), Buffer.from("cdefghi")]));
    const reader = await clock.complete(store.latest(1));
    expect(reader?.manifest.chunks.map(({ sizeBytes }) => sizeBytes)).toEqual([4, 4, 1]);
    expect(await clock.complete(contents(reader as SnapshotReader))).toBe("abcdefghi");
    await clock.complete(store.write(head(9), []));
    expect((await clock.complete(store.latest(1)))?.manifest.meta.index).toBe(9);
  }
});

test("both stores take chunks in order and with the right bytes only, and go on where they ended", async () => {
  for (const { clock, store } of stores()) {
    const manifest = await clock.complete(store.write(head(5), [Buffer.from("abcdefghi")]));
    const wanted = { ...manifest, meta: { ...manifest.meta, index: 8 } };
    const first = await clock.complete(store.receive(wanted));
    expect(await clock.complete(first.add(1, Buffer.from("efgh")))).toBe(false);
    expect(await clock.complete(first.add(0, Buffer.from("abcX")))).toBe(false);
    expect(await clock.complete(first.add(0, Buffer.from("abcd")))).toBe(true);
    await clock.complete(first.close());
    expect((await clock.complete(store.latest(1)))?.manifest.meta.index).toBe(5);
    const second = await clock.complete(store.receive(wanted));
    expect(second.next).toBe(1);
    await clock.complete(second.add(1, Buffer.from("efgh")));
    await clock.complete(second.add(2, Buffer.from("i")));
    await clock.complete(second.commit());
    const reader = await clock.complete(store.latest(1));
    expect(reader?.manifest.meta.index).toBe(8);
    expect(await clock.complete(contents(reader as SnapshotReader))).toBe("abcdefghi");
  }
});

test("a power cut at any moment of a write leaves the old snapshot or the new one", async () => {
  const seen = new Set<number>();
  for (let calls = 0; calls < 60; calls++) {
    const clock = new SimClock();
    const disk = new SimDisk({ clock, random: new SeededRandom(calls) });
    const store = createDiskSnapshots(disk.attach(), "snapshots", { chunkBytes: 4 });
    await clock.complete(store.write(head(5), [Buffer.from("old")]));
    const writing = store.write(head(9), [Buffer.from("newer than old")]);
    writing.catch(() => undefined);
    await clock.advance(calls / 8);
    disk.crash();
    const after = createDiskSnapshots(disk.attach(), "snapshots", { chunkBytes: 4 });
    const reader = (await clock.complete(after.latest(1))) as SnapshotReader;
    const { index } = reader.manifest.meta;
    seen.add(index);
    const text = await clock.complete(contents(reader));
    expect(text).toBe(index === 5 ? "old" : "newer than old");
  }
  expect([...seen].sort()).toEqual([5, 9]);
});

async function withLaggard(seed: number): Promise<{ cluster: RaftCluster; behind: Station }> {
  const cluster = new RaftCluster({ seed });
  await cluster.form(3);
  const leader = await cluster.leader();
  const behind = cluster.stations.find(({ node }) => node !== leader.node) as Station;
  await cluster.propose(leader, "first");
  cluster.stop(behind, "power");
  for (let count = 0; count < 40; count++) await cluster.propose(leader, `${count}`.repeat(40));
  await cluster.clock.advance(2_000);
  await cluster.complete(leader.checkpoint());
  expect(leader.status().startIndex).toBeGreaterThan(20);
  return { cluster, behind };
}

test("a follower behind the cut gets a snapshot in chunks and equals the others", async () => {
  const { cluster, behind } = await withLaggard(1);
  const leader = await cluster.leader();
  await cluster.restart(behind);
  await cluster.until(() => cluster.texts(behind.node).length === 41);
  expect(cluster.texts(behind.node)).toEqual(cluster.texts(leader.node));
  expect(hostOf(behind).counters.snapshotsInstalled).toBe(1);
  await cluster.propose(leader, "after");
  await cluster.until(() => cluster.texts(behind.node).length === 42);
  cluster.stop(behind, "power");
  await cluster.restart(behind);
  await cluster.until(() => cluster.texts(behind.node).length === 42);
  await cluster.close();
});

test("a leader that never heard that its snapshot is installed is told when it offers it again", async () => {
  const { cluster, behind } = await withLaggard(1);
  const leader = await cluster.leader();
  await cluster.restart(behind);
  await cluster.until(() => hostOf(behind).counters.snapshotsInstalled === 1);
  cluster.network.cut(behind.siteId, cluster.station(leader.node).siteId);
  await cluster.clock.advance(3_000);
  cluster.network.mend();
  await cluster.propose(leader, "after");
  await cluster.until(() => cluster.texts(behind.node).at(-1) === "after");
  expect(hostOf(behind).counters.snapshotsInstalled).toBe(1);
  await cluster.close();
});

test("while a snapshot is installed the next is not begun, and neither harms the other", async () => {
  const { cluster, behind } = await withLaggard(1);
  const leader = await cluster.leader();
  await cluster.restart(behind);
  behind.disk.inject({ on: "truncate", path: "incoming", times: 1, hangs: true });
  await cluster.clock.advance(5_000);
  for (let count = 0; count < 20; count++) await cluster.propose(leader, "more");
  await cluster.complete(leader.checkpoint());
  await cluster.clock.advance(5_000);
  expect(hostOf(behind).counters.snapshotsInstalled).toBe(0);
  behind.disk.heal();
  await cluster.propose(leader, "after");
  await cluster.until(() => cluster.texts(behind.node).at(-1) === "after");
  expect(cluster.texts(behind.node)).toEqual(cluster.texts(leader.node));
  await cluster.close();
});

test("a transfer survives loss, repeats and damage on the way", async () => {
  const { cluster, behind } = await withLaggard(2);
  cluster.network.faults = {
    lossPerMille: 150,
    repeatPerMille: 100,
    damagePerMille: 50,
    delayMsMax: 30,
  };
  await cluster.restart(behind);
  await cluster.until(() => cluster.texts(behind.node).length === 41, 600_000);
  await cluster.close();
});

test("a transfer goes on after a restart of the receiver where it ended", async () => {
  const { cluster, behind } = await withLaggard(3);
  await cluster.restart(behind);
  const leader = await cluster.leader();
  let wants = 0;
  cluster.network.tap = (from, _to, frame) => {
    if (from !== behind.siteId || frame[7] !== frameKinds.want) return;
    // The first asks, each of the others says that one more chunk is stored.
    if (++wants === 3) cluster.network.cut(cluster.station(leader.node).siteId, behind.siteId);
  };
  await cluster.until(() => wants >= 3);
  await cluster.clock.advance(200);
  cluster.stop(behind, "kill");
  cluster.network.mend();
  cluster.network.tap = undefined;
  await cluster.restart(behind);
  await cluster.until(() => cluster.texts(behind.node).length === 41, 120_000);
  expect(hostOf(behind).counters.snapshotsResumed).toBe(1);
  await cluster.close();
});

test("a lost snapshot is fetched anew, and its replica gives no vote before", async () => {
  for (const name of ["manifest", "data"]) {
    const { cluster, behind } = await withLaggard(4);
    await cluster.restart(behind);
    await cluster.until(() => cluster.texts(behind.node).length === 41);
    cluster.stop(behind, "power");
    const folder = `${raftDir}/snapshots/00000001`;
    const files = await cluster.complete(behind.disk.list(folder));
    // The last one: a power cut may have kept the empty one before.
    const file = files.findLast((entry) => entry.name.startsWith(name));
    behind.disk.garble(`${folder}/${file?.name}`, 30, 4);
    await cluster.restart(behind);
    expect(cluster.group(behind.node).status().state).toBe("repairing");
    await cluster.until(() => cluster.texts(behind.node).length === 41);
    await cluster.until(() => cluster.group(behind.node).status().state === "up");
    await cluster.close();
  }
});

test("a log that begins above its snapshot is damage, and is fetched anew", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  const texts = Array.from({ length: 90 }, (_, place) => `${place} `.repeat(400));
  for (const text of texts) await cluster.propose(leader, text);
  const station = cluster.stations.find(({ node }) => node !== leader.node) as Station;
  await cluster.until(() => cluster.texts(station.node).length === texts.length);
  await cluster.clock.advance(3_000);
  cluster.stop(station, "power");
  const segments = await cluster.complete(station.disk.list(logDir));
  expect(segments.filter(({ name }) => name.endsWith(".wal")).length).toBeGreaterThan(1);
  await cluster.complete(station.disk.attach().remove(`${logDir}/00000001.wal`));
  await cluster.restart(station);
  expect(cluster.group(station.node).status().state).toBe("repairing");
  await cluster.until(() => cluster.group(station.node).status().state === "up");
  expect(cluster.texts(station.node)).toEqual(texts);
  await cluster.close();
});

test("a failed snapshot cuts nothing", async () => {
  const cluster = new RaftCluster();
  await cluster.form(1);
  const leader = await cluster.leader();
  for (let count = 0; count < 20; count++) await cluster.propose(leader, `${count}`);
  const station = cluster.station(1);
  station.disk.inject({ on: "write", path: "snapshots", fails: "ENOSPC" });
  await cluster.complete(leader.checkpoint());
  expect(hostOf(station).counters).toMatchObject({ snapshotsFailed: 1, snapshotsTaken: 0 });
  expect(leader.status().startIndex).toBe(0);
  await cluster.complete(leader.checkpoint());
  expect(leader.status().startIndex).toBeGreaterThan(0);
  cluster.stop(station, "power");
  await cluster.restart(station);
  const again = await cluster.leader();
  await cluster.propose(again, "after");
  expect(cluster.texts(1)).toHaveLength(21);
  await cluster.close();
});

test("a suffix that a snapshot made void does not come back with a power cut", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const first = await cluster.leader();
  await cluster.propose(first, "a");
  const old = cluster.station(first.node);
  const others = cluster.stations.filter(({ node }) => node !== first.node);
  for (const { siteId } of others) {
    cluster.network.cut(old.siteId, siteId);
    cluster.network.cut(siteId, old.siteId);
  }
  const lost = Array.from({ length: 40 }, (_, count) =>
    first.propose([{ version: 1, data: Buffer.from(`void${count}`) }]),
  );
  const outcomes = Promise.allSettled(lost);
  await cluster.until(() => others.some(({ node }) => cluster.group(node).role === "leader"));
  const second = await cluster.leader();
  for (let count = 0; count < 10; count++) await cluster.propose(second, `kept${count}`);
  await cluster.complete(second.checkpoint());
  const end = second.status().lastIndex;
  expect(first.status().lastIndex).toBeGreaterThan(end);
  cluster.network.mend();
  await cluster.until(() => hostOf(old).counters.snapshotsInstalled === 1);
  await cluster.complete(outcomes);
  for (const { siteId } of others) cluster.network.cut(siteId, old.siteId);
  cluster.stop(old, "power");
  await cluster.restart(old);
  expect(cluster.group(old.node).status()).toMatchObject({
    lastIndex: end,
    commit: end,
    state: "up",
  });
  await cluster.close();
});

test("offers and chunks are taken only from the node that they name", async () => {
  const { cluster, behind } = await withLaggard(5);
  const leader = await cluster.leader();
  const stranger = cluster.stations.find(
    ({ node }) => node !== leader.node && node !== behind.node,
  ) as Station;
  await cluster.restart(behind);
  const leaderSite = cluster.station(leader.node).siteId;
  let forged = 0;
  cluster.network.tap = (from, to, frame) => {
    const isChunk = frame[7] === frameKinds.chunk;
    if (from !== leaderSite || to !== behind.siteId) return;
    if (!isChunk && frame[7] !== frameKinds.offer) return;
    // The same bytes come from another member first.
    const body = frame.subarray(56, frame.length - 4);
    forged++;
    const kind = isChunk ? "chunk" : "offer";
    hostOf(behind).transportEvents.onFrame(encodeFrame(stranger.identity, kind, body));
  };
  await cluster.until(() => hostOf(behind).counters.snapshotsInstalled === 1);
  expect(forged).toBeGreaterThan(2);
  expect(hostOf(behind).counters.lettersMisaddressed).toBe(forged);
  await cluster.close();
});

test("a volume without space delays the installation of a snapshot, and ends nothing", async () => {
  for (const [on, path, waits] of [
    ["write", /incoming$/, 0],
    ["write", /incoming.manifest/, 0],
    ["write", /1\/manifest/, 5],
    ["open", /1\/manifest.new/, 5],
    ["write", /raft\/meta/, 0],
  ] as const) {
    const { cluster, behind } = await withLaggard(6);
    await cluster.restart(behind);
    behind.disk.inject({ on, path, fails: "ENOSPC", times: 5 });
    await cluster.until(() => cluster.texts(behind.node).length === 41, 120_000);
    expect(behind.failures, `${on} ${path}`).toEqual([]);
    expect(hostOf(behind).counters.installsWithoutSpace, `${on} ${path}`).toBe(waits);
    expect(cluster.group(behind.node).status().state).toBe("up");
    await cluster.propose(await cluster.leader(), "after");
    cluster.stop(behind, "power");
    await cluster.restart(behind);
    await cluster.until(() => cluster.texts(behind.node).length === 42);
    await cluster.close();
  }
});

test("a full volume is left alone for a while after a failed snapshot", async () => {
  const cluster = new RaftCluster({ settings: { snapshotLogBytes: 500 } });
  await cluster.form(1);
  const leader = await cluster.leader();
  const station = cluster.station(1);
  station.disk.inject({ on: "write", path: "snapshots", fails: "ENOSPC", times: Infinity });
  for (let count = 0; count < 40; count++) await cluster.propose(leader, `${count}`.repeat(20));
  await cluster.clock.advance(10_000);
  const { counters } = hostOf(station);
  expect(counters.snapshotsFailed).toBeGreaterThan(1);
  expect(counters.snapshotsFailed).toBeLessThan(6);
  station.disk.heal();
  await cluster.clock.advance(16_000);
  expect(counters.snapshotsTaken).toBe(1);
  await cluster.close();
});

test("what a log said before it lost entries is not taken any more", async () => {
  const cluster = new RaftCluster();
  await cluster.form(3);
  const leader = await cluster.leader();
  await cluster.propose(leader, "a");
  const other = cluster.stations.find(({ node }) => node !== leader.node) as Station;
  const { term, lastIndex } = leader.status();
  const message = encodeMessage({
    type: "append-resp",
    from: other.node,
    to: leader.node,
    term,
    rejected: false,
    index: lastIndex,
    hintIndex: 0,
    hintTerm: 0,
    commit: 0,
  });
  const host = hostOf(cluster.station(leader.node));
  const arrive = (incarnation: number): void => {
    const letters = encodeLetters([{ group: 1, epoch: 1, incarnation, message }]);
    host.transportEvents.onFrame(encodeFrame(other.identity, "messages", letters));
  };
  const matchOf = (): number | undefined =>
    leader.status().peers.find(({ node }) => node === other.node)?.match;
  cluster.stop(other, "kill");
  await cluster.until(() => matchOf() === lastIndex);
  arrive(2);
  arrive(1);
  expect(host.counters.lettersOldIncarnation).toBe(1);
  await cluster.close();
});
