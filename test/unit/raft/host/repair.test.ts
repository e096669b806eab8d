import { expect, test } from "vitest";
import { Repair } from "../../../../src/raft/host/repair.ts";

test("a repair is done when the index of this life's answer is applied and on the disk, not before", () => {
  const repair = new Repair("repair.2.77", 5, () => undefined);
  expect(repair.isDone(100, 100)).toBe(false);
  expect(repair.takes("repair.1.33", 3)).toBe(false);
  expect(repair.isDone(100, 100)).toBe(false);
  expect(repair.takes("repair.2.77", 10)).toBe(true);
  // A later answer of the same life asks for no more than the first.
  expect(repair.takes("repair.2.77", 20)).toBe(true);
  expect(repair.isDone(9, 10)).toBe(false);
  expect(repair.isDone(10, 9)).toBe(false);
  expect(repair.isDone(10, 10)).toBe(true);
});
