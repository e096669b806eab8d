import fc from "fast-check";
import { expect, test } from "vitest";
import { isCodedError } from "../../src/base/index.ts";
import { decodeEntry, decodeMessage, encodeEntry, encodeMessage } from "../../src/raft/codec.ts";
import { createConfiguration } from "../../src/raft/core/membership.ts";
import type { Entry, Message, MessageType } from "../../src/raft/core/types.ts";

const natural = fc.maxSafeNat();
const node = fc.integer({ min: 1, max: 2 ** 40 });
const configuration = fc
  .tuple(fc.array(node, { minLength: 1, maxLength: 5 }), fc.array(node, { maxLength: 3 }))
  .map(([voters, learners]) => createConfiguration(voters, learners));

type Body =
  | { kind: "empty" }
  | { kind: "command"; version: number; data: Uint8Array }
  | Pick<Extract<Entry, { kind: "membership" }>, "kind" | "change" | "configuration">;

const body: fc.Arbitrary<Body> = fc.oneof(
  fc.constant({ kind: "empty" as const }),
  fc.record({
    kind: fc.constant("command" as const),
    version: fc.integer({ min: 0, max: 65_535 }),
    data: fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
  }),
  fc.record({
    kind: fc.constant("membership" as const),
    change: fc.record({
      op: fc.constantFrom(
        "add" as const,
        "remove" as const,
        "learner" as const,
        "promote" as const,
      ),
      node,
    }),
    configuration,
  }),
);

const entry: fc.Arbitrary<Entry> = fc
  .tuple(body, natural, natural)
  .map(([fields, index, term]) => ({ ...fields, index, term }));

/** Entries that may follow `prevIndex`/`prevTerm` and be sent in `term`. */
const appendFields = fc
  .tuple(
    fc.integer({ min: 0, max: 2 ** 40 }),
    fc.integer({ min: 0, max: 1000 }),
    fc.array(fc.tuple(body, fc.nat(5)), { maxLength: 6 }),
    natural,
  )
  .map(([prevIndex, prevTerm, bodies, commit]) => {
    let term = prevTerm;
    const entries = bodies.map(([fields, step], at): Entry => {
      term += step;
      return { ...fields, index: prevIndex + 1 + at, term };
    });
    return { prevIndex, prevTerm, commit, entries, term: term + 1 };
  });

const envelope = { from: node, to: node, term: natural };
const of = <T extends MessageType>(type: T): fc.Arbitrary<T> => fc.constant(type);
const flag = fc.boolean();

const message: fc.Arbitrary<Message> = fc.oneof(
  fc.record({
    type: fc.constantFrom("vote" as const, "pre-vote" as const),
    ...envelope,
    lastIndex: natural,
    lastTerm: natural,
    transfer: flag,
  }),
  fc.record({
    type: fc.constantFrom("vote-resp" as const, "pre-vote-resp" as const),
    ...envelope,
    granted: flag,
  }),
  fc
    .tuple(node, node, appendFields)
    .map(([from, to, fields]): Message => ({ type: "append", from, to, ...fields })),
  fc.record({
    type: of("append-resp"),
    ...envelope,
    rejected: flag,
    index: natural,
    hintIndex: natural,
    hintTerm: natural,
    commit: natural,
  }),
  fc.record({ type: of("heartbeat"), ...envelope, commit: natural, round: natural }),
  fc.record({ type: of("heartbeat-resp"), ...envelope, round: natural }),
  fc.record({
    type: of("snapshot"),
    ...envelope,
    snapshot: fc.record({
      index: natural,
      term: natural,
      configuration,
      configurationIndex: natural,
    }),
  }),
  fc.record({ type: of("timeout-now"), ...envelope }),
  fc.record({ type: of("read-index"), ...envelope, context: fc.string({ maxLength: 40 }) }),
  fc.record({
    type: of("read-index-resp"),
    ...envelope,
    context: fc.string({ maxLength: 40 }),
    index: natural,
  }),
);

/** The value, or undefined if refused with a code of ours; anything else is a fault. */
function attempt<T>(decode: (bytes: Uint8Array) => T, bytes: Uint8Array): T | undefined {
  try {
    return decode(bytes);
  } catch (error) {
    if (isCodedError(error) && error.code.startsWith("RAFT_")) return undefined;
    throw error;
  }
}

test("every message and entry comes back as it was", () => {
  fc.assert(
    fc.property(message, (one) => {
      expect(decodeMessage(encodeMessage(one))).toEqual(one);
    }),
    { numRuns: 2000 },
  );
  fc.assert(
    fc.property(entry, (one) => {
      expect(decodeEntry(encodeEntry(one))).toEqual(one);
    }),
    { numRuns: 1000 },
  );
});

test("a message cut or with one bit flipped anywhere is refused, never misread", () => {
  fc.assert(
    fc.property(message, fc.nat(7), (one, bit) => {
      const bytes = encodeMessage(one);
      for (let at = 0; at < bytes.length; at++) {
        expect(attempt(decodeMessage, bytes.subarray(0, at))).toBeUndefined();
        const flipped = Buffer.from(bytes);
        flipped[at] = (flipped[at] as number) ^ (1 << bit);
        expect(attempt(decodeMessage, flipped)).toBeUndefined();
      }
    }),
    { numRuns: 150 },
  );
});

test("an entry cut or with one bit flipped anywhere is refused, never misread", () => {
  fc.assert(
    fc.property(entry, fc.nat(7), (one, bit) => {
      const bytes = encodeEntry(one);
      for (let at = 0; at < bytes.length; at++) {
        expect(attempt(decodeEntry, bytes.subarray(0, at))).toBeUndefined();
        const flipped = Buffer.from(bytes);
        flipped[at] = (flipped[at] as number) ^ (1 << bit);
        expect(attempt(decodeEntry, flipped)).toBeUndefined();
      }
    }),
    { numRuns: 150 },
  );
});

test("noise is refused with a code", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 120 }), (bytes) => {
      attempt(decodeMessage, bytes);
      attempt(decodeEntry, bytes);
    }),
    { numRuns: 5000 },
  );
});
