import { expect, test } from "vitest";
import { LogBytes } from "../../../src/cluster/log-bytes.ts";

test("a release counts off what it covers, and all of it when it covers all", () => {
  const bytes = new LogBytes();
  for (let index = 1; index <= 100; index++) bytes.add(index, 1_000);
  const all = bytes.sinceRelease;
  expect(all).toBeGreaterThan(100_000);
  bytes.release(50);
  expect(bytes.sinceRelease).toBeGreaterThanOrEqual(all / 2);
  expect(bytes.sinceRelease).toBeLessThan(all / 2 + 2 * 4_096);
  bytes.release(30);
  const before = bytes.sinceRelease;
  bytes.release(100);
  expect(before).toBeGreaterThan(0);
  expect(bytes.sinceRelease).toBe(0);
  bytes.add(101, 10);
  expect(bytes.sinceRelease).toBeGreaterThan(0);
});
