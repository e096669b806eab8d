import { describe, expect, test } from "vitest";
import { SimClock } from "../../../../src/base/index.ts";
import { addressKey } from "../../../../src/broker/limits/address.ts";
import { fits } from "../../../../src/broker/limits/devices.ts";
import { Flapping, flappingSettingsDefault } from "../../../../src/broker/limits/flapping.ts";
import { Overload } from "../../../../src/broker/limits/overload.ts";
import { createRate, Rate, Traffic } from "../../../../src/broker/limits/rate.ts";

describe("rates", () => {
  test("a burst is free, then the debt is paid in time", () => {
    const rate = new Rate(10, 0);
    expect(rate.charge(10, 0)).toBe(0);
    expect(rate.charge(5, 0)).toBe(500);
    expect(rate.charge(0, 400)).toBe(100);
    expect(rate.charge(0, 500)).toBe(0);
    // Nothing is saved beyond the burst.
    expect(rate.charge(11, 100_000)).toBe(100);
  });

  test("take says no when there is none, and when there will be", () => {
    const rate = new Rate(2, 0);
    expect([rate.take(0), rate.take(0), rate.take(0)]).toEqual([true, true, false]);
    expect(rate.waitMs(0)).toBe(500);
    expect(rate.take(499)).toBe(false);
    expect(rate.take(500)).toBe(true);
  });

  test("a clock that steps back gives nothing away and takes nothing", () => {
    const rate = new Rate(1, 1000);
    expect(rate.take(1000)).toBe(true);
    expect(rate.take(0)).toBe(false);
    expect(rate.take(1000)).toBe(true);
  });

  test("the longest wait of all that are charged counts", () => {
    const traffic = new Traffic([new Rate(1, 0), undefined, new Rate(100, 0)], [new Rate(1000, 0)]);
    expect(traffic.charge(3, 1500, 0)).toBe(2000);
    expect(createRate(Number.POSITIVE_INFINITY, 0)).toBeUndefined();
    expect(new Traffic([undefined], [undefined]).isLimited).toBe(false);
  });
});

test.each([
  ["127.0.0.1:50312", "127.0.0.1"],
  ["[::ffff:10.0.0.1]:1", "10.0.0.1"],
  ["[2001:db8:1:2:3:4:5:6]:1", "2001:db8:1:2::/64"],
  ["[2001:db8::1]:1", "2001:db8:0:0::/64"],
  ["[::1]:1", "0:0:0:0::/64"],
  ["[fe80::1%eth0]:1", "fe80:0:0:0::/64"],
  ["unix", undefined],
])("%s counts as %s", (remote, key) => {
  expect(addressKey(remote)).toBe(key);
});

test.each([
  ["esp-*", "esp-12", true],
  ["esp-*", "esp", false],
  ["*", "", true],
  ["a*b*c", "a-b-b-c", true],
  ["a*b*c", "a-c-b", false],
  ["exact", "exact", true],
  ["exact", "exactly", false],
  ["a.c", "abc", false],
  [`${"a*".repeat(40)}b`, "a".repeat(5000), false],
])("device pattern %s fits %s: %s", (glob, text, expected) => {
  expect(fits(glob, text)).toBe(expected);
});

describe("overload", () => {
  function world() {
    const clock = new SimClock();
    const levels: number[] = [];
    let memory = 0;
    const overload = new Overload(
      { lagMsMax: 500, memoryBytesMax: 1000 },
      clock,
      () => memory,
      (level) => levels.push(level),
    );
    overload.start();
    return { clock, levels, overload, use: (bytes: number) => (memory = bytes) };
  }

  test("memory above the bound sheds connections, a tenth more QoS 0, and it recovers", async () => {
    const { clock, levels, overload, use } = world();
    use(1050);
    await clock.advance(250);
    expect(overload.level).toBe(0);
    await clock.advance(250);
    expect(overload.level).toBe(1);
    use(1200);
    await clock.advance(500);
    expect(overload.level).toBe(2);
    // The edge does not flutter.
    use(990);
    await clock.advance(5000);
    expect(overload.level).toBe(1);
    use(800);
    await clock.advance(750);
    expect(overload.level).toBe(1);
    await clock.advance(250);
    expect(overload.level).toBe(0);
    expect(levels).toEqual([1, 2, 1, 0]);
  });
});

describe("flapping", () => {
  test("R43: the id is told once in a window, and is slowed down when it goes on and on", () => {
    const flapping = new Flapping({
      ...flappingSettingsDefault,
      takeoversMax: 3,
      unhurriedMax: 5,
      idsMax: 2,
    });
    for (let n = 0; n < 4; n++) flapping.note("brisk", 0);
    expect(flapping.isSlowed("brisk", 1)).toBe(false);
    const told = Array.from({ length: 6 }, (_, n) => flapping.note("id", n * 1000));
    expect(told).toEqual([false, false, true, false, false, false]);
    expect(flapping.isSlowed("id", 5000)).toBe(true);
    expect(flapping.isSlowed("other", 5000)).toBe(false);
    expect(flapping.isSlowed("id", 60_000)).toBe(false);
    // Ids are bounded: the one not seen longest is forgotten.
    for (const id of ["a", "b", "c"]) flapping.note(id, 5000);
    expect(flapping.isSlowed("id", 5000)).toBe(false);
  });
});
