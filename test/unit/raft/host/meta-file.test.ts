import { expect, test } from "vitest";
import {
  crc32,
  diskErrors,
  SeededRandom,
  SimClock,
  SimDisk,
  writeFully,
} from "../../../../src/base/index.ts";
import { encodeSlot, type GroupMeta, MetaFile } from "../../../../src/raft/host/meta-file.ts";
import { ReplicaRecord } from "../../../../src/raft/host/replica-record.ts";

const path = "meta";

function machine(seed = 1): { clock: SimClock; disk: SimDisk } {
  const clock = new SimClock();
  return { clock, disk: new SimDisk({ clock, random: new SeededRandom(seed) }) };
}

async function create({ clock, disk }: { clock: SimClock; disk: SimDisk }): Promise<MetaFile> {
  const file = await clock.complete(disk.open(path, "create"));
  await clock.complete(file.close());
  await clock.complete(disk.syncDir("."));
  return clock.complete(MetaFile.open(disk.attach(), path));
}

const meta = (group: number, term: number, vote = 1): GroupMeta => ({
  group,
  node: 1,
  epoch: 1,
  incarnation: 1,
  hardState: { term, vote, commit: 0 },
  configurationIndex: 0,
  repairing: false,
  removed: false,
});

test("a slot is as docs/formats/raft.md shows it", () => {
  const slot = encodeSlot({ ...meta(7, 5, 2), incarnation: 3, repairing: true }, 9, 512);
  expect(slot.subarray(0, 68).toString("hex")).toBe(
    "464c524d0001" +
      "0100" +
      "00000007" +
      "00000001" +
      "00000003" +
      "0000000000000009" +
      "0000000000000001" +
      "0000000000000005" +
      "0000000000000002" +
      "0000000000000000" +
      "0000000000000000",
  );
  expect(slot.subarray(68, 508).every((byte) => byte === 0)).toBe(true);
  expect(slot.length).toBe(512);
});

test("what was saved is there after a power cut at any moment, and never anything older", async () => {
  const terms = new Set<number>();
  for (let cut = 0; cut < 200; cut++) {
    const place = machine(cut);
    const { clock, disk } = place;
    const metas = await create(place);
    await clock.complete(metas.saved(meta(1, 1)));
    let saved = 1;
    const saving = async (): Promise<void> => {
      for (let term = 2; term < 6; term++) {
        await metas.saved(meta(1, term));
        saved = term;
      }
    };
    saving().catch(() => undefined);
    await clock.advance(cut / 10);
    disk.crash();
    const after = await clock.complete(MetaFile.open(disk.attach(), path));
    const term = after.get(1)?.hardState.term as number;
    expect(after.damagedPlaces).toBe(0);
    expect(term).toBeGreaterThanOrEqual(saved);
    expect(term).toBeLessThanOrEqual(saved + 1);
    terms.add(term);
  }
  expect(terms.size).toBeGreaterThan(3);
});

test("rot of any byte of one slot brings back nothing older, and is mended", async () => {
  for (let at = 0; at < 1024; at += 7) {
    const place = machine(at);
    const { clock, disk } = place;
    const metas = await create(place);
    await clock.complete(metas.saved(meta(1, 1)));
    await clock.complete(metas.saved(meta(1, 8, 3)));
    disk.crash();
    disk.flipBit(path, at * 8);
    const after = await clock.complete(MetaFile.open(disk.attach(), path));
    expect(after.get(1)?.hardState).toMatchObject({ term: 8, vote: 3 });
    expect(after.mendedSlots).toBe(1);
    const again = await clock.complete(MetaFile.open(disk.attach(), path));
    expect(again.mendedSlots).toBe(0);
  }
});

test("a slot that was written to another place does not pass there", async () => {
  const place = machine();
  const { clock, disk } = place;
  const metas = await create(place);
  await clock.complete(metas.saved(meta(1, 4)));
  await clock.complete(metas.saved(meta(2, 9)));
  await clock.complete(metas.close());
  const file = await clock.complete(disk.open(path, "write"));
  const stray = encodeSlot(meta(2, 9), 5, 1024);
  for (const at of [0, 512]) {
    await clock.complete(new Promise<void>((done) => file.write(stray, at, () => done())));
  }
  const after = await clock.complete(MetaFile.open(disk.attach(), path));
  expect(after.get(1)).toBeUndefined();
  expect(after.damagedPlaces).toBe(1);
  expect(after.get(2)?.hardState.term).toBe(9);
});

