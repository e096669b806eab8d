import { expect, test } from "vitest";
import { crc32, SeededRandom, SimClock, SimDisk, writeFully } from "../../../../src/base/index.ts";
import { encodeStart } from "../../../../src/raft/host/life.ts";
import { beginLife, type Life } from "../../../../src/raft/index.ts";

const path = "raft/starts";

test("a slot is as docs/formats/raft.md shows it", () => {
  const hex = encodeStart({ start: 3, mark: "ab".repeat(16) }, 512).toString("hex");
  expect(hex).toBe(`464c5253000100000000000000000003${"ab".repeat(16)}${"00".repeat(476)}23e5c8db`);
});

async function machine(seed = 5) {
  const clock = new SimClock();
  const disk = new SimDisk({ clock, random: new SeededRandom(seed) });
  const random = new SeededRandom(6);
  await clock.complete(disk.attach().makeDir("raft"));
  const begin = (): Promise<Life | undefined> =>
    clock.complete(beginLife(disk.attach(), "raft", random));
  return { clock, disk, begin };
}

test("a start is counted before it says anything, over power cuts and in place", async () => {
  const { disk, begin } = await machine();
  const lives: Life[] = [];
  for (let count = 0; count < 5; count++) {
    lives.push((await begin()) as Life);
    disk.crash();
    if (count === 0) disk.setCapacity(0);
  }
  expect(lives.map(({ start }) => start)).toEqual([1, 2, 3, 4, 5]);
  expect(new Set(lives.map(({ mark }) => mark)).size).toBe(5);
});

test("no start that may have said something is forgotten in a power cut at any moment", async () => {
  for (let afterMs = 0; afterMs < 12; afterMs += 0.25) {
    const { clock, disk, begin } = await machine();
    await begin();
    let said = 1;
    void begin().then(
      (life) => {
        said = (life as Life).start;
      },
      () => undefined,
    );
    await clock.advance(afterMs);
    disk.crash();
    expect((await begin())?.start).toBeGreaterThan(said);
  }
});

test("a bit of either slot may rot, of both slots not; a newer format is refused by name", async () => {
  for (const slot of [0, 1]) {
    const { disk, begin } = await machine();
    await begin();
    disk.flipBit(path, slot * 512 * 8 + 100);
    expect((await begin())?.start).toBe(2);
  }
  const { disk, begin } = await machine();
  await begin();
  for (const slot of [0, 1]) disk.flipBit(path, slot * 512 * 8 + 100);
  await expect(begin()).rejects.toMatchObject({ code: "RAFT_DIR_DAMAGED" });
  const later = await machine();
  await later.begin();
  const newer = encodeStart({ start: 9, mark: "ab".repeat(16) }, 0);
  newer.writeUInt16BE(2, 4);
  newer.writeUInt32BE(crc32(newer.subarray(0, 508), 0), 508);
  const file = await later.clock.complete(later.disk.attach().open(path, "write"));
  await later.clock.complete(writeFully(file, newer, 0));
  await expect(later.begin()).rejects.toMatchObject({
    code: "RAFT_DIR_NEWER",
    message: expect.stringMatching(
      /: start the release that wrote this directory, or a later one$/,
    ),
  });
});

test("a first start that was cut off behind its name is counted for good by the next", async () => {
  for (let seed = 0; seed < 20; seed++) {
    const { clock, disk, begin } = await machine(seed);
    await clock.complete((await clock.complete(disk.open(path, "create"))).close());
    expect((await begin())?.start).toBe(1);
    disk.crash();
    expect((await begin())?.start).toBe(2);
  }
});

test("without space for the first count a directory starts, and says no life", async () => {
  const { disk, begin } = await machine();
  disk.setCapacity(0);
  expect(await begin()).toBeUndefined();
});
