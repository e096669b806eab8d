// `flagstone acl`: `check` looks at a rule file without a node, and asks it what somebody may do;
// `show` and `apply` are about the rules in a node's store.

import { readFileSync } from "node:fs";
import { toError } from "../../base/index.ts";
import type { AccessAction } from "../../broker/access.ts";
import { RuleAccess } from "../../broker/acl/rule-access.ts";
import { parseRuleFile } from "../../broker/acl/rule-file.ts";
import { argument, askCommand } from "../admin/ask.ts";
import type { Command, CommandFamily } from "../command.ts";
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
    access.setRules("rule_file", parseRuleFile(readRules(input.arguments)));
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

const show = askCommand({
  name: "show",
  summary: "the rules in a node's store, as a rule file has them",
  examples: ["acl show > rules.acl", "acl show -o json"],
  show: async ({ admin }) => {
    const value = await admin.getRules();
    return { value, table: () => value.text || "# no rules\n" };
  },
});

const apply = askCommand({
  name: "apply",
  summary: "replace the rules in a node's store by a rule file, all or nothing",
  arguments: [{ name: "[file]", doc: "rule file" }],
  options: [{ flags: "--dry-run", doc: "only let the node check them" }],
  examples: ["acl apply rules.acl --dry-run", "acl apply rules.acl"],
  show: async (input) => {
    const text = readRules([argument(input, 0, "the rule file")]);
    const dryRun = input.options.isOn("dryRun");
    const value = await input.admin.putRules({ body: { text, dryRun } });
    const did = dryRun ? "the rules are good; nothing was changed" : "the rules hold now";
    return { value, table: () => `${did}\n` };
  },
});

export const acl: CommandFamily = {
  name: "acl",
  summary: "check a rule file, show and replace the rules of a node",
  commands: [check, show, apply],
};

function readRules([path = ""]: readonly string[]): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw cliErrors.unreadableFile({ path, reason: toError(error).message }, error);
  }
}
