import { describe, expect, test } from "vitest";
import { RuleAccess } from "../../../../src/broker/acl/rule-access.ts";
import { parseRuleFile } from "../../../../src/broker/acl/rule-file.ts";
import { ClientRules, type Rule } from "../../../../src/broker/acl/rules.ts";
import type { AccessAction, Client } from "../../../../src/broker/index.ts";
import { parseTopicFilter } from "../../../../src/topic/index.ts";

const text = `# what strangers may see
topic read news/#
topic deny news/secret/#

user alice
topic readwrite home/alice/#
topic read one/+
topic write home/doorbell
topic  home/shared/%c
topic deny home/alice/safe

client meter-7
topic write meters/7

everyone
topic read $SYS/broker/version

pattern write devices/%c/up
pattern read devices/%c/down/#
pattern readwrite users/%u/#
pattern deny devices/%c/down/secret
`;

const nobody: Client = { clientId: "x", user: undefined };
const alice: Client = { clientId: "phone", user: "alice" };

function accessOf(rules = text, hasLoginRights = false): RuleAccess {
  const access = new RuleAccess({ hasLoginRights });
  access.setRules("rule_file", parseRuleFile(rules));
  return access;
}

describe("rules", () => {
  test.each<[Client, AccessAction, string, boolean]>([
    [nobody, "subscribe", "news/#", true],
    [nobody, "subscribe", "news/sport/+", true],
    [nobody, "subscribe", "news/+", true],
    [nobody, "subscribe", "#", false],
    [nobody, "subscribe", "+/sport", false],
    [nobody, "subscribe", "news/secret/x", false],
    [nobody, "receive", "news/sport", true],
    [nobody, "receive", "news/secret", false],
    [nobody, "receive", "news/secret/x", false],
    [nobody, "publish", "news/sport", false],
    [nobody, "receive", "$SYS/broker/version", true],
    [nobody, "receive", "home/alice/x", false],
    [alice, "subscribe", "news/#", false],
    [alice, "subscribe", "one/+", true],
    [alice, "subscribe", "one/x", true],
    [alice, "subscribe", "one/#", false],
    [alice, "subscribe", "one/+/+", false],
    [alice, "publish", "home/alice/light", true],
    [alice, "publish", "home/alice/safe", false],
    [alice, "subscribe", "home/alice/#", true],
    [alice, "receive", "home/alice/safe", false],
    [alice, "publish", "home/doorbell", true],
    [alice, "receive", "home/doorbell", false],
    [alice, "publish", "home/shared/%c", true],
    [alice, "publish", "home/shared/phone", false],
    [alice, "publish", "devices/phone/up", true],
    [alice, "publish", "devices/other/up", false],
    [alice, "subscribe", "devices/phone/down/#", true],
    [alice, "subscribe", "devices/+/down/#", false],
    [alice, "receive", "devices/phone/down/secret", false],
    [alice, "publish", "users/alice/x", true],
    [nobody, "publish", "users/x", false],
    [{ clientId: "meter-7", user: "bob" }, "publish", "meters/7", true],
    [{ clientId: "meter-8", user: "bob" }, "publish", "meters/7", false],
  ])("%j may %s %s: %s", (client, action, topic, expected) => {
    const access = accessOf();
    // Twice: the second answer comes from memory.
    expect(access.authorize(action, client, topic)).toBe(expected);
    expect(access.authorize(action, client, topic)).toBe(expected);
  });

  test.each(["+", "#", "a/b", "+/x", "a+", "\u0000", "dev/#"])(
    "an id or user %j stands for nothing in a rule, and is denied what others are",
    (odd) => {
      const access = accessOf(
        "pattern readwrite devices/%c/#\npattern readwrite users/%u/#\n" +
          "everyone\ntopic readwrite open/#\npattern deny open/%c\npattern deny open/dev-%c/x\n",
      );
      const client: Client = { clientId: odd, user: odd };
      for (const topic of ["devices/other/x", "devices/x", "users/other/x", `devices/${odd}/x`]) {
        expect(access.authorize("publish", client, topic)).toBe(false);
        expect(access.authorize("receive", client, topic)).toBe(false);
      }
      expect(access.authorize("subscribe", client, "devices/+/#")).toBe(false);
      expect(access.authorize("subscribe", client, "devices/#")).toBe(false);
      expect(access.authorize("publish", client, "open/anything")).toBe(false);
      expect(access.authorize("publish", client, "open/dev-1/x")).toBe(false);
      expect(access.authorize("publish", client, "open/a/b/c")).toBe(true);
    },
  );

  test("names that are regular expressions, or properties of objects, mean nothing", () => {
    const access = accessOf("user alice\ntopic readwrite #\n");
    for (const user of [".*", "alic.", "alice ", "ALICE", "__proto__", "constructor", ""]) {
      expect(access.authorize("publish", { clientId: "c", user }, "t")).toBe(false);
    }
  });

  test("what no rule allows is denied, an empty file denies everything", () => {
    expect(accessOf("").authorize("publish", alice, "t")).toBe(false);
    expect(accessOf("topic #\n").authorize("subscribe", nobody, "$SYS/#")).toBe(false);
  });

  test("new rules hold for the next question", () => {
    const access = accessOf("user alice\ntopic #\n");
    expect(access.authorize("receive", alice, "t")).toBe(true);
    access.setRules("rule_file", parseRuleFile(""));
    expect(access.authorize("receive", alice, "t")).toBe(false);
  });

  test("rights of a login count beside the rules; a denial in either beats both", () => {
    const access = accessOf("everyone\ntopic read a/#\ntopic deny a/x\n", true);
    const client: Client = {
      ...alice,
      grants: [
        { effect: "allow", access: "read", filter: "a/x" },
        { effect: "allow", access: "write", filter: "b/%c" },
        { effect: "deny", access: "both", filter: "a/y" },
      ],
    };
    expect(access.authorize("receive", client, "a/z")).toBe(true);
    expect(access.authorize("receive", client, "a/x")).toBe(false);
    expect(access.authorize("receive", client, "a/y")).toBe(false);
    expect(access.authorize("publish", client, "b/phone")).toBe(true);
    // A will when the client is gone: what denies still counts.
    expect(access.authorizeWill(alice, "b/phone")).toBe(true);
    expect(access.authorizeWill(alice, "a/x")).toBe(false);
    expect(accessOf("").authorizeWill(alice, "b/phone")).toBe(false);
  });

  test("long topics are answered and not remembered: clients would choose how much memory", () => {
    let asked = 0;
    const list = {
      length: 1,
      *[Symbol.iterator]() {
        asked++;
        yield { effect: "allow", access: "both", filter: parseTopicFilter("a/#") } as const;
      },
    };
    const rules = new ClientRules([list as unknown as readonly Rule[]]);
    for (let n = 0; n < 3; n++) expect(rules.may("publish", `a/${"x".repeat(300)}`)).toBe(true);
    expect(asked).toBe(3);
    for (let n = 0; n < 3; n++) expect(rules.may("publish", "a/b")).toBe(true);
    expect(asked).toBe(4);
  });

  test("answers are remembered in bounded number", () => {
    const access = accessOf("everyone\ntopic readwrite t/+\n");
    for (let n = 0; n < 1000; n++) {
      expect(access.authorize("publish", alice, `t/${n}`)).toBe(true);
      expect(access.authorize("publish", alice, `u/${n}`)).toBe(false);
    }
  });
});

describe("a rule file is refused whole for", () => {
  test.each([
    ["topic read a#", "line 1"],
    ["topic", "line 1"],
    ["topic read", "line 1"],
    ["topic read a\nusr alice", "line 2"],
    ["user", "line 1"],
    ["everyone else", "line 1"],
    ["allow all", "line 1"],
    ["topic read $share/g/a", "line 1"],
    ["pattern read a/%c#", "line 1"],
    ["topic read a\ntopic read b/#/c", "line 2"],
    ["\u0000\u0000\u0000", "line 1"],
  ])("%j", (broken, where) => {
    expect(() => parseRuleFile(broken)).toThrow(where);
  });
});
