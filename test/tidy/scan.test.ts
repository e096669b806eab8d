import { describe, expect, test } from "vitest";
import { listImports, scan } from "./scan.ts";

// "~{" stands for the opening of a substitution, which a plain string should not hold.
const opened = (text: string): string => text.replaceAll("~", "$");
const names = (text: string): string[] =>
  scan(opened(text))
    .tokens.filter((token) => token.kind === "name")
    .map((token) => token.text);
const specifiers = (text: string): string[] =>
  listImports(scan(text).tokens).map((found) => found.specifier);

describe("the lexer", () => {
  test("does not take the inside of comments and strings for code", () => {
    expect(names("// process.exit\n/* Date.now */ a; 'process'; \"console\"; b;")).toEqual([
      "a",
      "b",
    ]);
  });

  test("reads code inside a template's substitution, but not its text", () => {
    expect(names("`process ~{a + `inner ~{b}` + c} console` + d")).toEqual(["a", "b", "c", "d"]);
  });

  test("braces inside a substitution do not end it", () => {
    expect(names("`~{{ a: 1 }.a} text ~{b}`; c")).toEqual(["a", "a", "b", "c"]);
  });

  test("tells a regular expression from a division", () => {
    expect(names("const r = /process[/]'x/g; a / b / c")).toEqual(["const", "r", "a", "b", "c"]);
    expect(names("return /it's/.test(x)")).toEqual(["return", "test", "x"]);
    expect(names("(a) / b; '/'; c")).toEqual(["a", "b", "c"]);
    expect(names("`a` / b / c")).toEqual(["b", "c"]);
  });

  test("an escaped quote does not end a string", () => {
    expect(names("'it\\'s process'; a")).toEqual(["a"]);
  });

  test("counts lines through templates and block comments", () => {
    const { tokens } = scan(opened("/* 1\n2 */ `3\n~{a}\n` + b"));
    const lineOf = (text: string) => tokens.find((token) => token.text === text)?.line;
    expect(lineOf("a")).toBe(3);
    expect(lineOf("b")).toBe(4);
  });

  test("ends on text that stops in the middle of anything", () => {
    for (const text of ["`~{", "`a", "/* a", "'a", "/a[", "a ~{ b", "\\"]) scan(opened(text));
  });
});

describe("the list of imports", () => {
  test("holds every form that loads another module", () => {
    const text = `
      import "./a.ts";
      import b from "./b.ts";
      import { c, type d as e } from "./c.ts";
      import type { F } from './f.ts';
      import * as g from "./g.ts";
      export * from "./h.ts";
      export { i } from "./i.ts";
      export type { J } from "./j.ts";
      const k = await import("./k.ts");
      type L = import("./l.ts").L;
      const m = require("./m.ts");
    `;
    expect(specifiers(text).map((path) => path[2])).toEqual([..."abcfghijklm"]);
  });

  test("holds nothing that only looks like one", () => {
    const text = `
      // import x from "./a.ts";
      const s = 'import x from "./b.ts"';
      export const from = "./c.ts";
      export function f() { return from; }
      export type T = { from: "./d.ts" };
      import.meta.url;
      loader.import("./e.ts");
      const t = \`import "./f.ts"\`;
    `;
    expect(specifiers(text)).toEqual([]);
  });

  test("an export list without a source does not swallow the next import", () => {
    expect(specifiers('export { a };\nimport b from "./b.ts";')).toEqual(["./b.ts"]);
  });
});
