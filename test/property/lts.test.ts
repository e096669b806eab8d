import fc from "fast-check";
import { expect, test } from "vitest";
import { type LtsSettings, ltsSettingsDefault } from "../../src/store/core/lts.ts";
import { createLts, inheritLts, loadLts } from "../../src/store/core/lts-start.ts";
import type { LtsRecord } from "../../src/store/core/lts-trie.ts";
import { formatTopic, residualMatches } from "../../src/store/core/structure.ts";
import { matches, parseTopicFilter, splitTopic } from "../../src/topic/index.ts";

const word = fc.constantFrom("", "a", "b", "c", "d", "e", "$S");
const topic = fc.array(word, { minLength: 1, maxLength: 5 }).map((words) => words.join("/"));
const topics = fc.array(topic, { minLength: 1, maxLength: 120 });
const filter = fc
  .tuple(
    fc.array(fc.oneof({ weight: 2, arbitrary: word }, fc.constant("+")), { maxLength: 5 }),
    fc.boolean(),
  )
  .map(([words, wide]) => (wide || words.length === 0 ? [...words, "#"] : words).join("/"))
  .filter((text) => text.length > 0)
  .map((text) => parseTopicFilter(text));
const settings: fc.Arbitrary<LtsSettings> = fc
  .record({
    first: fc.integer({ min: 0, max: 6 }),
    below: fc.integer({ min: 0, max: 4 }),
    streamsMax: fc.constantFrom(3, 10, 40, 1000),
    bytesMax: fc.constantFrom(2000, 10_000, 1_000_000),
    patterns: fc.array(filter, { maxLength: 3 }),
    cacheTopicsMax: fc.constantFrom(2, 1000),
  })
  .map(({ first, below, ...rest }) => ({
    ...ltsSettingsDefault,
    ...rest,
    thresholds: [first, below] as const,
    dollarThresholds: [below, first] as const,
  }));

test("a topic never changes its stream within a generation, and its words give it back", () => {
  fc.assert(
    fc.property(settings, topics, topics, (chosen, early, late) => {
      const lts = createLts(chosen);
      const places = new Map<string, number>();
      for (const name of [...early, ...late, ...early]) {
        const place = lts.place(name, []);
        expect(places.get(name) ?? place.stream).toBe(place.stream);
        places.set(name, place.stream);
        expect(formatTopic(lts.structureOf(place.stream), place.varying)).toBe(name);
      }
      for (const [name, stream] of places) expect(lts.lookup(name)?.stream).toBe(stream);
      expect(lts.streamCount).toBeLessThanOrEqual(chosen.streamsMax);
    }),
    { numRuns: 400 },
  );
});

test("a plan leaves out no topic that the filter matches and lets no other one pass", () => {
  fc.assert(
    fc.property(settings, topics, filter, (chosen, names, wanted) => {
      const lts = createLts(chosen);
      for (const name of names) lts.place(name, []);
      const plan = new Map(lts.plan(wanted).map((each) => [each.stream, each]));
      for (const name of names) {
        const place = lts.place(name, []);
        const stream = plan.get(place.stream);
        const passes = stream !== undefined && residualMatches(stream.residual, place.varying);
        expect([name, passes]).toEqual([name, matches(wanted, splitTopic(name))]);
      }
    }),
    { numRuns: 500 },
  );
});

test("replicas that apply the records place every topic as the leader did", () => {
  fc.assert(
    fc.property(settings, topics, (chosen, names) => {
      const leader = createLts(chosen);
      const replica = loadLts(chosen, leader.records());
      for (const name of names) {
        const learned: LtsRecord[] = [];
        const place = leader.place(name, learned);
        leader.apply(learned);
        replica.apply(learned);
        const { stream, varying } = place;
        expect(replica.lookup(name)).toMatchObject({ stream, varying });
      }
      expect(replica.records()).toEqual(leader.records());
      expect(replica.sizeBytes).toBe(leader.sizeBytes);
    }),
    { numRuns: 200 },
  );
});

test("entries refused in between leave the trie as if they had never come", () => {
  const step = fc.record({ names: fc.array(topic, { maxLength: 5 }), refused: fc.boolean() });
  fc.assert(
    fc.property(settings, fc.array(step, { maxLength: 30 }), (chosen, steps) => {
      const lts = createLts(chosen);
      const clean = createLts(chosen);
      for (const { names, refused } of steps) {
        const learned: LtsRecord[] = [];
        for (const name of names) lts.place(name, learned);
        if (refused) {
          lts.undo(learned);
        } else {
          lts.apply(learned);
          for (const name of names) clean.place(name, []);
        }
      }
      expect(lts.records()).toEqual(clean.records());
      expect(lts.sizeBytes).toBe(clean.sizeBytes);
    }),
    { numRuns: 200 },
  );
});

test("an inherited trie takes every topic, within the same limits", () => {
  fc.assert(
    fc.property(settings, topics, topics, (chosen, early, late) => {
      const first = createLts(chosen);
      for (const name of early) first.place(name, []);
      const second = inheritLts(chosen, first);
      const inherited = loadLts(chosen, second.records());
      for (const name of [...late, ...early]) {
        const place = second.place(name, []);
        expect(formatTopic(second.structureOf(place.stream), place.varying)).toBe(name);
        const { stream, varying } = place;
        expect(inherited.place(name, [])).toMatchObject({ stream, varying });
      }
      expect(second.streamCount).toBeLessThanOrEqual(chosen.streamsMax);
    }),
    { numRuns: 200 },
  );
});
