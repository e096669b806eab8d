// Histories that no correct cluster can show, planted: the checkers must refuse every one.

import { describe, expect, test } from "vitest";
import { Checker } from "../../../src/raft/sim/checker.ts";
import { findAnomaly, type Operation } from "../../../src/raft/sim/linearizability.ts";

const write = (value: number, begin: number, end: number): Operation => ({
  kind: "write",
  value,
  begin,
  end,
});
const read = (value: number, begin: number, end: number): Operation => ({
  kind: "read",
  value,
  begin,
  end,
});
const never = Number.POSITIVE_INFINITY;

/** Tries every order: slow and plain, to compare with. */
function isLinearizable(history: readonly Operation[]): boolean {
  const known = history.filter(({ kind, end }) => kind === "write" || end !== never);
  const place = (left: readonly Operation[], value: number): boolean => {
    if (left.every(({ kind, end }) => kind === "write" && end === never)) return true;
    const firstEnd = Math.min(...left.map(({ end }) => end));
    return left.some((operation, at) => {
      if (operation.begin > firstEnd) return false;
      if (operation.kind === "read" && operation.value !== value) return false;
      return place(left.toSpliced(at, 1), operation.value);
    });
  };
  return place(known, 0);
}

const bad: ReadonlyArray<readonly [string, readonly Operation[]]> = [
  ["a read of the initial value after an acked write", [write(1, 0, 1), read(0, 2, 3)]],
  ["a read from the future", [read(1, 0, 1), write(1, 2, 3)]],
  ["a value that nobody wrote", [read(7, 0, 1)]],
  [
    "a stale read after a newer one",
    [write(1, 0, 1), write(2, 2, 9), read(2, 3, 4), read(1, 5, 6)],
  ],
  ["a lost write", [write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)]],
  [
    "two readers that see two writes in opposite orders",
    [write(1, 0, 9), write(2, 0, 9), read(1, 10, 11), read(2, 12, 13), read(1, 14, 15)],
  ],
  [
    "an unknown write that took effect and went away",
    [write(1, 0, 1), write(2, 2, never), read(2, 3, 4), read(1, 5, 6)],
  ],
  [
    "a new leader that serves what the old one had overwritten",
    [write(1, 0, 1), write(2, 2, 3), read(2, 4, 5), read(1, 6, 7)],
  ],
  [
    "a write applied twice around another",
    [write(1, 0, 1), write(2, 2, 3), read(2, 4, 5), read(1, 6, 8)],
  ],
  [
    "a read that skips a write between two it saw",
    [write(1, 0, 1), read(1, 2, 3), write(2, 4, 5), read(1, 6, 7), read(2, 8, 9)],
  ],
  ["a value written twice", [write(1, 0, 1), write(1, 2, 3)]],
  [
    "a read of an older value wholly after two newer writes",
    [write(1, 0, 1), write(2, 2, 3), write(3, 4, 5), read(2, 6, 7)],
  ],
];

describe("the linearizability checker", () => {
  test.each(bad)("refuses %s", (_name, history) => {
    expect(findAnomaly(history)).toBeDefined();
  });

  test("accepts what could have happened", () => {
    const good: ReadonlyArray<readonly Operation[]> = [
      [],
      [read(0, 0, 1)],
      [write(1, 0, 5), read(0, 1, 2), read(1, 3, 4)],
      [write(1, 0, 9), write(2, 0, 9), read(1, 1, 2), read(2, 3, 4)],
      [write(1, 0, never), read(0, 1, 2), read(1, 3, 4)],
      [write(1, 0, never), read(0, 1, 2), read(0, 3, 4)],
      [write(1, 0, 1), read(5, 2, never)],
    ];
    for (const history of good) expect(findAnomaly(history)).toBeUndefined();
  });

  test("agrees with trying every order, on all small histories of two writes and two reads", () => {
    // Each operation takes two of eight moments; the values read take every combination.
    const spans = [];
    for (let begin = 0; begin < 8; begin += 2) {
      for (let end = begin + 1; end < 8; end += 2) spans.push([begin, end] as const);
    }
    let refused = 0;
    const mistaken: unknown[] = [];
    for (const a of spans) {
      for (const b of spans) {
        for (const c of spans) {
          for (const d of spans) {
            for (const [x, y] of [
              [0, 1],
              [1, 2],
              [2, 1],
              [1, 1],
              [0, 2],
            ] as const) {
              const history = [write(1, ...a), write(2, ...b), read(x, ...c), read(y, ...d)];
              const moved = history.map((each, at) => ({
                ...each,
                begin: each.begin * 4 + at,
                end: each.end * 4 + at,
              }));
              const accepted = findAnomaly(moved) === undefined;
              if (!accepted) refused++;
              if (accepted !== isLinearizable(moved)) mistaken.push(moved);
            }
          }
        }
      }
    }
    expect(mistaken).toEqual([]);
    expect(refused).toBeGreaterThan(1000);
  });
});

