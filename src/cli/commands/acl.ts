// `flagstone acl check`: a rule file looked at without a node, and asked what somebody may do.

import { readFileSync } from "node:fs";
import { toError } from "../../base/index.ts";
import type { AccessAction } from "../../broker/access.ts";
import { RuleAccess } from "../../broker/acl/rule-access.ts";
import { parseRuleFile } from "../../broker/acl/rule-file.ts";
import type { Command, CommandFamily, CommandInput } from "../command.ts";
import { cliErrors } from "../errors.ts";
import { exitCodes } from "../exit-codes.ts";

const actions: Readonly<Record<string, AccessAction>> = {
  publish: "publish",
  subscribe: "subscribe",
  receive: "receive",
};

const check: Command = {
  name: "check",
  summary: "check a rule file, or ask it whether somebody may do something",
  arguments: [
    { name: "<file>", doc: "rule file (authorization.ruleFile)" },
    { name: "[action]", doc: "publish, subscribe or receive" },
    { name: "[topic]", doc: "topic, or filter to subscribe" },
  ],
  options: [
    { flags: "--user <name>", doc: "as this user; left out: anonymous" },
    { flags: "--client <id>", doc: "with this client id", fallback: "any" },
  ],
  examples: [
    "acl check rules.acl",
    "acl check rules.acl publish home/alice/light --user alice --client phone",
  ],
  run: async (input) => {
    const access = new RuleAccess({ hasLoginRights: false });
    access.setRules("rule_file", parseRuleFile(readRules(input)));
    const [, actionText, topic] = input.arguments;
    if (actionText === undefined) {
      input.io.out("the rule file is good\n");
      return exitCodes.ok;
    }
    const action = Object.hasOwn(actions, actionText) ? actions[actionText] : undefined;
    if (action === undefined || topic === undefined) {
      throw cliErrors.usage({ reason: "expected publish, subscribe or receive, and a topic" });
    }
    const client = {
      clientId: input.options.text("client") ?? "any",
      user: input.options.text("user"),
    };
    const isAllowed = access.authorize(action, client, topic);
    input.io.out(isAllowed ? "allowed\n" : "denied\n");
    return isAllowed ? exitCodes.ok : exitCodes.failed;
  },
};

export const acl: CommandFamily = {
  name: "acl",
  summary: "check a rule file",
  commands: [check],
};

function readRules({ arguments: [path = ""] }: CommandInput): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw cliErrors.unreadableFile({ path, reason: toError(error).message }, error);
  }
}
