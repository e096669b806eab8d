// Topics as words: splitting at "/", and the rules of MQTT 5 section 4.7 that a name keeps.
//
// Names are compared character by character; nothing is normalised, folded or trimmed (4.7.3-4).
// An empty word is a word: "/a" has two. Which `$` prefixes are closed to whom is the broker's.

import { topicErrors } from "./errors.ts";

/** Settings of the checks; plain data. */
export type TopicLimits = {
  /** Most levels of a name or filter. Deep topics cost every trie a node a level. */
  readonly levelsMax: number;
  /** Refuse U+0001-001F and U+007F-009F, on which some subscribers end their connection. */
  readonly controlCharacters: "allow" | "refuse";
};

export const topicLimitsDefault: TopicLimits = { levelsMax: 128, controlCharacters: "allow" };

/** Longest topic in UTF-8 bytes: the wire has a two-byte length. */
export const topicBytesMax = 65_535;

/**
 * Longest topic that caches remember, in characters: they are bounded by a number of topics, of which
 * a client that makes them as long as it can would fill gigabytes.
 */
export const rememberedTopicMax = 1024;

export type TopicFault =
  | "empty"
  | "too_long"
  | "too_many_levels"
  | "nul_character"
  | "control_character"
  | "broken_surrogate"
  | "wildcard_in_name"
  | "wildcard_not_alone"
  | "hash_not_last"
  | "share_group_missing"
  | "share_group_wildcard"
  | "share_filter_missing";

const slash = 0x2f;
const plus = 0x2b;
const hash = 0x23;
const dollar = 0x24;

export function splitTopic(topic: string): string[] {
  return topic.split("/");
}

/** Topics under `$` are apart: no filter that begins with a wildcard matches them (4.7.2-1). */
export function isDollarTopic(topic: string): boolean {
  return topic.charCodeAt(0) === dollar;
}

/** Why `topic` cannot be the name of a topic; undefined when it can. Allocates nothing. */
export function topicNameFault(
  topic: string,
  limits: TopicLimits = topicLimitsDefault,
): TopicFault | undefined {
  return topicTextFault(topic, limits) ?? (hasWildcard(topic) ? "wildcard_in_name" : undefined);
}

/** The name itself, once it is known to be one. @throws TOPIC_NAME_INVALID. */
export function parseTopicName(topic: string, limits: TopicLimits = topicLimitsDefault): string {
  const fault = topicNameFault(topic, limits);
  if (fault !== undefined) throw topicErrors.nameInvalid({ topic: JSON.stringify(topic), fault });
  return topic;
}

export function hasWildcard(text: string): boolean {
  return text.includes("+") || text.includes("#");
}

/** The rules that names and filters share: characters, bytes, levels. */
export function topicTextFault(text: string, limits: TopicLimits): TopicFault | undefined {
  if (text.length === 0) return "empty";
  let levels = 1;
  let sizeBytes = text.length;
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index);
    if (unit === slash) {
      levels++;
    } else if (unit === 0) {
      return "nul_character";
    } else if (unit < 0x20 || (unit >= 0x7f && unit <= 0x9f)) {
      if (limits.controlCharacters === "refuse") return "control_character";
      if (unit >= 0x80) sizeBytes += 1;
    } else if (unit >= 0x80) {
      if (unit < 0x800) {
        sizeBytes += 1;
      } else if (unit < 0xd800 || unit > 0xdfff) {
        sizeBytes += 2;
      } else {
        // A pair is two units and four bytes; a half is no character at all (1.5.4-1).
        const next = text.charCodeAt(index + 1);
        if (unit > 0xdbff || !(next >= 0xdc00 && next <= 0xdfff)) return "broken_surrogate";
        sizeBytes += 2;
        index++;
      }
    }
  }
  if (sizeBytes > topicBytesMax) return "too_long";
  return levels > limits.levelsMax ? "too_many_levels" : undefined;
}

/** The rules of wildcards in filters (4.7.1). */
export function wildcardFault(text: string): TopicFault | undefined {
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index);
    if (unit !== plus && unit !== hash) continue;
    const opens = index === 0 || text.charCodeAt(index - 1) === slash;
    const last = index === text.length - 1;
    if (!opens || !(last || text.charCodeAt(index + 1) === slash)) return "wildcard_not_alone";
    if (unit === hash && !last) return "hash_not_last";
  }
  return undefined;
}
