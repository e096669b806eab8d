import fc from "fast-check";
import { expect, test } from "vitest";
import { parseJson } from "../../../src/base/index.ts";

test("what is not too deep is what JSON.parse says", () => {
  fc.assert(
    fc.property(fc.json({ maxDepth: 10 }), (text) => {
      expect(parseJson(text)).toEqual(JSON.parse(text));
    }),
  );
});

test.each([
  ["lists", "[".repeat(33), "]".repeat(33)],
  ["objects", '{"a":'.repeat(33), `1${"}".repeat(33)}`],
  ["what never ends", "[".repeat(5_000_000), ""],
])("%s deeper than 32 levels are refused, at once", (_name, head, tail) => {
  expect(() => parseJson(head + tail)).toThrow("nested deeper than 32 levels");
});

test("brackets inside of texts are no depth", () => {
  for (const value of ["[".repeat(100), `"${"{".repeat(100)}`, `\\"${"[".repeat(100)}`, "\\"]) {
    expect(parseJson(JSON.stringify([value]))).toEqual([value]);
  }
});

test.each(["", "[", '"', '"\\', '{"a":', "]", "nothing"])("%j is no JSON", (text) => {
  expect(() => parseJson(text)).toThrow(SyntaxError);
});
