import { describe, expect, test } from "vitest";
import { type ClockReading, CommitTime } from "../../../src/store/core/commit-time.ts";

const startUs = 1_767_225_600_000_000;
const at = (elapsedMs: number, wallStepUs = 0): ClockReading => ({
  wallUs: startUs + elapsedMs * 1000 + wallStepUs,
  elapsedMs,
});

describe("commit time", () => {
  test("times never repeat and never go back, however many are taken within a microsecond", () => {
    const clock = new CommitTime(0, at(0));
    const times = [clock.next(), clock.next(), clock.next()];
    expect(times).toEqual([startUs, startUs + 1, startUs + 2]);
    clock.observe(at(5));
    expect(clock.next()).toBe(startUs + 5000);
  });

  test("after a start times go on above the last one known, whatever the wall says", () => {
    const lastUs = startUs + 30_000_000;
    const clock = new CommitTime(lastUs, at(0));
    expect(clock.next()).toBe(lastUs + 1);
    clock.observe(at(100));
    expect(clock.next()).toBe(lastUs + 100_000);
  });

  test("time runs at the monotonic rate while the wall clock steps", () => {
    const clock = new CommitTime(0, at(0));
    clock.observe(at(1000, -3_000_000));
    expect(clock.next()).toBe(startUs + 1_000_000);
    clock.observe(at(2000, 900_000));
    expect(clock.next()).toBe(startUs + 2_000_000);
  });

  test("a wall clock more than a second ahead is adopted after ten seconds, not before", () => {
    const clock = new CommitTime(0, at(0));
    const aheadUs = 3_600_000_000;
    for (let second = 1; second <= 10; second++) {
      expect(clock.observe(at(second * 1000, aheadUs))).toBeUndefined();
    }
    expect(clock.next()).toBe(startUs + 10_000_000);
    expect(clock.observe(at(11_000, aheadUs))).toEqual({ kind: "adopted", jumpUs: aheadUs });
    expect(clock.next()).toBe(startUs + 11_000_000 + aheadUs);
    expect(clock.observe(at(30_000, aheadUs))).toBeUndefined();
    expect(clock.next()).toBe(startUs + 30_000_000 + aheadUs);
  });

  test("a step that is taken back within ten seconds is not followed", () => {
    const clock = new CommitTime(0, at(0));
    clock.observe(at(0, 5_000_000));
    clock.observe(at(9_000, 0));
    expect(clock.observe(at(9_500, 5_000_000))).toBeUndefined();
    expect(clock.observe(at(19_000, 5_000_000))).toBeUndefined();
    expect(clock.observe(at(19_500, 5_000_000))?.kind).toBe("adopted");
  });

  test("a wall clock ahead by a second or less is never adopted", () => {
    const clock = new CommitTime(0, at(0));
    for (let second = 0; second < 100; second++) {
      expect(clock.observe(at(second * 1000, 1_000_000))).toBeUndefined();
    }
  });

  test("a wall clock a minute behind raises one alarm, and one all-clear", () => {
    const clock = new CommitTime(startUs, at(0));
    expect(clock.observe(at(0, -60_000_000))).toBeUndefined();
    expect(clock.observe(at(0, -60_000_001))).toEqual({ kind: "behind", lagUs: 60_000_001 });
    expect(clock.observe(at(1, -70_000_000))).toBeUndefined();
    expect(clock.observe(at(2, 0))).toEqual({ kind: "behind_over" });
    expect(clock.next()).toBeGreaterThan(startUs);
  });

  test("times learned from elsewhere are behind all later ones", () => {
    const clock = new CommitTime(0, at(0));
    clock.advanceTo(startUs + 50);
    clock.advanceTo(startUs + 20);
    expect(clock.next()).toBe(startUs + 51);
    expect(clock.lastUs).toBe(startUs + 51);
  });

  test("times are integers though readings have fractions", () => {
    const clock = new CommitTime(0, { wallUs: startUs + 0.5, elapsedMs: 0.25 });
    clock.observe({ wallUs: startUs + 1.5, elapsedMs: 0.7503 });
    expect(clock.next()).toBe(startUs + 500);
  });
});
