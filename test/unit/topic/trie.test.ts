import { describe, expect, test } from "vitest";
import { FilterTrie, parseTopicFilter, TopicIndex } from "../../../src/topic/index.ts";

const trieOf = (...filters: string[]): FilterTrie<string> => {
  const trie = new FilterTrie<string>();
  for (const filter of filters) trie.add(parseTopicFilter(filter), filter);
  return trie;
};

const matched = (trie: FilterTrie<string>, topic: string): string[] => {
  const values: string[] = [];
  trie.match(topic, (value) => values.push(value));
  return values.sort();
};

describe("filter trie", () => {
  test("a topic visits each filter that matches it once", () => {
    const trie = trieOf("#", "a/#", "a/+", "a/b", "+/b", "+", "a/b/#", "a/b/c", "b/#");
    expect(matched(trie, "a/b")).toEqual(["#", "+/b", "a/#", "a/+", "a/b", "a/b/#"]);
    expect(matched(trie, "a")).toEqual(["#", "+", "a/#"]);
    expect(matched(trie, "")).toEqual(["#", "+"]);
  });

  test("root wildcards do not take `$` topics", () => {
    const trie = trieOf("#", "+/a", "$SYS/#", "$SYS/+");
    expect(matched(trie, "$SYS/a")).toEqual(["$SYS/#", "$SYS/+"]);
    expect(matched(trie, "$other/a")).toEqual([]);
    expect(trie.some("$other/a")).toBe(false);
    expect(trie.some("$SYS/a/b")).toBe(true);
  });

  test("a value is held once per filter and counted so", () => {
    const trie = new FilterTrie<number>();
    const filter = parseTopicFilter("a/+");
    expect(trie.add(filter, 1)).toBe(true);
    expect(trie.add(filter, 1)).toBe(false);
    expect(trie.add(filter, 2)).toBe(true);
    expect([trie.filterCount, trie.valueCount]).toEqual([1, 2]);
    expect([...trie.valuesOf(filter)]).toEqual([1, 2]);
    expect(trie.remove(filter, 3)).toBe(false);
    expect(trie.remove(filter, 1)).toBe(true);
    expect([trie.filterCount, trie.valueCount]).toEqual([1, 1]);
  });

  test("removing the last value prunes every node that only it needed", () => {
    const trie = trieOf("a/b/c/d", "a/+/c/#", "a");
    const before = trie.nodeCount;
    trie.add(parseTopicFilter("a/b/c/d/e/+"), "x");
    trie.remove(parseTopicFilter("a/b/c/d/e/+"), "x");
    expect(trie.nodeCount).toBe(before);
    for (const filter of ["a", "a/b/c/d", "a/+/c/#"]) {
      expect(trie.remove(parseTopicFilter(filter), filter)).toBe(true);
    }
    expect([trie.nodeCount, trie.filterCount, trie.valueCount]).toEqual([1, 0, 0]);
  });

  test("removing what is not there changes nothing", () => {
    const trie = trieOf("a/b/#");
    const revision = trie.revision;
    for (const filter of ["a/b", "a/b/+", "a/#", "c"]) {
      expect(trie.remove(parseTopicFilter(filter), "a/b/#")).toBe(false);
    }
    expect(trie.revision).toBe(revision);
    expect(matched(trie, "a/b")).toEqual(["a/b/#"]);
  });

  test("the revision changes with every change, and only then", () => {
    const trie = trieOf();
    trie.add(parseTopicFilter("a"), "x");
    const revision = trie.revision;
    trie.add(parseTopicFilter("a"), "x");
    expect(trie.revision).toBe(revision);
    trie.remove(parseTopicFilter("a"), "x");
    expect(trie.revision).not.toBe(revision);
  });
});

describe("topic index", () => {
  const topics = ["a", "a/b", "a/b/c", "a/d/c", "b/b", "$SYS/a", "/", ""];
  const index = new TopicIndex<number>();
  topics.forEach((topic, number) => {
    index.set(topic, number);
  });
  const found = (filter: string): string[] =>
    [...index.find(parseTopicFilter(filter))].map(([topic]) => topic).sort();

  test("a filter finds the topics that it matches", () => {
    expect(found("a/#")).toEqual(["a", "a/b", "a/b/c", "a/d/c"]);
    expect(found("+/b")).toEqual(["a/b", "b/b"]);
    expect(found("a/+/c")).toEqual(["a/b/c", "a/d/c"]);
    expect(found("a/b")).toEqual(["a/b"]);
    expect(found("x/#")).toEqual([]);
  });

  test("root wildcards do not find `$` topics", () => {
    expect(found("#")).toEqual(topics.filter((topic) => !topic.startsWith("$")).sort());
    expect(found("+/a")).toEqual([]);
    expect(found("$SYS/#")).toEqual(["$SYS/a"]);
  });

  test("deleting the last topic below a node prunes it", () => {
    const small = new TopicIndex<undefined>();
    small.set("a/b/c", undefined);
    small.set("a", undefined);
    expect(small.has("a/b/c")).toBe(true);
    expect(small.delete("a/b")).toBe(false);
    expect(small.delete("a/b/c")).toBe(true);
    expect(small.delete("a/b/c")).toBe(false);
    expect([small.size, small.nodeCount]).toEqual([1, 2]);
    small.delete("a");
    expect([small.size, small.nodeCount]).toEqual([0, 1]);
  });

  test("setting again replaces the value and keeps the count", () => {
    const small = new TopicIndex<number>();
    small.set("a/b", 1);
    small.set("a/b", 2);
    expect([small.size, small.get("a/b"), small.get("a")]).toEqual([1, 2, undefined]);
  });

  test("a search goes on after topics were removed behind and ahead of it", () => {
    const small = new TopicIndex<number>();
    for (let number = 0; number < 10; number++) small.set(`t/${number}`, number);
    const search = small.find(parseTopicFilter("t/+"));
    const seen = [search.next().value?.[1]];
    small.delete("t/0");
    small.delete("t/5");
    for (const [, number] of search) seen.push(number);
    expect(seen).toEqual([0, 1, 2, 3, 4, 6, 7, 8, 9]);
  });
});
