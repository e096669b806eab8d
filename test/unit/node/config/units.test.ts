import { expect, test } from "vitest";
import { describeSize } from "../../../../src/base/index.ts";
import {
  formatDuration,
  formatSize,
  parseCount,
  parseDuration,
  parseSize,
} from "../../../../src/node/config/units.ts";

test("durations are read with their units, alone or together", () => {
  const read = ["0", "500ms", "15s", "1.5s", "1h30m", "7d", "1.1s"].map(parseDuration);
  expect(read).toEqual([0, 500, 15_000, 1500, 5_400_000, 604_800_000, 1100]);
});

test("durations without unit, with spaces, signs or parts of a millisecond are none", () => {
  for (const text of ["15", "15 s", "-1s", "1.5ms", "1e3s", "s", "", "1w", "1S", "00x"]) {
    expect(parseDuration(text)).toBeUndefined();
  }
});

test("sizes are read in binary units only", () => {
  expect(["0", "10B", "64KiB", "1.5GiB"].map(parseSize)).toEqual([0, 10, 65_536, 1.5 * 2 ** 30]);
  for (const text of ["64", "64KB", "64k", "1.5B", "", "KiB"])
    expect(parseSize(text)).toBeUndefined();
});

test("counts are digits only", () => {
  expect(parseCount("1000")).toBe(1000);
  for (const text of ["1_000", "1e3", "-1", "1.0", "", "0x10"])
    expect(parseCount(text)).toBeUndefined();
});

test("formats take the largest unit that is exact", () => {
  expect([0, 1, 1000, 90_000, 86_400_000].map(formatDuration)).toEqual([
    "0",
    "1ms",
    "1s",
    "90s",
    "1d",
  ]);
  expect([0, 1000, 65_536, 1.5 * 2 ** 30].map(formatSize)).toEqual([
    "0",
    "1000B",
    "64KiB",
    "1536MiB",
  ]);
  expect([0, 1023, 1536, 12.34 * 2 ** 30].map(describeSize)).toEqual([
    "0 B",
    "1023 B",
    "1.5 KiB",
    "12.3 GiB",
  ]);
});
