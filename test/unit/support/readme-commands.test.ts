import { tmpdir } from "node:os";
import { describe, expect, test } from "vitest";
import { matchesOutput, parseDocument, runDocument } from "../../support/readme-commands.ts";

const block = (marker: string, ...lines: string[]): string =>
  ["Text.", marker, "```console", ...lines, "```", ""].join("\n");
const run = (text: string) => runDocument(text, { cwd: tmpdir(), withinMs: 3000 });

describe("a document", () => {
  test("gives the commands of marked blocks with their output, and no others", () => {
    const text = `${block("<!-- run -->", "$ echo a", "a", "$ true")}\n${block("", "$ rm x")}`;
    expect(parseDocument(text)).toEqual([
      { line: 4, mode: "foreground", command: "echo a", output: ["a"] },
      { line: 6, mode: "foreground", command: "true", output: [] },
    ]);
  });

  test("may break a command over lines", () => {
    const [only] = parseDocument(block("<!-- run -->", "$ echo a \\", "  b", "a b"));
    expect(only).toMatchObject({ command: "echo a \\\n  b", output: ["a b"] });
  });

  test.each([
    ["a marker without a block", "<!-- run -->\n\n```console\n$ true\n```\n", /must follow/],
    ["a misspelt marker", "<!-- run backgrund -->\n", /not a marker/],
    ["a block without an end", "<!-- run -->\n```console\n$ true\n", /does not end/],
    ["output before a command", block("<!-- run -->", "a"), /output before/],
    ["two commands behind", block("<!-- run background -->", "$ a", "$ b"), /2 commands/],
  ])("is refused with %s", (_what, text, said) => {
    expect(() => parseDocument(text)).toThrow(said);
  });
});

describe("output", () => {
  test.each([
    [["a", "b"], "a\nb\n", true],
    [["a"], "a\nb\n", false],
    [["a", "b"], "a\n", false],
    [["took ... ms."], "took 12.5 ms.\n", true],
    [["took ... ms."], "took 12.5 msx\n", false],
    [["a", "...", "c"], "a\nb\nb\nc\n", true],
    [["a", "..."], "a\n", true],
    [["a", "...", "c"], "a\nb\n", false],
    [[], "", true],
    [[], "a\n", false],
  ])("%j against %j: %s", (shown, printed, same) => {
    expect(matchesOutput(shown, printed)).toBe(same);
  });
});

describe("a tour", () => {
  test("passes when everything prints what is shown", async () => {
    const text =
      block("<!-- run background -->", "$ echo up; exec sleep 60", "up") +
      block("<!-- run -->", "$ echo one; echo two >&2", "...", "$ echo $((1 + 1))", "2");
    expect(await run(text)).toBe(3);
  });

  test("fails with the line, what is shown and what was printed", async () => {
    const failing = run(block("<!-- run -->", "$ echo b", "a"));
    const said = /line 4: printed something else\n\$ echo b\n--- shown\na\n--- printed\nb/;
    await expect(failing).rejects.toThrow(said);
  });

  test("fails when a command does, although its output is right", async () => {
    const failing = run(block("<!-- run -->", "$ echo a; exit 3", "a"));
    await expect(failing).rejects.toThrow("exit code 3");
  });

  test("fails when what should go on ends", async () => {
    const failing = run(block("<!-- run background -->", "$ echo no", "up"));
    await expect(failing).rejects.toThrow("ended with exit code 0");
  });

  test("can be moved to another port", async () => {
    const text = block("<!-- run -->", "$ echo port 1883", "port 1883");
    const replace = (said: string) => said.replaceAll("1883", "2000");
    expect(await runDocument(text, { cwd: tmpdir(), replace })).toBe(1);
  });
});
