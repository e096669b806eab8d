import fc from "fast-check";
import { expect, test } from "vitest";
import { crc32, isCodedError } from "../../src/base/index.ts";
import { residualMatches } from "../../src/store/core/structure.ts";
import { decodeBlock, encodeBlock } from "../../src/store/layout/block.ts";
import { mayMatch, summarize } from "../../src/store/layout/summary.ts";
import { matchTopics, nextMatch } from "../../src/store/layout/ttv-view.ts";
import { packFlags, type Ttv } from "../../src/store/types.ts";
import { blockOf, ttvsOf } from "../unit/store/blocks.ts";

const word = fc.oneof(
  fc.constantFrom("", "a", "b", "ä"),
  fc.string({ unit: "grapheme", maxLength: 6 }),
);
const words = (count: number): fc.Arbitrary<string> =>
  fc
    .array(
      word.map((text) => text.replaceAll("/", "_")),
      { minLength: count, maxLength: count },
    )
    .map((all) => all.join("/"));
const fields = fc.record({
  topic: words(3),
  gapUs: fc.oneof(fc.integer({ min: 1, max: 500 }), fc.integer({ min: 1, max: 2 ** 40 })),
  publisher: word,
  form: fc.constantFrom(0 as const, 4 as const, 5 as const),
  qos: fc.constantFrom(0 as const, 1 as const, 2 as const),
  retain: fc.constantFrom(0 as const, 1 as const),
  expiryUs: fc.oneof(fc.constant(0), fc.maxSafeNat()),
  frame: fc.uint8Array({ maxLength: 40 }),
});
const ttvs = fc.array(fields, { minLength: 1, maxLength: 60 }).map((all) => {
  let timeUs = 1_700_000_000_000_000;
  return all.map(({ gapUs, form, qos, retain, frame, ...rest }): Ttv => {
    timeUs += gapUs;
    const expiryOffset = frame.length > 8 ? 4 : 0;
    const flags = packFlags(form, qos, retain);
    return { ...rest, timeUs, flags, expiryOffset, frame: Buffer.from(frame) };
  });
});
const structure = ["+", "+", "+"];

test("what is encoded is decoded, from the open block and from its bytes", () => {
  fc.assert(
    fc.property(ttvs, (all) => {
      const block = blockOf(all, structure);
      expect(ttvsOf(block, structure)).toEqual(all);
      expect(ttvsOf(decodeBlock(encodeBlock(block), 3), structure)).toEqual(all);
    }),
    { numRuns: 200 },
  );
});

test("bytes that are not a block are refused with a code, whatever they are", () => {
  fc.assert(
    fc.property(ttvs, fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 6 }), (all, edits) => {
      const bytes = encodeBlock(blockOf(all, structure));
      for (const [at, value] of edits) bytes[at % (bytes.length - 4)] = value;
      bytes.writeUInt32BE(crc32(bytes.subarray(0, -4)), bytes.length - 4);
      try {
        const view = decodeBlock(bytes, 3);
        expect(ttvsOf(view, structure).length).toBe(view.count);
        for (let id = 0; id < view.topicCount; id++) expect(view.varying(id).length).toBe(3);
      } catch (error) {
        if (!isCodedError(error)) throw error;
        expect(["STORE_BLOCK_CORRUPT", "STORE_VERSION_UNKNOWN"]).toContain(error.code);
      }
    }),
    { numRuns: 500 },
  );
});

test("a summary never hides a match, and open and decoded blocks find the same ones", () => {
  const part = fc.oneof(
    fc.constant("+"),
    word.map((text) => text.replaceAll(/[/+#]/g, "_")),
  );
  fc.assert(
    fc.property(
      ttvs,
      fc.array(part, { minLength: 3, maxLength: 3 }),
      fc.nat(),
      (all, parts, pick) => {
        const block = blockOf(all, structure);
        const summary = summarize(block);
        const view = decodeBlock(encodeBlock(block), 3);
        const own = all[pick % all.length]?.topic.split("/") ?? [];
        const mixed = parts.map((each, level) => (level === pick % 3 ? each : (own[level] ?? "+")));
        for (const residual of [parts, own, mixed, [own[0] ?? "+", "#"]]) {
          const hits = all.some((ttv) => residualMatches(residual, ttv.topic.split("/")));
          if (hits) expect(mayMatch(summary, residual)).toBe(true);
          const wanted = all.map((ttv) => residualMatches(residual, ttv.topic.split("/")));
          for (const batch of [block, view]) {
            const match = matchTopics(batch, residual);
            const found = all.map((_, index) => nextMatch(batch, match, index) === index);
            expect(found).toEqual(wanted);
          }
        }
        expect(mayMatch(summary, own)).toBe(true);
      },
    ),
    { numRuns: 300 },
  );
});
