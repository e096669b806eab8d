// Rules about topics, and what they come to for one client.
//
// A deny that matches beats every allow; what no rule allows is denied. A subscription needs one rule
// that covers all of its filter; denials of a part of it are kept at delivery.
//
// `%c` and `%u` stand for client id and user, literally: a value that holds `+`, `#`, `/` or NUL is
// none of ours to put into a filter. Allowing rules then do not count for that client, denying ones
// deny for every value.

import {
  covers,
  matches,
  parseTopicFilter,
  splitTopic,
  type TopicFilter,
  topicFilterFault,
} from "../../topic/index.ts";
import { brokerErrors } from "../errors.ts";

/** `topic` is a filter for `subscribe`. */
export type AccessAction = "publish" | "subscribe" | "receive";

export type Grant = {
  readonly effect: "allow" | "deny";
  /** `read` is subscribing and receiving, `write` publishing, wills included. */
  readonly access: "read" | "write" | "both";
  /** A topic filter, with placeholders where they are allowed. */
  readonly filter: string;
};

/** A grant that is ready to be asked. */
export type Rule = Omit<Grant, "filter"> & { readonly filter: TopicFilter };

export const grantsMax = 10_000;

const placeholder = /%[cu]/g;
const literal = /^[^+#/\0]+$/;

/** Why `filter` cannot stand in a rule. */
export function ruleFilterFault(filter: string): string | undefined {
  if (filter.startsWith("$share/")) return "rules hold for the filter inside $share";
  return topicFilterFault(filter.replace(placeholder, "x"))?.replaceAll("_", " ");
}

/**
 * Rights as other systems tell them: `{"publish": [filters], "subscribe": [...], "deny": [...]}`.
 * @throws BROKER_RULES_INVALID for anything else.
 */
export function parseGrants(value: unknown): readonly Grant[] {
  if (value === undefined || value === null) return [];
  if (typeof value !== "object" || Array.isArray(value)) throw invalidRights("no object");
  const grants: Grant[] = [];
  for (const [key, filters] of Object.entries(value)) {
    // Of its own: every object has a "constructor", and a grant without an effect would allow.
    const shape = Object.hasOwn(shapes, key) ? shapes[key] : undefined;
    if (shape === undefined) throw invalidRights(`unknown key ${JSON.stringify(key.slice(0, 40))}`);
    if (!Array.isArray(filters)) throw invalidRights(`${key} is no list of filters`);
    for (const filter of filters) {
      if (typeof filter !== "string" || ruleFilterFault(filter) !== undefined) {
        throw invalidRights(`${key} holds what is no topic filter`);
      }
      grants.push({ ...shape, filter });
    }
  }
  if (grants.length > grantsMax) throw invalidRights(`more than ${grantsMax} filters`);
  return grants;
}

const shapes: Readonly<Record<string, Omit<Grant, "filter">>> = {
  publish: { effect: "allow", access: "write" },
  subscribe: { effect: "allow", access: "read" },
  deny: { effect: "deny", access: "both" },
};

function invalidRights(reason: string): Error {
  return brokerErrors.rulesInvalid({ what: "rights", line: 0, reason });
}

type Names = { readonly clientId: string; readonly user: string | undefined };

/** The rule as it holds for a client; undefined: it does not concern this one. */
export function resolveGrant(grant: Grant, names: Names): Rule | undefined {
  const { effect, access } = grant;
  let isLost = false;
  const text = grant.filter.replace(placeholder, (found) => {
    const value = found === "%c" ? names.clientId : names.user;
    if (value !== undefined && literal.test(value)) return value;
    isLost = true;
    return "+";
  });
  if (isLost && effect === "allow") return undefined;
  const filter = isLost ? widened(text) : text;
  if (topicFilterFault(filter) !== undefined) return undefined;
  return { effect, access, filter: parseTopicFilter(filter) };
}

/** `dev-+` is no filter: the whole level varies. */
function widened(text: string): string {
  return splitTopic(text)
    .map((level) => (level.includes("+") ? "+" : level))
    .join("/");
}

export function hasPlaceholder({ filter }: Grant): boolean {
  return filter.search(placeholder) >= 0;
}

/** Answers remembered for each client; all are forgotten when one more comes. */
const answersMax = 64;
/** Longer topics are asked about each time: clients choose them, and would choose our memory. */
const rememberedLengthMax = 256;
const shift: Readonly<Record<AccessAction, number>> = { publish: 0, receive: 2, subscribe: 4 };
const known = 1;
const allowed = 2;

/** All rules that concern one client. */
export class ClientRules {
  readonly #lists: ReadonlyArray<readonly Rule[]>;
  readonly #answers = new Map<string, number>();

  /** Lists may be shared by many clients. */
  constructor(lists: ReadonlyArray<readonly Rule[]>) {
    this.#lists = lists.filter((list) => list.length > 0);
  }

  may(action: AccessAction, topic: string): boolean {
    const bits = this.#answers.get(topic) ?? 0;
    const mine = bits >>> shift[action];
    if ((mine & known) !== 0) return (mine & allowed) !== 0;
    const answer = this.#decide(action, topic) === "allow";
    if (topic.length > rememberedLengthMax) return answer;
    if (this.#answers.size >= answersMax) this.#answers.clear();
    this.#answers.set(topic, bits | ((known | (answer ? allowed : 0)) << shift[action]));
    return answer;
  }

  /** Whether a rule says no, which is more than that none says yes. */
  isDenied(action: AccessAction, topic: string): boolean {
    return this.#decide(action, topic) === "deny";
  }

  #decide(action: AccessAction, topic: string): "allow" | "deny" | "silent" {
    const other = action === "publish" ? "read" : "write";
    const isInside = action === "subscribe" ? insideOf(topic) : matcherOf(topic);
    let isAllowed = false;
    for (const list of this.#lists) {
      for (const rule of list) {
        if (rule.access === other || (isAllowed && rule.effect === "allow")) continue;
        if (!isInside(rule.filter)) continue;
        if (rule.effect === "deny") return "deny";
        isAllowed = true;
      }
    }
    return isAllowed ? "allow" : "silent";
  }
}

function matcherOf(topic: string): (filter: TopicFilter) => boolean {
  const words = splitTopic(topic);
  return (filter) => matches(filter, words);
}

function insideOf(text: string): (filter: TopicFilter) => boolean {
  const inner = parseTopicFilter(text, { levelsMax: 65_535, controlCharacters: "allow" });
  return (filter) => covers(filter, inner);
}
