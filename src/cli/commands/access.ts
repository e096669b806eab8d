// `flagstone keys`, `audit`, `reload` and `context`: who may ask a node, who changed what, and
// which node is asked.

import type { AnswerOf } from "../../admin/client.ts";
import { argument, askCommand, pageOptions, pages, pageTable } from "../admin/ask.ts";
import { formatOf, outputOption, printed, tableOf } from "../admin/output.ts";
import { checkUrl, readContexts, writeContexts } from "../admin/target.ts";
import type { Command, CommandFamily } from "../command.ts";
import { cliErrors } from "../errors.ts";
import { exitCodes } from "../exit-codes.ts";

const day = (ms: number): string => new Date(ms).toISOString().slice(0, 19).replace("T", " ");

// ---------------------------------------------------------------- keys

const listKeys = askCommand({
  name: "list",
  summary: "API keys, without their secrets",
  examples: ["keys", "keys -o json"],
  show: async ({ admin }) => {
    const value = await admin.listKeys();
    const table = (): string =>
      tableOf(value.items, [
        { head: "ID", cell: (row) => row.id },
        { head: "NAME", cell: (row) => row.name },
        { head: "ROLE", cell: (row) => row.role },
        { head: "MADE", cell: (row) => `${day(row.createdMs)}Z` },
      ]);
    return { value, table };
  },
});

const createKey = askCommand({
  name: "create",
  summary: "make an API key; its secret is printed once",
  arguments: [{ name: "[name]", doc: "what it is for" }],
  options: [
    {
      flags: "--role <role>",
      doc: "what it may do",
      fallback: "viewer",
      choices: ["viewer", "operator", "admin"],
    },
  ],
  examples: ["keys create grafana", "keys create oncall --role operator"],
  show: async (input) => {
    const name = argument(input, 0, "the name");
    const role = (input.options.text("role") ?? "viewer") as "viewer";
    const value = await input.admin.createKey({ body: { name, role } });
    return { value, table: () => `${value.secret}\n` };
  },
});

const deleteKey = askCommand({
  name: "delete",
  summary: "revoke an API key, at once",
  arguments: [{ name: "[id]", doc: "its id" }],
  examples: ["keys delete 1a2b3c4d", "keys delete 1a2b3c4d -o json"],
  show: async (input) => {
    const key = argument(input, 0, "the id");
    const value = await input.admin.deleteKey({ params: { key } });
    return { value, table: () => `key ${key} was revoked\n` };
  },
});

export const keys: CommandFamily = {
  name: "keys",
  summary: "API keys: list, create, delete",
  commands: [listKeys, createKey, deleteKey],
  hasDefault: true,
};

// ---------------------------------------------------------------- audit, reload

export const audit: Command = askCommand({
  name: "audit",
  summary: "who changed what, newest first",
  options: pageOptions,
  examples: ["audit", "audit --limit 1000 -o json"],
  show: async (input) => {
    const page = await pages(input, (query) => input.admin.listAudit({ query }));
    const table = (): string =>
      pageTable(
        page,
        [
          { head: "TIME", cell: (row) => `${day(row.timeMs)}Z` },
          { head: "KEY", cell: (row) => row.key },
          { head: "FROM", cell: (row) => row.remote },
          { head: "OPERATION", cell: (row) => row.operation },
          { head: "TARGET", cell: (row) => row.target || undefined },
          { head: "STATUS", cell: (row) => row.status, isRight: true },
          { head: "CODE", cell: (row) => row.code },
        ],
        "changes",
      );
    return { value: page, table };
  },
});

export const reload: Command = askCommand({
  name: "reload",
  summary: "let a node read its configuration again, all or nothing",
  options: [{ flags: "--dry-run", doc: "only show what would change" }],
  examples: ["reload --dry-run", "reload"],
  show: async (input) => {
    const dryRun = input.options.isOn("dryRun");
    const value = await input.admin.reloadConfig({ body: { dryRun } });
    return { value, table: () => changesText(value) };
  },
});

