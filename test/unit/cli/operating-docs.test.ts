// The pages for operators: each claim names a test that there is, each command has the flags it is given.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { Command } from "../../../src/cli/command.ts";
import { commandRows } from "../../../src/cli/commands/rows.ts";

const root = new URL("../../../", import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, root), "utf8");
const pages = readdirSync(new URL("docs/operating/", root)).map((name) => `docs/operating/${name}`);

const claims = [
  ...read("docs/operating/claims.md").matchAll(/^\| (.+) \| `(test\/\S+)`: (.+) \|$/gm),
];

test("every row of claims is of one form", () => {
  const rows = read("docs/operating/claims.md")
    .split("\n")
    .filter((line) => line.startsWith("| "));
  expect(claims.length).toBe(rows.length - 1);
  expect(claims.length).toBeGreaterThan(40);
});

test.each(claims.map(([, claim, file, name]) => [claim, file, name]))(
  "%s",
  (_claim, file, name) => {
    expect(existsSync(new URL(file as string, root)), file).toBe(true);
    expect(read(file as string)).toContain(name);
  },
);

/** Lines of shell blocks that call the command, quotes taken off, cut at pipes and redirections. */
function commandsOf(page: string): string[][] {
  const blocks = [...read(page).matchAll(/^```(?:sh|console)\n([\s\S]*?)^```/gm)];
  const lines = blocks.flatMap(([, block = ""]) => block.replaceAll("\\\n", " ").split("\n"));
  return lines.flatMap((line) => {
    const called = /(?:^|[|$] ?)flagstone ([^|<>#]*)/.exec(line)?.[1];
    if (called === undefined) return [];
    return [[...called.matchAll(/'([^']*)'|(\S+)/g)].map(([, one, other]) => one ?? other ?? "")];
  });
}

async function commandOf([name = "", second = ""]: readonly string[]): Promise<Command> {
  const row = commandRows.find((each) => each.name === name);
  expect(row, `flagstone ${name}`).toBeDefined();
  const loaded = await (row as (typeof commandRows)[number]).load();
  if (!("commands" in loaded)) return loaded;
  const inner = loaded.commands.find((each) => each.name === second);
  if (inner !== undefined) return inner;
  expect(loaded.hasDefault, `flagstone ${name} ${second}`).toBe(true);
  return loaded.commands[0];
}

test.each(pages)("commands of %s are there, with the flags that they are given", async (page) => {
  for (const words of commandsOf(page)) {
    const { options } = await commandOf(words);
    const known = options.flatMap(({ flags }) => flags.match(/(?<!\w)--?[a-zA-Z][\w-]*/g) ?? []);
    for (const word of words.filter((each) => /^--?[a-zA-Z]/.test(each))) {
      expect(known, `flagstone ${words.join(" ")}`).toContain(word.replace(/=.*/, ""));
    }
  }
});
