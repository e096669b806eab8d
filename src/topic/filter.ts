// Topic filters: parsed once into a `TopicFilter`, which carries the proof that its text is legal,
// then matched and compared without looking at the text again.
//
// `matches` is the meaning of a filter in one place; tries and indexes are checked against it.
// "#" takes the parent level too ("sport/#" matches "sport"), and a leading wildcard never takes a
// topic that starts with `$`.

import { topicErrors } from "./errors.ts";
import {
  splitTopic,
  type TopicFault,
  type TopicLimits,
  topicLimitsDefault,
  topicTextFault,
  wildcardFault,
} from "./words.ts";

declare const parsed: unique symbol;

/** A legal filter. Only `parseTopicFilter` and `topicAsFilter` make one. */
export type TopicFilter = {
  readonly text: string;
  readonly words: readonly string[];
  /** True when the filter names exactly one topic. */
  readonly exact: boolean;
  readonly [parsed]: true;
};

/** A filter as it stands in SUBSCRIBE: of one session, or dealt out to a share group. */
export type SubscriptionFilter = {
  readonly group: string | undefined;
  readonly filter: TopicFilter;
};

const sharePrefix = "$share/";

/** @throws TOPIC_FILTER_INVALID. `$share/…` is not looked into: see `parseSubscriptionFilter`. */
export function parseTopicFilter(
  text: string,
  limits: TopicLimits = topicLimitsDefault,
): TopicFilter {
  const fault = topicFilterFault(text, limits);
  if (fault !== undefined) throw filterInvalid(text, fault);
  return makeFilter(text);
}

export function topicFilterFault(
  text: string,
  limits: TopicLimits = topicLimitsDefault,
): TopicFault | undefined {
  return topicTextFault(text, limits) ?? wildcardFault(text);
}

/** A filter or `$share/{group}/{filter}`. @throws TOPIC_FILTER_INVALID. */
export function parseSubscriptionFilter(
  text: string,
  limits: TopicLimits = topicLimitsDefault,
): SubscriptionFilter {
  if (!isShared(text)) return { group: undefined, filter: parseTopicFilter(text, limits) };
  const fault = shareFault(text);
  if (fault !== undefined) throw filterInvalid(text, fault);
  const end = text.indexOf("/", sharePrefix.length);
  const group = text.slice(sharePrefix.length, end);
  const groupFault = topicTextFault(group, limits);
  if (groupFault !== undefined) throw filterInvalid(text, groupFault);
  return { group, filter: parseTopicFilter(text.slice(end + 1), limits) };
}

/** The reason why `parseSubscriptionFilter` would throw, for callers that answer per filter. */
export function subscriptionFilterFault(
  text: string,
  limits: TopicLimits = topicLimitsDefault,
): TopicFault | undefined {
  if (!isShared(text)) return topicFilterFault(text, limits);
  const fault = shareFault(text);
  if (fault !== undefined) return fault;
  const end = text.indexOf("/", sharePrefix.length);
  return (
    topicTextFault(text.slice(sharePrefix.length, end), limits) ??
    topicFilterFault(text.slice(end + 1), limits)
  );
}

export function formatSubscriptionFilter(subscription: SubscriptionFilter): string {
  const { group, filter } = subscription;
  return group === undefined ? filter.text : `${sharePrefix}${group}/${filter.text}`;
}

/** The filter that matches just this topic. REQUIRES: `topic` is a legal name. */
export function topicAsFilter(topic: string): TopicFilter {
  return makeFilter(topic);
}

export function matches(filter: TopicFilter, topicWords: readonly string[]): boolean {
  const words = filter.words;
  if (isWildcard(words[0]) && topicWords[0]?.startsWith("$")) return false;
  for (let level = 0; level < words.length; level++) {
    const word = words[level];
    if (word === "#") return true;
    if (level >= topicWords.length) return false;
    if (word !== "+" && word !== topicWords[level]) return false;
  }
  return words.length === topicWords.length;
}

/**
 * The same of the text of a subscription filter, shared or not, that is looked at once: nothing is
 * parsed or allocated. REQUIRES: `text` is legal.
 */
export function filterTextMatches(text: string, topicWords: readonly string[]): boolean {
  let at = isShared(text) ? text.indexOf("/", sharePrefix.length) + 1 : 0;
  if (isWildcard(text[at]) && topicWords[0]?.startsWith("$")) return false;
  for (const word of topicWords) {
    if (at > text.length) return false;
    const character = text[at];
    if (character === "#") return true;
    if (character !== "+" && !text.startsWith(word, at)) return false;
    at += character === "+" ? 1 : word.length;
    if (at < text.length && text[at] !== "/") return false;
    at++;
  }
  return at > text.length || text[at] === "#";
}

/** True when every topic that `inner` matches is matched by `outer` too. */
export function covers(outer: TopicFilter, inner: TopicFilter): boolean {
  // At the root "#" asks for one level at least, like "+/#": written so, the walk below is exact.
  const wide = outer.words[0] === "#" ? rootHash : outer.words;
  const narrow = inner.words[0] === "#" ? rootHash : inner.words;
  if (wide[0] === "+" && narrow[0]?.startsWith("$")) return false;
  for (let level = 0; level < wide.length; level++) {
    const word = wide[level];
    if (word === "#") return true;
    const other = narrow[level];
    if (other === undefined || other === "#") return false;
    if (word !== "+" && word !== other) return false;
  }
  return wide.length === narrow.length;
}

/** True when some topic is matched by both. */
export function intersects(one: TopicFilter, other: TopicFilter): boolean {
  const a = one.words;
  const b = other.words;
  if (isWildcard(a[0]) && b[0]?.startsWith("$")) return false;
  if (isWildcard(b[0]) && a[0]?.startsWith("$")) return false;
  for (let level = 0; level < a.length && level < b.length; level++) {
    const [mine, theirs] = [a[level], b[level]];
    if (mine === "#" || theirs === "#") return true;
    if (mine !== theirs && mine !== "+" && theirs !== "+") return false;
  }
  // What is longer may end in "#", which takes the parent level too.
  if (a.length === b.length) return true;
  const rest = a.length > b.length ? a.slice(b.length) : b.slice(a.length);
  return rest.length === 1 && rest[0] === "#";
}

const rootHash: readonly string[] = ["+", "#"];

function isWildcard(word: string | undefined): boolean {
  return word === "+" || word === "#";
}

function isShared(text: string): boolean {
  return text.startsWith(sharePrefix) || text === "$share";
}

function shareFault(text: string): TopicFault | undefined {
  const end = text.indexOf("/", sharePrefix.length);
  const group = end < 0 ? text.slice(sharePrefix.length) : text.slice(sharePrefix.length, end);
  if (group.length === 0) return "share_group_missing";
  if (group.includes("+") || group.includes("#")) return "share_group_wildcard";
  return end < 0 || end === text.length - 1 ? "share_filter_missing" : undefined;
}

function filterInvalid(text: string, fault: TopicFault): Error {
  return topicErrors.filterInvalid({ filter: JSON.stringify(text), fault });
}

function makeFilter(text: string): TopicFilter {
  const words = splitTopic(text);
  const plain: Omit<TopicFilter, typeof parsed> = { text, words, exact: !words.some(isWildcard) };
  return plain as TopicFilter;
}
