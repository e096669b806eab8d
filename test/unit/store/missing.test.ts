import { expect, test } from "vitest";
import { type MissingSpan, nextMissing, sortSpans } from "../../../src/store/core/missing.ts";

const span = (afterUs: number, untilUs: number, countMax: number, reason = "expired") =>
  ({ afterUs, untilUs, countMax, reason }) as MissingSpan;

test("spans that follow each other are one, as far as their reason is one", () => {
  const spans = sortSpans([span(10, 20, 2), span(0, 10, 1), span(20, 30, 4, "damaged")]);
  expect(nextMissing(spans, 0)).toEqual(span(0, 20, 3));
  expect(nextMissing(spans, 20)).toEqual(span(20, 30, 4, "damaged"));
  expect(nextMissing(spans, 30)).toBeUndefined();
});

test("a span ahead begins where it begins, one around the position begins there", () => {
  const spans = [span(10, 20, 2), span(40, 50, 7)];
  expect(nextMissing(spans, 5)).toEqual(span(10, 20, 2));
  expect(nextMissing(spans, 15)).toEqual(span(15, 20, 2));
  expect(nextMissing(spans, 20)).toEqual(span(40, 50, 7));
});

test("what lies within a longer span is told with it or not at all", () => {
  const spans = sortSpans([span(0, 100, 9), span(20, 30, 5, "damaged")]);
  expect(nextMissing(spans, 0)).toEqual(span(0, 100, 9));
  expect(nextMissing(spans, 100)).toBeUndefined();
});
