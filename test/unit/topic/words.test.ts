import { describe, expect, test } from "vitest";
import { isCodedError } from "../../../src/base/index.ts";
import {
  isDollarTopic,
  parseTopicName,
  splitTopic,
  topicBytesMax,
  topicNameFault,
} from "../../../src/topic/index.ts";

describe("topic names", () => {
  test("an empty word counts as a level at the front, in the middle and at the end", () => {
    expect(splitTopic("/a//b/")).toEqual(["", "a", "", "b", ""]);
    for (const name of ["/", "/a", "a/", "a//b", " ", "$SYS/x", "ä/ö", "𝄞"]) {
      expect(topicNameFault(name)).toBeUndefined();
    }
  });

  test("a name has at least one character", () => {
    expect(topicNameFault("")).toBe("empty");
  });

  test("a name has no wildcard in any place", () => {
    for (const name of ["#", "+", "a/+", "a/#", "a+b", "a#"]) {
      expect(topicNameFault(name)).toBe("wildcard_in_name");
    }
  });

  test("NUL and half a surrogate pair are refused", () => {
    expect(topicNameFault("a\u0000b")).toBe("nul_character");
    for (const name of ["a\ud834", "\ud834a", "\udd1e", "\udd1e\ud834"]) {
      expect(topicNameFault(name)).toBe("broken_surrogate");
    }
  });

  test("control characters are refused only where an operator asks for it", () => {
    const limits = { levelsMax: 128, controlCharacters: "refuse" } as const;
    for (const name of ["a\u0001", "a\u001f", "\u007f", "\u0080", "a\u009f"]) {
      expect(topicNameFault(name)).toBeUndefined();
      expect(topicNameFault(name, limits)).toBe("control_character");
    }
    expect(topicNameFault("a\u00a0", limits)).toBeUndefined();
  });

  test("length is counted in UTF-8 bytes", () => {
    expect(topicNameFault("a".repeat(topicBytesMax))).toBeUndefined();
    expect(topicNameFault("a".repeat(topicBytesMax + 1))).toBe("too_long");
    for (const character of ["\u0081", "ä", "€", "𝄞"]) {
      const size = Buffer.byteLength(character);
      const count = Math.floor(topicBytesMax / size);
      const rest = "a".repeat(topicBytesMax - count * size);
      expect(topicNameFault(character.repeat(count) + rest)).toBeUndefined();
      expect(topicNameFault(`${character.repeat(count) + rest}a`)).toBe("too_long");
    }
  });

  test("levels are bounded by the setting", () => {
    const limits = { levelsMax: 3, controlCharacters: "allow" } as const;
    expect(topicNameFault("a/b/c", limits)).toBeUndefined();
    expect(topicNameFault("a/b/c/d", limits)).toBe("too_many_levels");
    expect(topicNameFault("/".repeat(127))).toBeUndefined();
    expect(topicNameFault("/".repeat(128))).toBe("too_many_levels");
  });

  test("only the first character makes a `$` topic", () => {
    expect(isDollarTopic("$SYS/a")).toBe(true);
    expect(isDollarTopic("a/$SYS")).toBe(false);
    expect(isDollarTopic("")).toBe(false);
  });

  test("a parsed name is the text itself, a fault names the topic and the reason", () => {
    expect(parseTopicName("a/B/ä")).toBe("a/B/ä");
    try {
      parseTopicName("a/+");
      expect.unreachable();
    } catch (error) {
      expect(isCodedError(error, "TOPIC_NAME_INVALID")).toBe(true);
      expect((error as Error).message).toBe('invalid topic name "a/+": wildcard_in_name');
    }
  });
});
