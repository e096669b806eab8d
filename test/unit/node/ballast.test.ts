import { describe, expect, test } from "vitest";
import {
  type Logger,
  replaceFile,
  SeededRandom,
  SimClock,
  SimDisk,
  silentLogger,
} from "../../../src/base/index.ts";
import { ballastBytes, ballastName, createBallast } from "../../../src/node/ballast.ts";

const mib = 2 ** 20;

async function world(capacityBytes: number, settingBytes = 64 * mib) {
  const clock = new SimClock();
  const disk = new SimDisk({ clock, random: new SeededRandom(1), capacityBytes });
  const events: string[] = [];
  const logger: Logger = { ...silentLogger, warn: (event) => events.push(event) };
  const random = new SeededRandom(2);
  await clock.complete(disk.makeDir("data"));
  const ballast = createBallast("data", settingBytes, { disk, clock, logger, random });
  const names = async (): Promise<string[]> =>
    (await clock.complete(disk.list("data"))).map(({ name }) => name);
  const pass = (ms: number): Promise<void> =>
    clock.complete(new Promise((resolve) => clock.schedule(ms, resolve)));
  return { clock, disk, ballast, events, names, pass };
}

describe("the ballast", () => {
  test("is made a while after the start, and lasts", async () => {
    const { ballast, names, pass, disk, clock } = await world(2 ** 30, 2 * mib);
    ballast.start();
    await pass(9000);
    expect(await names()).toEqual([]);
    await pass(30_000);
    expect(await names()).toEqual([ballastName]);
    disk.crash();
    expect((await clock.complete(disk.open(`data/${ballastName}`, "read"))).path).toBeDefined();
  });

  test("takes at most a sixteenth of the volume, and nothing of a tiny one", () => {
    const of = (totalBytes: number): number =>
      ballastBytes(64 * mib, { freeBytes: totalBytes, totalBytes, type: "ext4" });
    expect(of(2 ** 40)).toBe(64 * mib);
    expect(of(320 * mib)).toBe(20 * mib);
    expect(of(15 * mib)).toBe(0);
  });

  test("is not made where it would leave less than three times its size", async () => {
    const { ballast, names, pass, disk, clock } = await world(64 * mib, 4 * mib);
    await clock.complete(replaceFile(disk, "data/other", Buffer.alloc(50 * mib)));
    ballast.start();
    await pass(60_000);
    expect(await names()).toEqual(["other"]);
  });

  test("is spent when the log is full or room is short, and made again when there is room", async () => {
    const { ballast, names, pass, disk, events } = await world(2 ** 30, 2 * mib);
    ballast.start();
    await pass(35_000);
    ballast.spend();
    ballast.spend();
    await pass(1000);
    expect(events).toEqual(["node.ballast_spent"]);
    expect(await names()).toEqual([]);
    await pass(40_000);
    expect(await names()).toEqual([ballastName]);
    disk.setCapacity(4 * mib);
    await pass(11_000);
    expect(await names()).toEqual([]);
    expect(events).toEqual(["node.ballast_spent", "node.ballast_spent"]);
  });

  test("a failure to make it is told, leaves nothing behind, and is tried again", async () => {
    const { ballast, names, pass, disk, events } = await world(2 ** 30, 2 * mib);
    const heal = disk.inject({ on: "write", fails: "EIO" });
    ballast.start();
    await pass(11_000);
    expect(events).toEqual(["node.ballast_failed"]);
    expect(await names()).toEqual([]);
    heal();
    await pass(40_000);
    expect(await names()).toEqual([ballastName]);
  });

  test("closing waits for what is under way and leaves no half file in use", async () => {
    const { clock, ballast, names, pass } = await world(2 ** 30, 16 * mib);
    ballast.start();
    await pass(10_001);
    await clock.complete(ballast.close());
    expect(await names()).toEqual([]);
    await pass(60_000);
    expect(await names()).toEqual([]);
  });
});
