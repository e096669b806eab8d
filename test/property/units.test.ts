import fc from "fast-check";
import { expect, test } from "vitest";
import {
  formatDuration,
  formatSize,
  parseCount,
  parseDuration,
  parseSize,
} from "../../src/node/config/units.ts";

const whole = fc.oneof(
  fc.maxSafeNat(),
  fc.nat(100_000),
  fc
    .tuple(fc.nat(1000), fc.constantFrom(1000, 60_000, 86_400_000, 1024, 2 ** 20, 2 ** 30))
    .map(([amount, factor]) => amount * factor),
);

test("a duration survives format and parse", () => {
  fc.assert(
    fc.property(whole, (ms) => {
      expect(parseDuration(formatDuration(ms))).toBe(ms);
    }),
  );
});

test("a size survives format and parse", () => {
  fc.assert(
    fc.property(whole, (bytes) => {
      expect(parseSize(formatSize(bytes))).toBe(bytes);
    }),
  );
});

test("parsing any text gives a whole number >= 0 or undefined", () => {
  const units = fc.constantFrom(
    "d",
    "h",
    "m",
    "s",
    "ms",
    "B",
    "KiB",
    "MiB",
    "%",
    "",
    ".",
    "-",
    " ",
  );
  const texts = fc.oneof(
    fc.string(),
    fc
      .array(fc.tuple(fc.oneof(fc.nat(), fc.double()), units))
      .map((parts) => parts.flat().join("")),
  );
  fc.assert(
    fc.property(texts, (text) => {
      for (const parse of [parseDuration, parseSize, parseCount]) {
        const value = parse(text);
        expect(value === undefined || (Number.isSafeInteger(value) && value >= 0)).toBe(true);
      }
    }),
  );
});
