import { describe, expect, test } from "vitest";
import { entryBytes, RaftLog } from "../../../src/raft/core/log.ts";
import type { Entry } from "../../../src/raft/core/types.ts";

const empty = (index: number, term: number): Entry => ({ kind: "empty", index, term });

/** Entries from index 1 on with the given terms. */
function logOf(...terms: number[]): RaftLog {
  return new RaftLog(
    { index: 0, term: 0 },
    terms.map((term, at) => empty(at + 1, term)),
  );
}

describe("the log", () => {
  test("knows terms between the cut and the end, and nothing else", () => {
    const log = logOf(1, 1, 2);
    log.commit = log.handedOut = log.applied = 2;
    log.compactTo(2);
    expect([0, 1, 2, 3, 4].map((index) => log.termAt(index))).toEqual([
      undefined,
      undefined,
      1,
      2,
      undefined,
    ]);
    expect([log.startIndex, log.lastIndex, log.lastTerm]).toEqual([2, 3, 2]);
  });

  test("after a full cut the last term is that of the cut, not 0", () => {
    const log = logOf(1, 3);
    log.commit = log.handedOut = log.applied = 2;
    log.compactTo(2);
    expect([log.lastIndex, log.lastTerm]).toEqual([2, 3]);
    expect(log.isUpToDate(9, 2)).toBe(false);
  });

  test("a later term wins over a longer log, and equal terms by length", () => {
    const log = logOf(1, 2);
    expect(log.isUpToDate(1, 3)).toBe(true);
    expect(log.isUpToDate(9, 1)).toBe(false);
    expect(log.isUpToDate(2, 2)).toBe(true);
    expect(log.isUpToDate(1, 2)).toBe(false);
    expect(log.isUpToDate(3, 2)).toBe(true);
  });

  test("a slice keeps within both caps but holds one entry whatever its size", () => {
    const log = logOf(1, 1, 1, 1);
    const bytes = entryBytes(empty(1, 1));
    const indexes = (entries: number, cap: number): number[] =>
      log.slice(2, 4, { entries, bytes: cap }).map((entry) => entry.index);
    expect(indexes(9, 1)).toEqual([2]);
    expect(indexes(9, 2 * bytes)).toEqual([2, 3]);
    expect(indexes(2, 99 * bytes)).toEqual([2, 3]);
    expect(indexes(9, 99 * bytes)).toEqual([2, 3, 4]);
  });

  test("what is committed cannot be truncated", () => {
    const log = logOf(1, 1, 1);
    log.commitTo(2);
    expect(() => log.truncateFrom(2)).toThrow(/committed/);
    log.truncateFrom(3);
    expect([log.lastIndex, log.persisted, log.handedToDisk]).toEqual([2, 2, 2]);
  });

  test("commit never falls and never passes the end", () => {
    const log = logOf(1, 1, 1);
    log.commitTo(2);
    log.commitTo(1);
    expect(log.commit).toBe(2);
    expect(() => log.commitTo(4)).toThrow(/above last/);
  });

  test("gaps and falling terms are refused", () => {
    expect(() => new RaftLog({ index: 3, term: 2 }, [empty(5, 2)])).toThrow(/log has/);
    expect(() => new RaftLog({ index: 3, term: 2 }, [empty(4, 1)])).toThrow(/log has/);
    expect(() => logOf(2).append(empty(3, 2))).toThrow(/append/);
    expect(() => logOf(2).append(empty(2, 1))).toThrow(/term/);
  });

  test("the place to look next is the last one whose term can still agree", () => {
    const log = logOf(1, 1, 3, 3, 5);
    expect(log.lastIndexWithin(5, 4)).toEqual({ index: 4, term: 3 });
    expect(log.lastIndexWithin(4, 2)).toEqual({ index: 2, term: 1 });
    expect(log.lastIndexWithin(9, 5)).toEqual({ index: 5, term: 5 });
    expect(log.lastIndexWithin(5, 0)).toEqual({ index: 0, term: 0 });
    log.commit = log.handedOut = log.applied = 3;
    log.compactTo(3);
    expect(log.lastIndexWithin(5, 1)).toEqual({ index: 3, term: 3 });
  });

  test("a snapshot replaces everything and is not durable by itself", () => {
    const log = logOf(1, 1, 1, 1);
    log.commitTo(1);
    log.restore({ index: 3, term: 2 });
    expect([log.startIndex, log.lastIndex, log.lastTerm, log.commit]).toEqual([3, 3, 2, 3]);
    expect(log.persisted).toBe(1);
    expect(() => log.restore({ index: 3, term: 2 })).toThrow(/below/);
  });

  test("only what is applied can be cut, and only forwards", () => {
    const log = logOf(1, 1, 1);
    log.commitTo(2);
    expect(() => log.compactTo(1)).toThrow(/applied/);
    log.handedOut = log.applied = 2;
    log.compactTo(1);
    expect(() => log.compactTo(1)).toThrow(/not in the log/);
  });
});
