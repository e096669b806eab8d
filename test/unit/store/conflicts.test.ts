import { describe, expect, test } from "vitest";
import {
  putRecord,
  type ReadRecord,
  RecentWrites,
  type WriteRecord,
} from "../../../src/store/core/conflicts.ts";
import { parseTopicFilter } from "../../../src/topic/index.ts";

const latest = { fromUs: 0, toUs: Number.MAX_SAFE_INTEGER };
const readTopic = (target: string): ReadRecord => ({ target, ...latest });
const readFilter = (text: string): ReadRecord => ({ target: parseTopicFilter(text), ...latest });
const deleteRange = (text: string, timeUs: number, fromUs = 0, toUs = timeUs): WriteRecord => ({
  ...{ timeUs, fromUs, toUs },
  target: parseTopicFilter(text),
});

describe("recent writes", () => {
  test("a read conflicts with a later write of its topic, not with an earlier one", () => {
    const window = new RecentWrites(0);
    window.record(putRecord("a/b", 100));
    expect(window.check([readTopic("a/b")], 100)).toBeUndefined();
    expect(window.check([readTopic("a/c")], 99)).toBeUndefined();
    expect(window.check([readTopic("a/b")], 99)).toEqual({
      kind: "overtaken",
      write: putRecord("a/b", 100),
    });
  });

  test("a filter that was read conflicts with every topic it matches", () => {
    const window = new RecentWrites(0);
    window.record(putRecord("a/b/c", 100));
    expect(window.check([readFilter("a/#")], 50)?.kind).toBe("overtaken");
    expect(window.check([readFilter("+/b/+")], 50)?.kind).toBe("overtaken");
    expect(window.check([readFilter("a/+")], 50)).toBeUndefined();
  });

  test("a range delete conflicts with topics and filters that it may have touched", () => {
    const window = new RecentWrites(0);
    window.record(deleteRange("a/+", 100));
    expect(window.check([readTopic("a/b")], 50)?.kind).toBe("overtaken");
    expect(window.check([readFilter("+/b")], 50)?.kind).toBe("overtaken");
    expect(window.check([readTopic("b/b")], 50)).toBeUndefined();
    expect(window.check([readFilter("a/b/#")], 50)?.kind).toBe("overtaken");
    expect(window.check([readFilter("b/#")], 50)).toBeUndefined();
  });

  test("a read of a closed span of time is not overtaken by what is written after the span", () => {
    const window = new RecentWrites(0);
    window.record(putRecord("a", 100));
    const past = { target: "a", fromUs: 0, toUs: 60 };
    expect(window.check([past], 70)).toBeUndefined();
    window.record(deleteRange("a", 110, 50, 55));
    expect(window.check([past], 105)?.kind).toBe("overtaken");
    expect(window.check([{ ...past, toUs: 49 }], 105)).toBeUndefined();
  });

  test("a transaction that read nothing conflicts with nothing", () => {
    const window = new RecentWrites(1000);
    expect(window.check([], 0)).toBeUndefined();
  });

  test("what was read before the claim is too old", () => {
    const window = new RecentWrites(1000);
    expect(window.check([readTopic("a")], 999)).toEqual({ kind: "too_old", floorUs: 1000 });
    expect(window.check([readTopic("a")], 1000)).toBeUndefined();
  });

  test("writes older than the window are forgotten, and reads as old conflict", () => {
    const window = new RecentWrites(0, { windowMs: 1, writesMax: 100 });
    window.record(putRecord("a", 1_000));
    window.record(putRecord("b", 2_000));
    expect(window.count).toBe(2);
    window.record(putRecord("c", 2_001));
    expect([window.count, window.floorUs]).toEqual([2, 1_000]);
    expect(window.check([readTopic("x")], 999)?.kind).toBe("too_old");
    expect(window.check([readTopic("x")], 1_000)).toBeUndefined();
    expect(window.check([readTopic("b")], 1_000)?.kind).toBe("overtaken");
  });

  test("the number of writes held is bounded, and reads below the bound conflict", () => {
    const window = new RecentWrites(0, { windowMs: 5_000, writesMax: 1_000 });
    for (let timeUs = 1; timeUs <= 10_000; timeUs++) window.record(putRecord(`t${timeUs}`, timeUs));
    expect(window.count).toBe(1_000);
    expect(window.check([readTopic("x")], 8_999)?.kind).toBe("too_old");
    expect(window.check([readTopic("x")], 9_000)).toBeUndefined();
    expect(window.check([readTopic("t9001")], 9_000)?.kind).toBe("overtaken");
    expect(window.check([readTopic("t9001")], 9_001)).toBeUndefined();
  });

  test("a checkpoint lets go of what it covers: reads before it conflict, later ones are judged", () => {
    const window = new RecentWrites(0);
    for (const timeUs of [100, 200, 300]) window.record(putRecord(`t${timeUs}`, timeUs));
    window.forgetThrough(200);
    expect([window.count, window.floorUs]).toEqual([1, 200]);
    expect(window.check([readTopic("x")], 199)?.kind).toBe("too_old");
    expect(window.check([readTopic("x")], 200)).toBeUndefined();
    expect(window.check([readTopic("t300")], 200)?.kind).toBe("overtaken");
    window.forgetThrough(300);
    window.record(putRecord("t400", 400));
    expect(window.check([readTopic("t400")], 300)?.kind).toBe("overtaken");
  });
});