describe("the checker of the simulation", () => {
  const committed = (checker: Checker, index: number, term: number, chain: number): void =>
    checker.entryCommitted(1, term, { index, term, chain }, () => true);
  const elect = (checker: Checker, node: number, term: number, chain?: number): void => {
    checker.voteGranted(node, term, node);
    checker.leaderElected(node, term, [node], () => chain);
  };

  type Step = (checker: Checker) => void;
  const planted: ReadonlyArray<readonly [string, readonly Step[]]> = [
    ["one vote a term", [(c) => c.voteGranted(3, 1, 1), (c) => c.voteGranted(3, 1, 2)]],
    ["one leader a term", [(c) => elect(c, 1, 1), (c) => elect(c, 2, 1)]],
    [
      "votes of its own configuration",
      [
        (c) => c.voteGranted(1, 1, 1),
        (c) => c.voteGranted(9, 1, 1),
        (c) => c.leaderElected(1, 1, [1, 2, 3], () => 0),
      ],
    ],
    ["leader completeness", [(c) => committed(c, 1, 1, 11), (c) => elect(c, 2, 2, 99)]],
    ["log matching", [(c) => c.entryWritten(1, 5, 2, 11), (c) => c.entryWritten(2, 5, 2, 12)]],
    ["committed for good", [(c) => committed(c, 1, 1, 11), (c) => committed(c, 1, 2, 12)]],
    ["commit in order", [(c) => committed(c, 2, 1, 11)]],
    [
      "committed means durable",
      [(c) => c.entryCommitted(1, 1, { index: 1, term: 1, chain: 11 }, () => false)],
    ],
    ["applied is committed", [(c) => c.entryApplied(1, { index: 1, term: 1, stateHash: 0 })]],
    [
      "equal states",
      [
        (c) => committed(c, 1, 1, 11),
        (c) => c.entryApplied(1, { index: 1, term: 1, stateHash: 1 }),
        (c) => c.entryApplied(2, { index: 1, term: 1, stateHash: 2 }),
      ],
    ],
    ["a snapshot holds what is committed", [(c) => c.snapshotUsed(1, 4, "1,2,3/")]],
    [
      "a snapshot holds its configuration",
      [
        (c) => committed(c, 1, 1, 11),
        (c) => c.configurationCommitted(1, "1,2/"),
        (c) => c.snapshotUsed(3, 1, "1,2,3/"),
      ],
    ],
    ["term is monotonic", [(c) => c.notBelow(1, "term", 3, 4)]],
    ["a promise", [(c) => c.demand(false, "a promise", () => "broken")]],
  ];

  test.each(planted)("refuses a history against: %s", (rule, steps) => {
    const checker = new Checker();
    const last = steps.at(-1) as Step;
    for (const step of steps.slice(0, -1)) step(checker);
    expect(() => last(checker)).toThrow(expect.objectContaining({ rule }));
  });

  test("accepts an orderly one", () => {
    const checker = new Checker();
    elect(checker, 1, 1);
    checker.entryWritten(1, 1, 1, 11);
    checker.entryWritten(2, 1, 1, 11);
    committed(checker, 1, 1, 11);
    checker.entryApplied(1, { index: 1, term: 1, stateHash: 5 });
    checker.entryApplied(2, { index: 1, term: 1, stateHash: 5 });
    elect(checker, 2, 2, 11);
    expect([checker.committedIndex, checker.termAt(1), checker.chainAt(1)]).toEqual([1, 1, 11]);
  });
});