function changesText({ changes, dryRun }: AnswerOf<"reloadConfig">): string {
  if (changes.length === 0) return "nothing has changed\n";
  const table = tableOf(changes, [
    { head: "KEY", cell: (row) => row.path },
    { head: "FROM", cell: (row) => row.from },
    { head: "TO", cell: (row) => row.to },
    { head: "TAKES HOLD", cell: (row) => (row.reload === "hot" ? "now" : "at the next start") },
  ]);
  return dryRun ? `${table}nothing was changed (--dry-run)\n` : table;
}

// ---------------------------------------------------------------- contexts

const listContexts: Command = {
  name: "list",
  summary: "saved contexts; their keys are not shown",
  options: [outputOption],
  examples: ["context", "context list -o json"],
  run: async (input) => {
    const { current, contexts } = readContexts(input.io);
    const rows = Object.entries(contexts).map(([name, { url, key }]) => ({
      name,
      url,
      hasKey: key !== undefined,
      isCurrent: name === current,
    }));
    const table = (): string =>
      rows.length === 0
        ? "no contexts\n"
        : tableOf(rows, [
            { head: "", cell: (row) => (row.isCurrent ? "*" : "") },
            { head: "CONTEXT", cell: (row) => row.name },
            { head: "URL", cell: (row) => row.url },
            { head: "KEY", cell: (row) => row.hasKey },
          ]);
    input.io.out(printed(formatOf(input), rows, table));
    return exitCodes.ok;
  },
};

const addContext: Command = {
  name: "add",
  summary: "save a context; the first one is in use at once",
  arguments: [{ name: "[name]", doc: "its name" }],
  options: [
    { flags: "--url <url>", doc: "the node's HTTP address" },
    { flags: "--key <key>", doc: "API key (FLAGSTONE_KEY)" },
  ],
  examples: [
    "context add here --url http://127.0.0.1:18083 --key fs_...",
    "context add plant --url https://broker.example.org",
  ],
  run: async (input) => {
    const name = argument(input, 0, "the name");
    if (!/^[A-Za-z0-9_.-]{1,64}$/.test(name)) {
      throw cliErrors.usage({ reason: "a name has 1 to 64 letters, digits, ., _ and -" });
    }
    const url = checkUrl(input.options.needed("url", "--url"));
    const key = input.options.text("key") ?? input.io.environment.FLAGSTONE_KEY;
    const { current, contexts } = readContexts(input.io);
    const context = key === undefined ? { url } : { url, key };
    writeContexts(input.io, {
      current: current ?? name,
      contexts: { ...contexts, [name]: context },
    });
    input.io.out(`context ${name} was saved\n`);
    return exitCodes.ok;
  },
};

const useContext: Command = {
  name: "use",
  summary: "choose the context that commands use",
  arguments: [{ name: "[name]", doc: "its name" }],
  options: [],
  examples: ["context use plant", "context use here"],
  run: async (input) => {
    const name = argument(input, 0, "the name");
    const { contexts } = readContexts(input.io);
    if (!Object.hasOwn(contexts, name)) {
      throw cliErrors.usage({ reason: `there is no context "${name}"` });
    }
    writeContexts(input.io, { current: name, contexts });
    input.io.out(`commands ask ${contexts[name]?.url} now\n`);
    return exitCodes.ok;
  },
};

const removeContext: Command = {
  name: "remove",
  summary: "forget a context and its key",
  arguments: [{ name: "[name]", doc: "its name" }],
  options: [],
  examples: ["context remove plant", "context remove here"],
  run: async (input) => {
    const name = argument(input, 0, "the name");
    const { current, contexts } = readContexts(input.io);
    const { [name]: gone, ...rest } = contexts;
    if (gone === undefined) throw cliErrors.usage({ reason: `there is no context "${name}"` });
    writeContexts(input.io, { current: current === name ? undefined : current, contexts: rest });
    input.io.out(`context ${name} was forgotten\n`);
    return exitCodes.ok;
  },
};

export const context: CommandFamily = {
  name: "context",
  summary: "saved addresses and keys of nodes: list, add, use, remove",
  commands: [listContexts, addContext, useContext, removeContext],
  hasDefault: true,
};
