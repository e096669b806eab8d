import { expect, test } from "vitest";
import { Turns } from "../../../src/aedes/lock.ts";

test("a turn that is given up early does not let later ones pass those before it", async () => {
  const turns = new Turns();
  const [first, second, third] = [turns.take("k"), turns.take("k"), turns.take("k")];
  second.begun();
  const fourth = turns.take("k");
  const begun: string[] = [];
  const watched = [
    third.before?.then(() => begun.push("third")),
    fourth.before?.then(() => begun.push("fourth")),
  ];
  await new Promise((resolve) => setImmediate(resolve));
  expect(begun).toEqual([]);
  first.begun();
  await watched[0];
  expect(begun).toEqual(["third"]);
  third.begun();
  await watched[1];
  expect(begun).toEqual(["third", "fourth"]);
});

test("the last turn that is given up early still holds back the next one", async () => {
  const turns = new Turns();
  const [first, second] = [turns.take("k"), turns.take("k")];
  second.begun();
  const third = turns.take("k");
  expect(third.before).toBeDefined();
  first.begun();
  await third.before;
});

test("a key without turns under way makes nobody wait", async () => {
  const turns = new Turns();
  const [first, second] = [turns.take("k"), turns.take("k")];
  expect(first.before).toBeUndefined();
  first.begun();
  second.begun();
  await new Promise((resolve) => setImmediate(resolve));
  expect(turns.take("k").before).toBeUndefined();
});
