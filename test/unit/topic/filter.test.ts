import { describe, expect, test } from "vitest";
import {
  covers,
  formatSubscriptionFilter,
  matches,
  parseSubscriptionFilter,
  parseTopicFilter,
  splitTopic,
  subscriptionFilterFault,
  topicAsFilter,
  topicFilterFault,
} from "../../../src/topic/index.ts";

const hits = (filter: string, topic: string): boolean =>
  matches(parseTopicFilter(filter), splitTopic(topic));

const coversText = (outer: string, inner: string): boolean =>
  covers(parseTopicFilter(outer), parseTopicFilter(inner));

describe("filter syntax", () => {
  test("a wildcard fills its level and # stands last", () => {
    for (const text of ["#", "+", "a/+", "a/#", "+/+/#", "/+", "+/", "//#", "a/+/b", "$SYS/#"]) {
      expect(topicFilterFault(text)).toBeUndefined();
    }
    for (const text of ["a#", "a/b#", "#a", "a+", "+a", "a/+b/c", "a/b+/c", "++", "##", "+#"]) {
      expect(topicFilterFault(text)).toBe("wildcard_not_alone");
    }
    for (const text of ["#/", "#/a", "a/#/b", "#/#"]) {
      expect(topicFilterFault(text)).toBe("hash_not_last");
    }
    expect(topicFilterFault("")).toBe("empty");
    expect(topicFilterFault("a\u0000")).toBe("nul_character");
    expect(() => parseTopicFilter("a#")).toThrow('invalid topic filter "a#": wildcard_not_alone');
  });

  test("only a filter without wildcards is exact", () => {
    expect(parseTopicFilter("a/b").exact).toBe(true);
    expect(parseTopicFilter("a/+").exact).toBe(false);
    expect(parseTopicFilter("a/#").exact).toBe(false);
    expect(topicAsFilter("a/b")).toEqual(parseTopicFilter("a/b"));
  });
});

describe("shared filters", () => {
  test("$share takes a group and a filter, and formats back to its text", () => {
    for (const text of ["$share/g/a/+", "$share/g//", "$share/g/$SYS/#", "$share/ /#", "a/b"]) {
      expect(formatSubscriptionFilter(parseSubscriptionFilter(text))).toBe(text);
      expect(subscriptionFilterFault(text)).toBeUndefined();
    }
    const shared = parseSubscriptionFilter("$share/workers/jobs/#");
    expect(shared.group).toBe("workers");
    expect(shared.filter).toEqual(parseTopicFilter("jobs/#"));
    expect(parseSubscriptionFilter("$shared/a").group).toBeUndefined();
  });

  test("a group has a character and no wildcard, and a filter follows it", () => {
    const faults = {
      $share: "share_group_missing",
      "$share/": "share_group_missing",
      "$share//a": "share_group_missing",
      "$share/+/a": "share_group_wildcard",
      "$share/a#/a": "share_group_wildcard",
      "$share/g": "share_filter_missing",
      "$share/g/": "share_filter_missing",
      "$share/g/a#": "wildcard_not_alone",
      "$share/\ud834/a": "broken_surrogate",
    };
    for (const [text, fault] of Object.entries(faults)) {
      expect(subscriptionFilterFault(text)).toBe(fault);
      expect(() => parseSubscriptionFilter(text)).toThrow(fault);
    }
  });
});

describe("matching", () => {
  test("# takes its parent and everything below", () => {
    for (const topic of ["sport", "sport/", "sport/tennis", "sport/tennis/1"]) {
      expect(hits("sport/#", topic)).toBe(true);
    }
    expect(hits("sport/#", "sports")).toBe(false);
    expect(hits("#", "a/b/c")).toBe(true);
    expect(hits("+/#", "a")).toBe(true);
  });

  test("+ takes exactly one level, which may be empty", () => {
    expect(hits("+", "finance")).toBe(true);
    expect(hits("+", "/finance")).toBe(false);
    expect(hits("+/+", "/finance")).toBe(true);
    expect(hits("/+", "/finance")).toBe(true);
    expect(hits("sport/+", "sport")).toBe(false);
    expect(hits("sport/+", "sport/")).toBe(true);
    expect(hits("sport/+/x", "sport/a/b/x")).toBe(false);
  });

  test("a leading wildcard never takes a topic that starts with $", () => {
    for (const filter of ["#", "+", "+/#", "+/monitor"]) {
      expect(hits(filter, "$SYS/monitor")).toBe(false);
      expect(hits(filter, "$SYS")).toBe(false);
    }
    expect(hits("$SYS/#", "$SYS")).toBe(true);
    expect(hits("$SYS/+", "$SYS/monitor")).toBe(true);
    expect(hits("a/+", "a/$SYS")).toBe(true);
  });

  test("names are compared character by character without normalisation", () => {
    expect(hits("ACCOUNTS", "accounts")).toBe(false);
    expect(hits("\u00e9", "e\u0301")).toBe(false);
    expect(hits("a ", "a")).toBe(false);
  });
});

describe("covering", () => {
  test("a filter covers those that match a part of its topics", () => {
    for (const [outer, inner] of [
      ["#", "a/+/b"],
      ["#", "+/#"],
      ["+/#", "#"],
      ["a/#", "a"],
      ["a/#", "a/+/#"],
      ["a/+", "a/b"],
      ["a/+", "a/+"],
      ["$SYS/#", "$SYS/+"],
      ["#", "#"],
    ] as const) {
      expect([outer, inner, coversText(outer, inner)]).toEqual([outer, inner, true]);
    }
  });

  test("a filter does not cover one that matches a single topic more", () => {
    for (const [outer, inner] of [
      ["a/+/#", "a/#"],
      ["+", "#"],
      ["a/+", "a/#"],
      ["a/b", "a/+"],
      ["#", "$SYS/a"],
      ["+/a", "$SYS/a"],
      ["a/+", "a"],
      ["a", "a/+"],
    ] as const) {
      expect([outer, inner, coversText(outer, inner)]).toEqual([outer, inner, false]);
    }
  });
});
