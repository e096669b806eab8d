// The rule file. Its words are those of Mosquitto's ACL file, which can be used as it is:
//
//   topic read news/#                 before any heading: for clients without a user
//   user alice                        heading: what follows is for this user
//   topic readwrite home/alice/#
//   topic deny home/alice/secret
//   pattern write devices/%c/#        for everybody, whatever the heading
//
// Besides: the headings `client ID`, `anonymous` and `everyone`. read, write, readwrite (when
// nothing is said) and deny. A line that cannot be read refuses the whole file.

import { brokerErrors } from "../errors.ts";
import { atOnce, eachLine, type Slices } from "../slices.ts";
import {
  type Grant,
  grantsMax,
  hasPlaceholder,
  type Rule,
  resolveGrant,
  ruleFilterFault,
} from "./rules.ts";

/** Rules by whom they concern. */
export type RuleSet = {
  readonly everyone: readonly Rule[];
  readonly anonymous: readonly Rule[];
  readonly users: ReadonlyMap<string, readonly Rule[]>;
  readonly clients: ReadonlyMap<string, readonly Rule[]>;
  /** With placeholders: resolved for each client. */
  readonly patterns: readonly Grant[];
};

export const noRules: RuleSet = {
  everyone: [],
  anonymous: [],
  users: new Map(),
  clients: new Map(),
  patterns: [],
};

const fileBytesMax = 64 * 1024 * 1024;
const rulesMax = 100 * grantsMax;

/** @throws BROKER_RULES_INVALID with the number of the first line that is wrong. */
export function parseRuleFile(text: string): RuleSet {
  return atOnce(ruleFileSlices(text));
}

/** `parseRuleFile` a slice at a time. */
export function* ruleFileSlices(text: string): Slices<RuleSet> {
  if (text.length > fileBytesMax) throw invalid(0, "it is larger than 64 MiB");
  const reader = new RuleReader();
  yield* eachLine(text, (raw, number) => {
    const line = raw.trim();
    if (line !== "" && !line.startsWith("#")) reader.read(line, number);
  });
  return reader.set();
}

class RuleReader {
  readonly #everyone: Rule[] = [];
  readonly #anonymous: Rule[] = [];
  readonly #users = new Map<string, Rule[]>();
  readonly #clients = new Map<string, Rule[]>();
  readonly #patterns: Grant[] = [];
  #section: Rule[] = this.#anonymous;
  #count = 0;

  read(line: string, number: number): void {
    const [word = ""] = line.split(/\s/, 1);
    const rest = line.slice(word.length).trim();
    switch (word) {
      case "user":
      case "client":
        if (rest === "") throw invalid(number, `expected a name behind "${word}"`);
        this.#section = listOf(word === "user" ? this.#users : this.#clients, rest);
        return;
      case "everyone":
      case "anonymous":
        if (rest !== "") throw invalid(number, `nothing may follow "${word}"`);
        this.#section = word === "everyone" ? this.#everyone : this.#anonymous;
        return;
      case "topic":
      case "pattern":
        this.#readRule(word, rest, number);
        return;
      default:
        throw invalid(number, "expected topic, pattern, user, client, everyone or anonymous");
    }
  }

  #readRule(word: "topic" | "pattern", rest: string, number: number): void {
    const grant = grantOf(rest, number);
    this.#count++;
    if (this.#count > rulesMax) throw invalid(number, `more than ${rulesMax} rules`);
    if (word === "pattern" && hasPlaceholder(grant)) {
      this.#patterns.push(grant);
      return;
    }
    // Without placeholders it is the same for all; in `topic` lines "%c" is a text like any other.
    const rule = resolveLiteral(grant);
    (word === "pattern" ? this.#everyone : this.#section).push(rule);
  }

  set(): RuleSet {
    return {
      everyone: this.#everyone,
      anonymous: this.#anonymous,
      users: this.#users,
      clients: this.#clients,
      patterns: this.#patterns,
    };
  }
}

const accesses: Readonly<Record<string, Omit<Grant, "filter">>> = {
  read: { effect: "allow", access: "read" },
  write: { effect: "allow", access: "write" },
  readwrite: { effect: "allow", access: "both" },
  deny: { effect: "deny", access: "both" },
};

function grantOf(rest: string, number: number): Grant {
  const [word = ""] = rest.split(/\s/, 1);
  const access = Object.hasOwn(accesses, word) ? accesses[word] : undefined;
  const filter = access === undefined ? rest : rest.slice(word.length).trim();
  const fault = filter === "" ? "a topic filter is missing" : ruleFilterFault(filter);
  if (fault !== undefined) throw invalid(number, `${JSON.stringify(filter)}: ${fault}`);
  return { ...(access ?? { effect: "allow", access: "both" }), filter };
}

function resolveLiteral(grant: Grant): Rule {
  // Substituting "%c" for itself leaves the text as it stands.
  const rule = resolveGrant(grant, { clientId: "%c", user: "%u" });
  return rule as Rule;
}

function listOf(map: Map<string, Rule[]>, name: string): Rule[] {
  const known = map.get(name);
  if (known !== undefined) return known;
  const list: Rule[] = [];
  map.set(name, list);
  return list;
}

function invalid(line: number, reason: string): Error {
  const at = line === 0 ? "" : `line ${line}: `;
  return brokerErrors.rulesInvalid({ what: "rule file", line, reason: `${at}${reason}` });
}
