import { describe, expect, test } from "vitest";
import { coverOf } from "../../../src/store/core/cover.ts";
import {
  countMissed,
  type MissingSpan,
  type MissingStretch,
  type MissingWant,
  nextMissing,
  sortSpans,
} from "../../../src/store/core/missing.ts";

const span = (afterUs: number, untilUs: number, countMax: number, reason = "expired") =>
  ({ afterUs, untilUs, countMax, reason }) as MissingSpan;

const bounds = (found: MissingStretch | undefined): unknown =>
  found === undefined ? undefined : [found.afterUs, found.untilUs, found.reason];

describe("spans", () => {
  test("that follow each other are one, as far as their reason is one", () => {
    const spans = sortSpans([span(10, 20, 2), span(0, 10, 1), span(20, 30, 4, "damaged")]);
    expect(bounds(nextMissing(spans, 0))).toEqual([0, 20, "expired"]);
    expect(nextMissing(spans, 0)?.spans).toHaveLength(2);
    expect(bounds(nextMissing(spans, 20))).toEqual([20, 30, "damaged"]);
    expect(nextMissing(spans, 30)).toBeUndefined();
  });

  test("ahead begin where they begin, those around the position begin there", () => {
    const spans = [span(10, 20, 2), span(40, 50, 7)];
    expect(bounds(nextMissing(spans, 5))).toEqual([10, 20, "expired"]);
    expect(bounds(nextMissing(spans, 15))).toEqual([15, 20, "expired"]);
    expect(bounds(nextMissing(spans, 20))).toEqual([40, 50, "expired"]);
  });

  test("within a longer one are told with it or not at all", () => {
    const spans = sortSpans([span(0, 100, 9), span(20, 30, 5, "damaged")]);
    expect(bounds(nextMissing(spans, 0))).toEqual([0, 100, "expired"]);
    expect(nextMissing(spans, 100)).toBeUndefined();
  });
});

describe("counts of what a reader missed", () => {
  const streams = [
    { structure: ["a", "+"], dollar: false, ttvs: 5 },
    { structure: ["b"], dollar: false, ttvs: 7 },
    { structure: ["$s", "x"], dollar: true, ttvs: 11 },
  ];
  const dropped = { ...span(10, 20, 23), streams };
  const want = (filter: string, afterUs = 0, lastMatchUs = 20): MissingWant => ({
    words: filter.split("/"),
    ...{ afterUs, lastMatchUs },
  });
  const missed = (spans: readonly MissingSpan[], ...wants: MissingWant[]): unknown => {
    const { count, estimated } = countMissed(nextMissing(spans, 0)!, wants);
    return [count, estimated];
  };

  test("are exact where filters take whole streams and the whole span", () => {
    expect(missed([dropped], want("#"))).toEqual([12, false]);
    expect(missed([dropped], want("a/#"), want("b"))).toEqual([12, false]);
    expect(missed([dropped], want("$s/#"))).toEqual([11, false]);
    expect(missed([dropped], want("b", 10))).toEqual([7, false]);
  });

  test("are upper bounds where a part of a stream or of the span was wanted", () => {
    expect(missed([dropped], want("a/1"))).toEqual([5, true]);
    expect(missed([dropped], want("b", 15))).toEqual([7, true]);
    expect(missed([{ ...dropped, streams: undefined }], want("b"))).toEqual([23, true]);
    expect(missed([dropped], want("a/1"), want("a/+"))).toEqual([5, false]);
  });

  test("are 0 where nothing can have matched: other streams, or no match since", () => {
    expect(missed([dropped], want("c/#"))).toEqual([0, false]);
    expect(missed([dropped], want("#", 0, 10))).toEqual([0, false]);
    expect(missed([dropped], want("#", 15, 15))).toEqual([0, false]);
    expect(missed([dropped], want("#", 20))).toEqual([0, false]);
    expect(missed([dropped])).toEqual([0, false]);
  });

  test("of damage do not trust the last match: nobody applied what is gone", () => {
    expect(missed([span(10, 20, 3, "damaged")], want("x", 0, 0))).toEqual([3, true]);
    expect(missed([span(10, 20, 3, "damaged")], want("x", 20, 0))).toEqual([0, false]);
  });
});

test.each([
  ["a/+", "a/+", "all"],
  ["a/+", "a/#", "all"],
  ["a/+", "a/1", "some"],
  ["a/+", "+/1", "some"],
  ["a/+", "a/+/#", "all"],
  ["a/+", "a/+/+", "none"],
  ["a/+", "b/+", "none"],
  ["a/+", "a", "none"],
  ["a", "a/#", "all"],
  ["#", "#", "all"],
  ["#", "a/#", "some"],
])("structure %s and filter %s: %s", (structure, filter, cover) => {
  const stream = { structure: structure.split("/"), dollar: false };
  expect(coverOf(stream, filter.split("/"))).toBe(cover);
  expect(coverOf({ ...stream, dollar: true }, filter.split("/"))).toBe("none");
});
