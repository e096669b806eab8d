import { expect, test } from "vitest";
import type { MapWatcher } from "../../../src/store/index.ts";
import { MapWatches } from "../../../src/store/map/watches.ts";

const value = Buffer.from("v");

function rig() {
  const faults: unknown[] = [];
  const lost: unknown[] = [];
  const safely = (call: () => void): void => {
    try {
      call();
    } catch (fault) {
      faults.push(fault);
    }
  };
  const watches = new MapWatches(safely, (error) => lost.push(error));
  return { watches, faults, lost };
}

function heard(told: string[], replaced: MapWatcher["replaced"] = () => undefined): MapWatcher {
  return {
    applied: (key, bytes) => told.push(`${key}=${bytes?.toString() ?? "gone"}`),
    replaced,
  };
}

test("a watcher hears of what is applied under its prefix, until it ends", () => {
  const { watches } = rig();
  const told: string[] = [];
  const cancel = watches.add("sub/", heard(told));
  for (const key of ["sub/a", "other", "sub/b", "su"]) watches.applied(key, value);
  watches.applied("sub/a", undefined);
  cancel();
  watches.applied("sub/c", value);
  expect(told).toEqual(["sub/a=v", "sub/b=v", "sub/a=gone"]);
});

test("the fault of one watcher keeps no other from hearing", () => {
  const { watches, faults } = rig();
  const told: string[] = [];
  const broken = (): never => {
    throw new Error("broken");
  };
  watches.add("", { applied: broken, replaced: () => undefined });
  watches.add("", heard(told));
  watches.applied("a", value);
  expect([told, faults.length]).toEqual([["a=v"], 1]);
});

test("rows that were exchanged are settled when all have gone through them, twice if need be", async () => {
  const { watches } = rig();
  const ends: Array<() => void> = [];
  const slow = () => new Promise<void>((resolve) => ends.push(resolve));
  watches.add("", heard([], slow));
  watches.add("", heard([]));
  expect(watches.settled).toBeUndefined();
  watches.replaced();
  watches.replaced();
  let isSettled = false;
  void watches.settled?.then(() => {
    isSettled = true;
  });
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  ends[1]?.();
  await turn();
  expect(isSettled).toBe(false);
  ends[0]?.();
  await turn();
  expect([isSettled, watches.settled]).toEqual([true, undefined]);
});

test("an exchange that cannot be gone through is told, and holds up no barrier", async () => {
  const { watches, lost } = rig();
  watches.add(
    "",
    heard([], () => Promise.reject(new Error("unreadable"))),
  );
  watches.replaced();
  await watches.settled;
  expect(lost).toHaveLength(1);
});
