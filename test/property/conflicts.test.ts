import fc from "fast-check";
import { expect, test } from "vitest";
import { type ReadRecord, RecentWrites, type WriteRecord } from "../../src/store/core/conflicts.ts";
import { matches, parseTopicFilter, splitTopic, type TopicFilter } from "../../src/topic/index.ts";

const topics = ["a", "a/a", "a/b", "b", "b/a", "b/b"];
const target: fc.Arbitrary<string | TopicFilter> = fc.oneof(
  fc.constantFrom(...topics),
  fc.constantFrom("#", "+", "a/#", "+/a", "b/+", "b").map((text) => parseTopicFilter(text)),
);
const span = fc.tuple(fc.nat(40), fc.nat(40)).map(([one, other]) => ({
  fromUs: Math.min(one, other),
  toUs: Math.max(one, other),
}));
const write = fc.record({ target, span, gapUs: fc.nat(3) });
const read: fc.Arbitrary<ReadRecord> = fc
  .record({ target, span })
  .map((each) => ({ target: each.target, ...each.span }));

const covered = (of: string | TopicFilter): string[] =>
  topics.filter((name) => (typeof of === "string" ? of === name : matches(of, splitTopic(name))));

/** Whether some topic at some time was both written and read. */
const overlap = (one: WriteRecord, other: ReadRecord): boolean =>
  one.fromUs <= other.toUs &&
  other.fromUs <= one.toUs &&
  covered(one.target).some((name) => covered(other.target).includes(name));

test("no transaction passes that a later write overtook, and none fails inside the window for less", () => {
  fc.assert(
    fc.property(
      fc.array(write, { maxLength: 40 }),
      fc.array(read, { minLength: 1, maxLength: 4 }),
      fc.nat(60),
      fc.constantFrom(3, 1000),
      (writes, reads, readTimeUs, writesMax) => {
        const window = new RecentWrites(0, { windowMs: 0.02, writesMax });
        let timeUs = 0;
        const done: WriteRecord[] = writes.map(({ gapUs, ...rest }) => {
          timeUs += gapUs;
          return { timeUs, target: rest.target, ...rest.span };
        });
        for (const each of done) window.record(each);
        const overtaken = done.some(
          (each) => each.timeUs > readTimeUs && reads.some((one) => overlap(each, one)),
        );
        const verdict = window.check(reads, readTimeUs);
        if (overtaken) expect(verdict).toBeDefined();
        if (readTimeUs >= window.floorUs) expect(verdict !== undefined).toBe(overtaken);
        expect(window.count).toBeLessThanOrEqual(writesMax);
      },
    ),
    { numRuns: 1000 },
  );
});
