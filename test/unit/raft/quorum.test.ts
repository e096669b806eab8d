import { describe, expect, test } from "vitest";
import {
  majorityOf,
  quorumHolds,
  quorumValue,
  type VoteResult,
  voteResult,
} from "../../../src/raft/core/quorum.ts";

/** Every assignment of one of `values` to each of `count` voters. */
function assignments<T>(count: number, values: readonly T[]): T[][] {
  if (count === 0) return [[]];
  return assignments(count - 1, values).flatMap((rest) => values.map((value) => [...rest, value]));
}

const votersOf = (count: number): number[] => Array.from({ length: count }, (_, at) => at + 1);

describe("quorum, exhaustive up to five voters", () => {
  test("any two majorities share a voter, and a majority minus one is none", () => {
    for (let count = 1; count <= 5; count++) {
      expect(2 * majorityOf(count)).toBeGreaterThan(count);
      expect(2 * (majorityOf(count) - 1)).toBeLessThanOrEqual(count);
    }
  });

  test("the quorum value is the highest that a majority has reached", () => {
    for (let count = 1; count <= 5; count++) {
      for (const values of assignments(count, [0, 1, 2, 3, 4])) {
        const value = quorumValue(votersOf(count), (voter) => values[voter - 1] as number);
        const reached = (level: number): number => values.filter((each) => each >= level).length;
        const isHighest = 2 * reached(value) > count && 2 * reached(value + 1) <= count;
        if (!isHighest) expect.unreachable(`${value} of ${values}`);
      }
    }
  });

  test("an election is won by a majority of grants, lost once none can come, else pending", () => {
    for (let count = 1; count <= 5; count++) {
      for (const votes of assignments(count, [true, false, undefined])) {
        const given = new Map<number, boolean>();
        for (const [at, vote] of votes.entries()) if (vote !== undefined) given.set(at + 1, vote);
        const granted = votes.filter((vote) => vote === true).length;
        const open = votes.filter((vote) => vote === undefined).length;
        let expected: VoteResult = "pending";
        if (2 * granted > count) expected = "won";
        else if (2 * (granted + open) <= count) expected = "lost";
        expect(voteResult(votersOf(count), given)).toBe(expected);
      }
    }
  });

  test("a condition holds for a quorum if it holds for more than half", () => {
    for (let count = 1; count <= 5; count++) {
      for (const holds of assignments(count, [true, false])) {
        const sum = holds.filter(Boolean).length;
        expect(quorumHolds(votersOf(count), (voter) => holds[voter - 1] as boolean)).toBe(
          2 * sum > count,
        );
      }
    }
  });

  test("votes and values of strangers do not count", () => {
    const votes = new Map([
      [1, true],
      [8, true],
      [9, true],
    ]);
    expect(voteResult([1, 2, 3], votes)).toBe("pending");
    expect(quorumValue([1, 2, 3], (voter) => (voter === 1 ? 7 : 0))).toBe(0);
  });

  test("no voters, no majority", () => {
    expect(quorumValue([], () => 9)).toBe(0);
    expect(voteResult([], new Map())).toBe("lost");
    expect(quorumHolds([], () => true)).toBe(false);
  });
});
