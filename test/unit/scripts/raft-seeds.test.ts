import { describe, expect, test } from "vitest";
// @ts-expect-error: a plain script without types
import { missingStates, parseWords, sumTallies } from "../../../scripts/raft-seeds.mjs";

const tally = (from: number, seeds: number, rest: object = {}) => ({
  kind: "core",
  steps: 1500,
  without: "",
  flaw: "",
  twice: true,
  from,
  seeds,
  events: seeds * 10,
  hash: 2 ** 31,
  failed: 0,
  failures: [],
  coverage: { leadersElected: 2, ...rest },
  seconds: 1.5,
});

describe("tallies of ranges", () => {
  test("are summed in the order of their seeds", () => {
    const sum = sumTallies([tally(101, 50, { votesSplit: 1 }), tally(1, 100)]);
    expect(sum).toMatchObject({ from: 1, seeds: 150, events: 1500, hash: 0, seconds: 3 });
    expect(sum.coverage).toEqual({ leadersElected: 4, votesSplit: 1 });
  });

  test("that count a seed twice are refused", () => {
    expect(() => sumTallies([tally(1, 100), tally(100, 10)])).toThrow("counted twice");
  });

  test("that leave seeds out are refused", () => {
    expect(() => sumTallies([tally(1, 100), tally(102, 10)])).toThrow(
      "seeds 101 to 101 are missing",
    );
  });

  test.each(["kind", "steps", "without", "twice"])(
    "of runs with another %s are refused",
    (name) => {
      expect(() => sumTallies([tally(1, 10), { ...tally(11, 10), [name]: "x" }])).toThrow(
        `another ${name}`,
      );
    },
  );

  test("count all failures, and keep the first ones", () => {
    const failures = Array.from({ length: 15 }, (_, seed) => ({ seed, message: "broken" }));
    const failing = (from: number) => ({ ...tally(from, 20), failed: 15, failures });
    const sum = sumTallies([failing(1), failing(21)]);
    expect(sum.failed).toBe(30);
    expect(sum.failures).toHaveLength(20);
  });

  test("name the states that were never reached, once there are enough seeds", () => {
    const help = { leadersElected: "", votesSplit: "" };
    expect(missingStates(tally(1, 999), help, 1000)).toEqual([]);
    expect(missingStates(tally(1, 1000), help, 1000)).toEqual(["votesSplit"]);
  });
});

describe("options", () => {
  const parse = (...words: string[]) =>
    parseWords(words, {
      numbers: { seed: 1, seeds: 10 },
      texts: { flaw: "" },
      switches: ["twice"],
      usage: (problem: string) => {
        throw new Error(problem);
      },
    });

  test("--from is the first seed", () => {
    expect(parse("--from", "7", "--twice")).toMatchObject({ seed: 7, seeds: 10, twice: true });
  });

  test("--sum takes all words behind it as files", () => {
    expect(parse("--sum", "a", "--twice").sum).toEqual(["a", "--twice"]);
  });

  test.each([
    [["--seeds", "many"], "--seeds needs a number"],
    [["--flaw"], "--flaw needs a value"],
    [["--unknown"], "unknown option --unknown"],
    [["--sum"], "--sum needs files"],
  ])("%s is refused", (words, problem) => {
    expect(() => parse(...words)).toThrow(problem);
  });
});
