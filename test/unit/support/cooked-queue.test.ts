import { expect, test } from "vitest";
import type { Fence } from "../../../src/cluster/core/claims.ts";
import { type Cooked, CookedQueue } from "../../support/cooked-queue.ts";

const fence = (term: number): Fence => ({ epoch: 1, term, claimIndex: 10 * term });
const ids = (cooked: readonly Cooked[]): number[] => cooked.map(({ id }) => id);

test("a declined batch takes along what was cooked after it, and its number is given again", () => {
  const queue = new CookedQueue();
  const held = fence(5);
  for (const id of [1, 2, 3]) queue.cook(id, held, 40);
  expect(queue.take()).toEqual({ number: 41, id: 1, fence: held });
  expect(ids(queue.decline(queue.take() as Cooked))).toEqual([2, 3]);
  queue.cook(4, held, 40);
  expect(queue.take()).toEqual({ number: 42, id: 4, fence: held });
});

test("numbers under the claim in force have no gap when a batch of an earlier claim is declined", () => {
  const queue = new CookedQueue();
  const [earlier, held] = [fence(5), fence(8)];
  for (const id of [1, 2]) queue.cook(id, earlier, 244);
  for (const id of [3, 4]) queue.cook(id, held, 245);
  expect(ids(queue.decline(queue.take() as Cooked))).toEqual([1, 2, 3, 4]);
  expect(queue.size).toBe(0);
  queue.cook(5, held, 245);
  expect(queue.take()).toEqual({ number: 246, id: 5, fence: held });
});

test("what is proposed under the claim in force keeps its number when a later batch is declined", () => {
  const queue = new CookedQueue();
  const held = fence(8);
  for (const id of [1, 2]) queue.cook(id, held, 245);
  queue.take();
  queue.decline(queue.take() as Cooked);
  // The first is not applied yet.
  queue.cook(3, held, 245);
  expect(queue.take()?.number).toBe(247);
});
