import { describe, expect, test } from "vitest";
import {
  AppliedFence,
  Claimant,
  decodeShardCommand,
  encodeShardCommand,
  type Fence,
  type ShardCommand,
} from "../../../src/cluster/core/claims.ts";
import { type Fate, Fates } from "../../../src/cluster/core/fates.ts";
import { decodeMark, encodeMark } from "../../../src/cluster/snapshot-mark.ts";

const claim = (term: number, epoch = 1): ShardCommand => ({ kind: "claim", epoch, term });
const batch = (fence: Fence): ShardCommand => ({
  kind: "batch",
  fence,
  entryKind: 1,
  payload: Buffer.from("b"),
});
const at = (index: number, term: number) => ({ index, term });

describe("fences", () => {
  test("a batch is applied under the newest claim, and under no other", () => {
    const fence = new AppliedFence();
    expect(fence.take(at(1, 1), batch(fence.current))).toBe("refused");
    expect(fence.take(at(2, 1), claim(1))).toBe("claimed");
    const first = fence.current;
    expect(fence.take(at(3, 1), batch(first))).toBe("apply");
    expect(fence.take(at(4, 2), claim(2))).toBe("claimed");
    expect(fence.take(at(5, 2), batch(first))).toBe("refused");
    for (const wrong of [{ epoch: 2 }, { term: 3 }, { claimIndex: 3 }]) {
      expect(fence.take(at(6, 2), batch({ ...fence.current, ...wrong }))).toBe("refused");
    }
    expect(fence.take(at(7, 2), batch(fence.current))).toBe("apply");
  });

  test("a claim counts in the term it was made for, and in no epoch gone by", () => {
    const fence = new AppliedFence();
    expect(fence.take(at(1, 2), claim(1))).toBe("refused");
    expect(fence.current.claimIndex).toBe(0);
    expect(fence.take(at(2, 2), claim(2, 5))).toBe("claimed");
    expect(fence.take(at(3, 3), claim(3, 4))).toBe("refused");
    expect(fence.current).toEqual({ epoch: 5, term: 2, claimIndex: 2 });
  });

  test("a leader cooks only while its own claim is the newest applied", () => {
    const fence = new AppliedFence();
    const claimant = new Claimant(1);
    expect(claimant.fence(fence)).toBeUndefined();
    expect(claimant.elected(3)).toEqual(claim(3));
    expect(claimant.elected(3)).toBeUndefined();
    expect(claimant.fence(fence)).toBeUndefined();
    fence.take(at(9, 3), claim(3));
    expect(claimant.fence(fence)).toEqual({ epoch: 1, term: 3, claimIndex: 9 });
    claimant.deposed();
    expect(claimant.fence(fence)).toBeUndefined();
    expect(claimant.elected(5)).toEqual(claim(5));
    expect(claimant.fence(fence)).toBeUndefined();
    fence.take(at(12, 6), claim(6));
    expect(claimant.fence(fence)).toBeUndefined();
  });

  test("commands come back as they were, and nothing else is one", () => {
    const commands = [claim(7, 3), batch({ epoch: 3, term: 7, claimIndex: 300 })];
    for (const command of commands) {
      const bytes = encodeShardCommand(command);
      expect(decodeShardCommand(bytes)).toEqual(command);
    }
    const claimed = encodeShardCommand(claim(7, 3));
    for (const bytes of [[], [0], [3, 1, 1], [1], [1, 3], [...claimed, 0], [2, 1, 1]]) {
      expect(decodeShardCommand(Buffer.from(bytes))).toBeUndefined();
    }
  });
});

describe("fates", () => {
  const begin = (): { fates: Fates; told: string[] } => {
    const told: string[] = [];
    const fates = new Fates(4, (id: number, fate: Fate) => told.push(`${id} ${fate}`));
    return { fates, told };
  };

  test("what is applied under its fence in its term is committed, whatever else did not happen", () => {
    const { fates, told } = begin();
    for (const id of [1, 2, 3]) fates.proposed(id, id, 5);
    fates.applied(1, 5, "apply");
    fates.applied(2, 5, "refused");
    fates.applied(3, 6, "apply");
    fates.applied(4, 6, "apply");
    expect(told).toEqual(["1 committed", "2 retry", "3 retry"]);
  });

  test("what is cut off, passed over, given up or left at the end is unknown, and told once", () => {
    const { fates, told } = begin();
    for (const id of [1, 2, 3, 4]) fates.proposed(id, id, 5);
    expect(fates.hasRoom).toBe(false);
    expect(fates.giveUp(2)).toBe(true);
    expect(fates.giveUp(2)).toBe(false);
    expect(fates.hasRoom).toBe(true);
    fates.proposed(5, 4, 6);
    fates.passedOver(3);
    expect(told).toEqual(["2 unknown", "4 unknown", "1 unknown", "3 unknown"]);
    fates.end();
    fates.applied(3, 5, "apply");
    expect(told.slice(4)).toEqual(["5 unknown"]);
    expect(fates.openCount).toBe(0);
  });
});

test("commands and marks have the bytes that docs/formats/raft.md shows", () => {
  const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");
  const fence: Fence = { epoch: 1, term: 2, claimIndex: 7 };
  const batch: ShardCommand = { kind: "batch", fence, entryKind: 1, payload: Buffer.from("hi") };
  expect(hex(encodeShardCommand({ kind: "claim", epoch: 1, term: 300 }))).toBe("0101ac02");
  expect(hex(encodeShardCommand(batch))).toBe("02010207016869");
  expect(hex(encodeMark(fence))).toBe("01010207");
  expect(decodeMark(encodeMark(fence))).toEqual(fence);
  expect(decodeMark(Buffer.from("02010207", "hex"))).toBeUndefined();
  expect(decodeMark(Buffer.from("0101020700", "hex"))).toBeUndefined();
  expect(decodeMark(Buffer.alloc(0))).toBeUndefined();
});
