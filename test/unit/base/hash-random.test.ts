import { describe, expect, test } from "vitest";
import { crc32, hash32, hashBytes32, SeededRandom, systemRandom } from "../../../src/base/index.ts";

describe("hashes", () => {
  // Stored behaviour: shards are chosen by them. A change here is a change of format.
  test("hash32 gives the values it always gave", () => {
    expect(
      ["", "a", "b", "client-1", "factory/line/7", "ä€😀"].map((text) => hash32(text)),
    ).toEqual([0xab3e7c0b, 0x91e9da27, 0x080eef51, 0x69eb6188, 0xac066300, 0xbae34ab8]);
    expect(hash32("a", 1)).toBe(0xa9b18198);
  });

  test("hashBytes32 gives the values it always gave", () => {
    const inputs = [[], [0], [0, 0], [97], [255, 254]].map((bytes) => Uint8Array.from(bytes));
    expect(inputs.map((bytes) => hashBytes32(bytes))).toEqual([
      0xab3e7c0b, 0x0578ab1b, 0x18b6b1bd, 0x1a80b1b3, 0x817421d0,
    ]);
  });

  test("crc32 is the one of zlib, and can go on from a seed", () => {
    expect(crc32(Buffer.from("123456789"))).toBe(0xcbf43926);
    expect(crc32(Buffer.from("456789"), crc32(Buffer.from("123")))).toBe(0xcbf43926);
  });

  test("similar names spread evenly over a few shards", () => {
    for (const shards of [2, 3, 4, 16]) {
      const counts = new Array<number>(shards).fill(0);
      for (let at = 0; at < 8000; at++) {
        const shard = hash32(`client-${at}`) % shards;
        counts[shard] = (counts[shard] as number) + 1;
      }
      const even = 8000 / shards;
      for (const count of counts) expect(Math.abs(count - even)).toBeLessThan(even * 0.2);
    }
  });
});

describe("seeded randomness", () => {
  // Seeds in bug reports stay good only while these hold.
  test("a seed gives the numbers it always gave", () => {
    const random = new SeededRandom(42);
    expect([random.next32(), random.next32(), random.next32()]).toEqual([
      3415929203, 220504180, 3558451373,
    ]);
    expect(new SeededRandom("42").next32()).toBe(3415929203);
  });

  test("below, between, pick and chance keep to their bounds and reach them", () => {
    const random = new SeededRandom(1);
    const [below, between, picked] = [new Set<number>(), new Set<number>(), new Set<string>()];
    let hits = 0;
    for (let draw = 0; draw < 2000; draw++) {
      below.add(random.below(3));
      between.add(random.between(-1, 1));
      picked.add(random.pick(["a", "b"]));
      if (random.chance(0.25)) hits++;
    }
    expect([...below].sort()).toEqual([0, 1, 2]);
    expect([...between].sort()).toEqual([-1, 0, 1]);
    expect([...picked].sort()).toEqual(["a", "b"]);
    expect(hits).toBeGreaterThan(400);
    expect(hits).toBeLessThan(600);
    expect([random.below(0), random.below(1)]).toEqual([0, 0]);
    expect(random.chance(0)).toBe(false);
    expect(random.chance(1)).toBe(true);
    expect(random.below(2 ** 32)).toBeLessThan(2 ** 32);
    expect(random.bytes(5).length).toBe(5);
  });

  test("split gives generators that do not disturb each other or their source", () => {
    const [one, other] = [new SeededRandom(7), new SeededRandom(7)];
    const disk = one.split("disk");
    for (let draw = 0; draw < 10; draw++) disk.next32();
    expect(one.next32()).toBe(other.next32());
    expect(new SeededRandom(7).split("disk").next32()).toBe(
      new SeededRandom(7).split("disk").next32(),
    );
    expect(new SeededRandom(7).split("disk").next32()).not.toBe(
      new SeededRandom(7).split("clock").next32(),
    );
  });

  test("the system's randomness keeps to its bounds", () => {
    for (const limit of [0, 1, 2, 1000, 2 ** 32]) {
      const drawn = systemRandom.below(limit);
      expect(Number.isInteger(drawn) && drawn >= 0 && drawn < Math.max(1, limit)).toBe(true);
    }
    expect(systemRandom.bytes(8).length).toBe(8);
  });
});
