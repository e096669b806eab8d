// docs/reference/cli.md and errors.md out of the commands and the error tables.

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
