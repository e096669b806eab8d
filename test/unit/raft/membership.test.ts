import { describe, expect, test } from "vitest";
import {
  ConfigurationHistory,
  changeConfiguration,
  createConfiguration,
  isMember,
  isVoter,
  membersOf,
  sameConfiguration,
} from "../../../src/raft/core/membership.ts";
import { majorityOf } from "../../../src/raft/core/quorum.ts";
import type { Configuration, MembershipChange } from "../../../src/raft/core/types.ts";

const ids = [1, 2, 3, 4, 5];
const ops: readonly MembershipChange["op"][] = ["add", "remove", "learner", "promote"];

/** Every way to make each of five nodes a voter, a learner or neither, with one voter at least. */
function allConfigurations(): Configuration[] {
  const found: Configuration[] = [];
  for (let code = 0; code < 3 ** ids.length; code++) {
    const roles = ids.map((_, at) => Math.floor(code / 3 ** at) % 3);
    const voters = ids.filter((_, at) => roles[at] === 1);
    if (voters.length > 0) {
      const learners = ids.filter((_, at) => roles[at] === 2);
      found.push(createConfiguration(voters, learners));
    }
  }
  return found;
}

function subsets(of: readonly number[]): number[][] {
  return Array.from({ length: 2 ** of.length }, (_, code) =>
    of.filter((_id, at) => Math.floor(code / 2 ** at) % 2 === 1),
  );
}

describe("one step of membership, exhaustive up to five nodes", () => {
  test("a change does what its name says, touches nobody else and leaves a voter", () => {
    for (const before of allConfigurations()) {
      for (const op of ops) {
        for (const node of ids) {
          const after = changeConfiguration(before, { op, node });
          const voter = isVoter(before, node);
          const learner = isMember(before, node) && !voter;
          const alone = voter && before.voters.length === 1;
          const fits = {
            add: !voter && !learner,
            promote: learner,
            learner: !learner && !alone,
            remove: (voter || learner) && !alone,
          }[op];
          expect(after !== undefined).toBe(fits);
          if (after === undefined) continue;
          expect(isVoter(after, node)).toBe(op === "add" || op === "promote");
          expect(isMember(after, node)).toBe(op !== "remove");
          const touched = ids.filter(
            (other) =>
              other !== node &&
              (isVoter(after, other) !== isVoter(before, other) ||
                isMember(after, other) !== isMember(before, other)),
          );
          if (touched.length > 0) expect.unreachable(`${op} ${node} touches ${touched}`);
        }
      }
    }
  });

  test("every majority before shares a voter with every majority after", () => {
    for (const before of allConfigurations()) {
      for (const op of ops) {
        for (const node of ids) {
          const after = changeConfiguration(before, { op, node });
          if (after === undefined) continue;
          const olds = subsets(before.voters).filter(
            (set) => set.length === majorityOf(before.voters.length),
          );
          const news = subsets(after.voters).filter(
            (set) => set.length === majorityOf(after.voters.length),
          );
          for (const one of olds) {
            const apart = news.filter((other) => !one.some((id) => other.includes(id)));
            if (apart.length > 0) expect.unreachable(`${one} and ${apart} share no voter`);
          }
        }
      }
    }
  });

  test("a node number that is none is refused", () => {
    const before = createConfiguration([1]);
    for (const node of [0, -1, 1.5, Number.NaN]) {
      expect(changeConfiguration(before, { op: "add", node })).toBeUndefined();
    }
  });

  test("configurations are sorted, without doubles, and compare by members and roles", () => {
    const one = createConfiguration([3, 1, 3], [2]);
    expect(one).toEqual({ voters: [1, 3], learners: [2] });
    expect(membersOf(one)).toEqual([1, 2, 3]);
    expect(sameConfiguration(one, createConfiguration([1, 3], [2]))).toBe(true);
    expect(sameConfiguration(one, createConfiguration([1, 2], [3]))).toBe(false);
    expect(sameConfiguration(one, createConfiguration([1, 3]))).toBe(false);
  });
});

describe("the configurations of a log", () => {
  const first = createConfiguration([1, 2, 3]);
  const second = createConfiguration([1, 2, 3, 4]);
  const third = createConfiguration([1, 2, 3]);

  function history(): ConfigurationHistory {
    const steps = new ConfigurationHistory(0, first);
    steps.add(5, second);
    steps.add(9, third);
    return steps;
  }

  test("the newest is in force, and each index knows its own", () => {
    const steps = history();
    expect([steps.newest, steps.newestIndex]).toEqual([third, 9]);
    expect(steps.at(4).index).toBe(0);
    expect(steps.at(5).index).toBe(5);
    expect(steps.at(8).index).toBe(5);
    expect(steps.at(100).index).toBe(9);
  });

  test("a voter of any configuration from the committed one on may be needed as a leader", () => {
    const steps = history();
    expect(steps.hasVoterFrom(0, 4)).toBe(true);
    expect(steps.hasVoterFrom(8, 4)).toBe(true);
    expect(steps.hasVoterFrom(9, 4)).toBe(false);
    expect(steps.hasVoterFrom(9, 3)).toBe(true);
  });

  test("a truncated change is rolled back", () => {
    const steps = history();
    steps.truncateFrom(9);
    expect(steps.newestIndex).toBe(5);
    steps.truncateFrom(6);
    expect(steps.newestIndex).toBe(5);
    steps.truncateFrom(1);
    expect(steps.newestIndex).toBe(0);
    steps.truncateFrom(0);
    expect(steps.newest).toBe(first);
  });

  test("a cut keeps the configuration in force at the cut", () => {
    const steps = history();
    steps.compactTo(7);
    expect(steps.at(7)).toEqual({ index: 5, configuration: second });
    expect(steps.newestIndex).toBe(9);
    // What came before is forgotten: the oldest known stands for it.
    expect(steps.at(3).index).toBe(5);
  });

  test("a snapshot starts anew", () => {
    const steps = history();
    steps.restore(20, second);
    expect([steps.newest, steps.newestIndex, steps.at(3).index]).toEqual([second, 20, 20]);
  });

  test("changes come in the order of the log", () => {
    expect(() => history().add(9, second)).toThrow(/not the newest/);
  });
});
