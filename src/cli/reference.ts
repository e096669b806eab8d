// docs/reference/cli.md, errors.md, http.md and metrics.md out of the tables that the code reads.

import { apiPrefix, operationNames, operations } from "../admin/index.ts";
import type { Command, CommandFamily } from "./command.ts";
import { commandRows } from "./commands/rows.ts";
import { errorRows, kindHelp } from "./error-tables.ts";
import { exitCodeHelp, exitCodes } from "./exit-codes.ts";

const made = "<!-- Made by `npm run docs`; do not edit by hand. -->";

export async function cliReference(): Promise<string> {
  const parts = [
    "# Command line",
    made,
    "`flagstone COMMAND --help` prints the same offline. In a clone the program is\n" +
      "`node dist/cli/main.js`. Short flags are Mosquitto's, so `-h` is a host and help is `--help`.",
  ];
  for (const row of commandRows) parts.push(...commandParts(await row.load(), ""));
  parts.push("## Exit codes", exitTable());
  return `${parts.join("\n\n")}\n`;
}

function commandParts(command: Command | CommandFamily, prefix: string): string[] {
  const name = `${prefix}${command.name}`;
  if ("commands" in command) {
    return command.commands.flatMap((inner) => commandParts(inner, `${name} `));
  }
  const names = (command.arguments ?? []).map((argument) => ` ${argument.name}`).join("");
  const rows = command.options.map((option) => {
    const fallback = option.fallback === undefined ? "" : `\`${option.fallback}\``;
    const choices = option.choices === undefined ? "" : ` (${option.choices.join(", ")})`;
    return `| \`${option.flags.replaceAll("|", "\\|")}\` | ${fallback} | ${option.doc}${choices} |`;
  });
  const table = ["| flag | default | meaning |", "|---|---|---|", ...rows].join("\n");
  const examples = command.examples.map((line) => `flagstone ${line}`).join("\n");
  return [
    `## ${name}`,
    `\`flagstone ${name}${names}\`: ${command.summary}.`,
    ...(rows.length === 0 ? [] : [table]),
    `\`\`\`sh\n${examples}\n\`\`\``,
  ];
}

function exitTable(): string {
  const rows = Object.entries(exitCodes).map(([name, code]) => {
    return `| ${code} | ${exitCodeHelp[name as keyof typeof exitCodes]} |`;
  });
  return ["| code | meaning |", "|---|---|", ...rows].join("\n");
}

export function errorReference(): string {
  const rows = errorRows().map((row) => {
    return `### ${row.code}\n\n*${row.kind}*: ${row.message}\n\n${row.help}`;
  });
  const kinds = Object.entries(kindHelp).map(([kind, help]) => `- **${kind}**: ${help}`);
  const intro =
    "Every error carries a stable code and a kind that says what can be done about it.\n" +
    "`flagstone explain CODE` prints the same offline.";
  return `${["# Errors", made, intro, kinds.join("\n"), "## Codes", ...rows].join("\n\n")}\n`;
}

/** docs/reference/http.md out of the contract. */
export function httpReference(): string {
  const tags = [...new Set(operationNames.map((name) => operations[name].tag))];
  const parts = tags.flatMap((tag) => [`## ${tag}`, operationTable(tag)]);
  return `${["# HTTP API", made, httpIntro, ...parts].join("\n\n")}\n`;
}

const httpIntro = `A node has it with \`--admin-port PORT\` (\`admin.enabled\`). Everything lies below \`${apiPrefix}\` and wants
\`Authorization: Bearer KEY\`; \`${apiPrefix}/openapi.json\` says the same as this page for programs, with every
parameter, body and answer. The typed client is \`flagstone/admin\`; the command line asks the same.

- **Roles**: a *viewer* looks and sees no payloads, an *operator* sees them, ends and purges, an *admin*
  does everything. \`flagstone keys\` makes and revokes keys. Every change is in the audit log.
- **Lists** take \`limit\` (at most 1,000, default 100) and \`after\`, the \`next\` of the page before; \`total\` counts
  all pages where that can be known without reading them.
- **Failures** are \`application/problem+json\` with \`code\`, \`kind\`, \`detail\` and \`help\`
  ([errors](errors.md)): 400 what was asked is wrong, 401 and 403 the key, 404 there is no such thing, 409
  in conflict, 413 too large, 429 a limit, 501 not here, 503 not now, 507 no room.
- **Other pages** of the web cannot reach it: requests with a foreign \`Origin\`, or by a host name that is
  not in \`admin.hosts\`, are refused.
- **Without a key**: \`/livez\`, \`/readyz\` (\`?verbose\` names the checks), \`/startupz\` and, unless
  \`admin.openMetrics\` is off, \`/metrics\` ([metrics](metrics.md)).
- **Events**: \`${apiPrefix}/events\` is a stream of server-sent events: \`status\` each second, \`alarms\` and \`tasks\` when
  they change.`;

function operationTable(tag: string): string {
  const rows = operationNames
    .filter((name) => operations[name].tag === tag)
    .map((name) => {
      const { method, path, role, summary } = operations[name];
      return `| \`${method.toUpperCase()} ${path}\` | ${role} | \`${name}\` | ${summary} |`;
    });
  return ["| request | role | client | what |", "|---|---|---|---|", ...rows].join("\n");
}

/** docs/reference/metrics.md out of one answer of `/metrics`. */
export function metricsReference(text: string): string {
  const labels = new Map<string, Set<string>>();
  for (const [, name = "", list = ""] of text.matchAll(/^(\w+)\{([^}]*)\}/gm)) {
    const family = name.replace(/_(bucket|sum|count)$/, "");
    const known = labels.get(family) ?? new Set();
    for (const [, label = ""] of list.matchAll(/(\w+)="/g)) if (label !== "le") known.add(label);
    labels.set(family, known);
  }
  const rows = [...text.matchAll(/^# HELP (\w+) (.*)\n# TYPE \w+ (\w+)$/gm)].map(
    ([, name = "", help = "", type = ""]) => {
      const found = [...(labels.get(name) ?? [])].map((label) => `\`${label}\``).join(", ");
      return `| \`${name}\` | ${type} | ${found} | ${help} |`;
    },
  );
  const table = ["| metric | type | labels | meaning |", "|---|---|---|---|", ...rows.sort()];
  return `${["# Metrics", made, metricsIntro, table.join("\n")].join("\n\n")}\n`;
}

const metricsIntro =
  "What `/metrics` of a node answers, in the text format of Prometheus. No label holds a client id, a\n" +
  "topic or an address. `config/grafana-dashboard.json` draws the most important ones,\n" +
  "`config/prometheus-alerts.yaml` has rules for them.";