test("saves of many groups share their syncs, and the first error is final", async () => {
  const place = machine();
  const { clock, disk } = place;
  const metas = await create(place);
  const before = disk.counters.syncs;
  const all = Array.from({ length: 64 }, (_, group) => metas.saved(meta(group, 1)));
  await clock.complete(Promise.all(all));
  // The first save begins at once, the others wait for it together.
  expect(disk.counters.syncs - before).toBe(4);
  disk.inject({ on: "fdatasync", path, fails: "EIO" });
  await expect(clock.complete(metas.saved(meta(1, 2)))).rejects.toMatchObject({
    code: "DISK_IO_FAILED",
  });
  await expect(clock.complete(metas.saved(meta(1, 3)))).rejects.toMatchObject({
    code: "DISK_IO_FAILED",
  });
});

test("a record without space is written again at the next tick, with whatever changed meanwhile", () => {
  const saves: Array<{ meta: GroupMeta; done: (error: Error | undefined) => void }> = [];
  const later: Array<() => void> = [];
  const metas = {
    save: (...[meta, done]: Parameters<MetaFile["save"]>) => saves.push({ meta, done }),
  };
  let isEnded = false;
  const host = { metas, later: (run: () => void) => later.push(run) };
  const record = new ReplicaRecord(meta(1, 5), host as never, () => isEnded);
  const done: Array<Error | undefined> = [];
  record.save({ hardState: { term: 6, vote: 2, commit: 0 } }, (error) => done.push(error));
  expect(record.isPromise({ term: 6, vote: 2, commit: 9 })).toBe(false);
  expect(record.isPromise({ term: 6, vote: 3, commit: 0 })).toBe(true);
  saves[0]?.done(diskErrors.full({ path }));
  record.save({ hardState: { term: 7, vote: 1, commit: 0 } }, (error) => done.push(error));
  saves[1]?.done(undefined);
  for (const run of later.splice(0)) run();
  expect(saves[2]?.meta.hardState.term).toBe(7);
  saves[2]?.done(undefined);
  expect(done).toEqual([undefined, undefined]);
  // The next change may come before the volume says no to the one before.
  record.save({ hardState: { term: 8, vote: 1, commit: 0 } }, (error) => done.push(error));
  record.save({ hardState: { term: 9, vote: 3, commit: 0 } }, (error) => done.push(error));
  saves[3]?.done(diskErrors.full({ path }));
  saves[4]?.done(undefined);
  for (const run of later.splice(0)) run();
  expect(saves[5]?.meta.hardState.term).toBe(9);
  saves[5]?.done(undefined);
  expect(done).toEqual([undefined, undefined, undefined, undefined]);
  record.save({ removed: true }, (error) => done.push(error));
  saves[6]?.done(diskErrors.full({ path }));
  isEnded = true;
  for (const run of later) run();
  expect(saves).toHaveLength(7);
  expect(done).toHaveLength(4);
});

test("a file that is gone is a lost one, and a newer format is refused, each with the way out", async () => {
  const place = machine();
  const { clock, disk } = place;
  await expect(clock.complete(MetaFile.open(disk, path))).rejects.toMatchObject({
    code: "RAFT_META_LOST",
    message: expect.stringMatching(
      /: remove it from the group, and add it again under a new number$/,
    ),
  });
  await clock.complete((await create(place)).close());
  const newer = encodeSlot(meta(1, 3), 1, 0);
  newer.writeUInt16BE(2, 4);
  newer.writeUInt32BE(crc32(newer.subarray(0, 508), 0), 508);
  const file = await clock.complete(disk.open(path, "write"));
  await clock.complete(writeFully(file, newer, 0));
  await expect(clock.complete(MetaFile.open(disk.attach(), path))).rejects.toMatchObject({
    code: "RAFT_DIR_NEWER",
    message:
      "meta has format 2, and this release reads up to 1: start the release that wrote this " +
      "directory, or a later one",
  });
});
