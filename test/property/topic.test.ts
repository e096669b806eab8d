import fc from "fast-check";
import { expect, test } from "vitest";
import {
  covers,
  FilterTrie,
  filterTextMatches,
  intersects,
  matches,
  parseTopicFilter,
  splitTopic,
  type TopicFilter,
  TopicIndex,
} from "../../src/topic/index.ts";

const word = fc.constantFrom("", "a", "b", "c", "$S");
const topic = fc
  .array(word, { minLength: 1, maxLength: 4 })
  .map((words) => words.join("/"))
  .filter((text) => text.length > 0);
const filter: fc.Arbitrary<TopicFilter> = fc
  .tuple(
    fc.array(fc.oneof({ weight: 2, arbitrary: word }, fc.constant("+")), { maxLength: 4 }),
    fc.boolean(),
  )
  .map(([words, wide]) => (wide ? [...words, "#"] : words).join("/"))
  .filter((text) => text.length > 0)
  .map((text) => parseTopicFilter(text));

/** Every topic of up to five levels over the words above; one level more than a filter has. */
const allTopics: string[][] = [];
const extend = (words: string[]): void => {
  if (words.length > 0) allTopics.push(words);
  if (words.length === 5) return;
  for (const next of ["", "a", "b", "c", "z", "$S"]) extend([...words, next]);
};
extend([]);

test("the trie visits exactly what matching filter by filter finds", () => {
  fc.assert(
    fc.property(fc.array(filter, { maxLength: 20 }), fc.array(topic, { maxLength: 10 }), (f, t) => {
      const trie = new FilterTrie<string>();
      const filters = new Map(f.map((each) => [each.text, each]));
      for (const each of filters.values()) trie.add(each, each.text);
      for (const name of t) {
        const visited: string[] = [];
        trie.match(name, (value) => visited.push(value));
        const wanted = [...filters.values()].filter((each) => matches(each, splitTopic(name)));
        expect(visited.sort()).toEqual(wanted.map((each) => each.text).sort());
        expect(trie.some(name)).toBe(wanted.length > 0);
      }
    }),
    { numRuns: 500 },
  );
});

test("the text of a filter, shared or not, matches what the parsed filter matches", () => {
  fc.assert(
    fc.property(filter, fc.constantFrom("", "$share/g/", "$share/a/"), (each, share) => {
      const wanted = allTopics.filter((words) => matches(each, words));
      const found = allTopics.filter((words) => filterTextMatches(`${share}${each.text}`, words));
      expect(found).toEqual(wanted);
    }),
    { numRuns: 100 },
  );
});

test("adding and removing in any order leaves a trie as if only the rest had been added", () => {
  const step = fc.record({ filter, value: fc.nat(2), add: fc.boolean() });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const trie = new FilterTrie<number>();
      const held = new Map<string, { filter: TopicFilter; value: number }>();
      for (const { filter: each, value, add } of steps) {
        const key = `${each.text} ${value}`;
        if (add) {
          expect(trie.add(each, value)).toBe(!held.has(key));
          held.set(key, { filter: each, value });
        } else {
          expect(trie.remove(each, value)).toBe(held.delete(key));
        }
      }
      const fresh = new FilterTrie<number>();
      for (const { filter: each, value } of held.values()) fresh.add(each, value);
      expect(trie.nodeCount).toBe(fresh.nodeCount);
      expect(trie.filterCount).toBe(fresh.filterCount);
      expect(trie.valueCount).toBe(held.size);
      for (const { filter: each, value } of held.values()) trie.remove(each, value);
      expect([trie.nodeCount, trie.filterCount, trie.valueCount]).toEqual([1, 0, 0]);
    }),
    { numRuns: 300 },
  );
});

test("a filter covers another exactly when no topic of the other escapes it", () => {
  fc.assert(
    fc.property(filter, filter, (outer, inner) => {
      const escapes = allTopics.some((words) => matches(inner, words) && !matches(outer, words));
      expect(covers(outer, inner)).toBe(!escapes);
    }),
    { numRuns: 500 },
  );
});

test("two filters intersect exactly when some topic is matched by both", () => {
  fc.assert(
    fc.property(filter, filter, (one, other) => {
      const both = allTopics.some((words) => matches(one, words) && matches(other, words));
      expect(intersects(one, other)).toBe(both);
      expect(intersects(other, one)).toBe(both);
    }),
    { numRuns: 500 },
  );
});

test("the topic index finds exactly what matching topic by topic finds", () => {
  fc.assert(
    fc.property(
      fc.uniqueArray(topic, { maxLength: 40 }),
      fc.array(topic, { maxLength: 10 }),
      filter,
      (kept, gone, each) => {
        const index = new TopicIndex<string>();
        for (const name of [...kept, ...gone]) index.set(name, name);
        for (const name of gone) index.delete(name);
        const rest = kept.filter((name) => !gone.includes(name));
        const found = [...index.find(each)].map(([name]) => name).sort();
        const wanted = rest.filter((name) => matches(each, splitTopic(name))).sort();
        expect(found).toEqual(wanted);
        expect(index.size).toBe(rest.length);
        for (const name of rest) index.delete(name);
        expect(index.nodeCount).toBe(1);
      },
    ),
    { numRuns: 500 },
  );
});
