import { describe, expect, test } from "vitest";
import { type ClockReading, CommitTime } from "../../../src/store/core/commit-time.ts";

const startUs = 1_767_225_600_000_000;
const at = (elapsedMs: number, wallStepUs = 0): ClockReading => ({
  wallUs: startUs + elapsedMs * 1000 + wallStepUs,
  elapsedMs,
});

describe("commit time", () => {
  test("times never repeat and never go back, however many are taken within a microsecond", () => {
    const time = new CommitTime(at(0));
    expect([time.after(0), time.after(startUs), time.after(startUs + 1)]).toEqual([
      ...[startUs, startUs + 1, startUs + 2],
    ]);
    time.observe(at(5));
    expect(time.after(startUs + 2)).toBe(startUs + 5000);
  });

  test("after a start times go on above the last one known, whatever the wall says", () => {
    const lastUs = startUs + 30_000_000;
    const time = new CommitTime(at(0));
    time.join(lastUs);
    expect(time.after(lastUs)).toBe(lastUs + 1);
    time.observe(at(100));
    expect(time.after(lastUs + 1)).toBe(lastUs + 100_000);
  });

  test("what one shard gives is no less than what another gave before", () => {
    const time = new CommitTime(at(0));
    const lastUs = startUs + 30_000_000;
    expect(time.after(0)).toBe(startUs);
    time.join(lastUs);
    expect(time.after(startUs)).toBe(lastUs);
    time.gave(lastUs + 5_000);
    time.observe(at(1));
    expect(time.after(startUs)).toBe(lastUs + 5_000);
    time.observe(at(6));
    expect(time.after(startUs)).toBe(lastUs + 6_000);
  });

  test("time runs at the monotonic rate while the wall clock steps", () => {
    const time = new CommitTime(at(0));
    time.observe(at(1000, -3_000_000));
    expect(time.after(0)).toBe(startUs + 1_000_000);
    time.observe(at(2000, 900_000));
    expect(time.after(0)).toBe(startUs + 2_000_000);
  });

  test("a wall clock more than a second ahead is adopted after ten seconds, not before", () => {
    const time = new CommitTime(at(0));
    const aheadUs = 3_600_000_000;
    for (let second = 1; second <= 10; second++) {
      expect(time.observe(at(second * 1000, aheadUs))).toBeUndefined();
    }
    expect(time.after(0)).toBe(startUs + 10_000_000);
    expect(time.observe(at(11_000, aheadUs))).toEqual({ kind: "adopted", jumpUs: aheadUs });
    expect(time.after(0)).toBe(startUs + 11_000_000 + aheadUs);
    expect(time.observe(at(30_000, aheadUs))).toBeUndefined();
    expect(time.after(0)).toBe(startUs + 30_000_000 + aheadUs);
  });

  test("a step that is taken back within ten seconds is not followed", () => {
    const time = new CommitTime(at(0));
    time.observe(at(0, 5_000_000));
    time.observe(at(9_000, 0));
    expect(time.observe(at(9_500, 5_000_000))).toBeUndefined();
    expect(time.observe(at(19_000, 5_000_000))).toBeUndefined();
    expect(time.observe(at(19_500, 5_000_000))?.kind).toBe("adopted");
  });

  test("a wall clock ahead by a second or less is never adopted", () => {
    const time = new CommitTime(at(0));
    for (let second = 0; second < 100; second++) {
      expect(time.observe(at(second * 1000, 1_000_000))).toBeUndefined();
    }
  });

  test("a wall clock a minute behind raises one alarm, and one all-clear", () => {
    const time = new CommitTime(at(0));
    expect(time.observe(at(0, -60_000_000))).toBeUndefined();
    expect(time.observe(at(0, -60_000_001))).toEqual({ kind: "behind", lagUs: 60_000_001 });
    expect(time.observe(at(1, -70_000_000))).toBeUndefined();
    expect(time.observe(at(2, 0))).toEqual({ kind: "behind_over" });
    expect(time.after(startUs)).toBeGreaterThan(startUs);
  });

  test("times are integers though readings have fractions", () => {
    const time = new CommitTime({ wallUs: startUs + 0.5, elapsedMs: 0.25 });
    time.observe({ wallUs: startUs + 1.5, elapsedMs: 0.7503 });
    expect(time.after(0)).toBe(startUs + 500);
  });
});
