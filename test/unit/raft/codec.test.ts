import { describe, expect, test } from "vitest";
import { crc32 } from "../../../src/base/index.ts";
import {
  decodeEntry,
  decodeEntryPayload,
  decodeHardState,
  decodeMessage,
  decodeSnapshotMeta,
  encodeEntry,
  encodeHardState,
  encodeMessage,
  encodeSnapshotMeta,
} from "../../../src/raft/codec.ts";
import type { Message } from "../../../src/raft/core/types.ts";

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

/** Bytes with a checksum that fits, whatever they say. */
function sealed(...bytes: number[]): Buffer {
  const body = Buffer.from(bytes);
  const crc = Buffer.alloc(4);
  crc.writeUInt32BE(crc32(body));
  return Buffer.concat([body, crc]);
}

const append: Message = {
  type: "append",
  from: 1,
  to: 300,
  term: 7,
  prevIndex: 4,
  prevTerm: 6,
  commit: 4,
  entries: [{ kind: "command", index: 5, term: 7, version: 2, data: Buffer.from("hi") }],
};

describe("the layout of messages and entries", () => {
  test("an append looks as documented", () => {
    expect(hex(encodeMessage(append).subarray(0, -4))).toBe(
      "01" +
        "04" +
        "01" +
        "ac02" +
        "07" +
        "04" +
        "06" +
        "04" +
        "01" +
        "07" +
        "01" +
        "0002" +
        "026869",
    );
    expect(decodeMessage(encodeMessage(append))).toEqual(append);
  });

  test("an entry looks as documented", () => {
    const entry = {
      kind: "membership",
      index: 9,
      term: 3,
      change: { op: "promote", node: 4 },
      configuration: { voters: [1, 2, 4], learners: [5] },
    } as const;
    expect(hex(encodeEntry(entry).subarray(0, -4))).toBe(
      "01" + "09" + "03" + "02" + "0001" + "08" + "03" + "04" + "03010204" + "0105",
    );
    expect(decodeEntry(encodeEntry(entry))).toEqual(entry);
  });

  test("hard states and snapshot metadata come back", () => {
    const hardState = { term: 2 ** 40, vote: 3, commit: 17 };
    expect(decodeHardState(encodeHardState(hardState))).toEqual(hardState);
    const snapshot = {
      index: 8,
      term: 2,
      configuration: { voters: [1, 2], learners: [3] },
      configurationIndex: 5,
    };
    expect(decodeSnapshotMeta(encodeSnapshotMeta(snapshot))).toEqual(snapshot);
  });
});

describe("what does not fit is refused with a code", () => {
  const codeOf = (bytes: Uint8Array): string => {
    try {
      decodeMessage(bytes);
      return "accepted";
    } catch (error) {
      return (error as { code: string }).code;
    }
  };

  test("a later version is told apart from damage", () => {
    const later = encodeMessage(append);
    later[0] = 2;
    expect(codeOf(later)).toBe("RAFT_VERSION_UNKNOWN");
    expect(() =>
      decodeEntryPayload(1, 1, { kind: 2, version: 9, payload: Buffer.alloc(1) }),
    ).toThrow(/version 9/);
  });

  test("a checksum that does not fit, an early end and bytes left over", () => {
    const flipped = encodeMessage(append);
    flipped[3] = (flipped[3] as number) ^ 1;
    expect(codeOf(flipped)).toBe("RAFT_MESSAGE_CORRUPT");
    expect(codeOf(new Uint8Array(0))).toBe("RAFT_MESSAGE_CORRUPT");
    expect(codeOf(sealed(1, 9, 1, 2))).toBe("RAFT_MESSAGE_CORRUPT");
    expect(codeOf(sealed(1, 9, 1, 2, 3, 0))).toBe("RAFT_MESSAGE_CORRUPT");
    expect(codeOf(sealed(1, 9, 1, 2, 3))).toBe("accepted");
  });

  test("an unknown type, flag, sender or kind", () => {
    expect(codeOf(sealed(1, 12, 1, 2, 3))).toBe("RAFT_MESSAGE_CORRUPT");
    expect(codeOf(sealed(1, 1, 1, 2, 3, 2))).toBe("RAFT_MESSAGE_CORRUPT");
    expect(codeOf(sealed(1, 9, 0, 2, 3))).toBe("RAFT_MESSAGE_CORRUPT");
    expect(codeOf(sealed(1, 4, 1, 2, 3, 0, 0, 0, 1, 3, 9, 0, 0, 0))).toBe("RAFT_MESSAGE_CORRUPT");
  });

  test("entries whose terms fall or pass the leader's never reach the core", () => {
    const one = (term: number): Buffer => sealed(1, 4, 1, 2, 5, 3, 4, 0, 1, term, 0, 0, 0, 0);
    expect(codeOf(one(4))).toBe("accepted");
    expect(codeOf(one(3))).toBe("RAFT_MESSAGE_CORRUPT");
    expect(codeOf(one(6))).toBe("RAFT_MESSAGE_CORRUPT");
  });

  test("counts beyond their limit are refused before anything is reserved", () => {
    const many = [0xff, 0xff, 0xff, 0xff, 0x7f];
    expect(codeOf(sealed(1, 4, 1, 2, 5, 3, 4, 0, ...many))).toBe("RAFT_MESSAGE_CORRUPT");
    expect(codeOf(sealed(1, 8, 1, 2, 5, 3, 4, 0, ...many))).toBe("RAFT_MESSAGE_CORRUPT");
  });
});
