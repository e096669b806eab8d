// Rules on what a source file may say: sans-IO cores, globals that only a few files may touch,
// sizes, headers, declarations that the house does not use, tests that do not run.

import * as house from "./house.ts";
import { isMark, type Token } from "./scan.ts";
import { codeIn, type Fault, type FileTree, importsOf, scanOf } from "./tree.ts";

const timers = ["setTimeout", "setInterval", "setImmediate", "queueMicrotask"];
const randomNames = ["randomBytes", "randomUUID", "randomInt", "randomFillSync", "getRandomValues"];
const processModules = /^node:(process|timers|timers\/promises|console|perf_hooks)$/;

/** core/ is synchronous and pure: bytes, ticks and drawn numbers in, effects out. */
export function coreRule(tree: FileTree): Fault[] {
  const faults: Fault[] = [];
  for (const path of codeIn(tree, "src").filter((path) => path.includes("/core/"))) {
    const report = (line: number, message: string) =>
      faults.push({ rule: "core", path, line, message: `${message} in a core/ folder` });
    for (const { specifier, line } of importsOf(tree, path)) {
      if (!specifier.startsWith(".")) report(line, `import of ${specifier}`);
    }
    const { tokens } = scanOf(tree, path);
    tokens.forEach((token, index) => {
      const said = impureAt(tokens, index) ?? processUseAt(tokens, index);
      if (said !== undefined) report(token.line, said);
    });
  }
  return faults;
}

const asyncWords = new Set(["async", "await", "Promise"]);
const realThings = new Set(["systemClock", "systemRandom", "sleep", "Date", "performance"]);

function impureAt(tokens: readonly Token[], index: number): string | undefined {
  const token = tokens[index] as Token;
  if (token.kind !== "name" || isMark(tokens[index - 1], ".")) return undefined;
  if (isMark(tokens[index + 1], ":")) return undefined;
  return asyncWords.has(token.text) || realThings.has(token.text) ? token.text : undefined;
}

/** Clock, randomness, process and console are reached only by the few files that house.ts lists. */
export function globalsRule(tree: FileTree): Fault[] {
  const faults: Fault[] = [];
  for (const path of codeIn(tree, "src")) {
    if (house.mayTouchProcess.some((pattern) => pattern.test(path))) continue;
    for (const { specifier, line } of importsOf(tree, path)) {
      if (!processModules.test(specifier)) continue;
      faults.push({ rule: "globals", path, line, message: `import of ${specifier}` });
    }
    const { tokens } = scanOf(tree, path);
    tokens.forEach((token, index) => {
      const said = processUseAt(tokens, index);
      const message = `${said}: take a Clock, Random or Logger as a parameter`;
      if (said !== undefined) faults.push({ rule: "globals", path, line: token.line, message });
    });
  }
  return faults;
}

/** The name of the global that is used at this token, if any. */
export function processUseAt(tokens: readonly Token[], index: number): string | undefined {
  const token = tokens[index] as Token;
  const before = tokens[index - 1];
  const next = tokens[index + 1];
  if (token.kind !== "name" || isMark(before, ".")) return undefined;
  const { text } = token;
  // A key, a parameter or a field of that name is not the global.
  if (isMark(next, ":") && !isMark(before, "?")) return undefined;
  if (timers.includes(text) || randomNames.includes(text) || text === "globalThis") return text;
  const member = isMark(next, ".") || (isMark(next, "?") && isMark(tokens[index + 2], "."));
  const property = tokens[index + (isMark(next, "?") ? 3 : 2)]?.text;
  const read = member || isMark(next, "[") || (isMark(before, "=") && !isParameter(tokens, text));
  if ((text === "process" || text === "console") && read) return text;
  if (text === "Date" && member && property === "now") return "Date.now";
  if (text === "Math" && member && property === "random") return "Math.random";
  if (text === "performance" && member) return "performance";
  const noArguments = isMark(next, "(") && isMark(tokens[index + 2], ")");
  if (text === "Date" && (noArguments || (before?.text === "new" && !isMark(next, "(")))) {
    return "new Date()";
  }
  return undefined;
}

/** Whether the file declares a parameter of that name, so that reading it is not the global. */
function isParameter(tokens: readonly Token[], name: string): boolean {
  return tokens.some((token, index) => {
    const before = tokens[index - 1];
    const opens = isMark(before, "(") || isMark(before, ",") || before?.text === "readonly";
    return token.kind === "name" && token.text === name && opens && isMark(tokens[index + 1], ":");
  });
}

/** Tests that claim simulated time do not sleep and do not draw from the system. */
export function testTimeRule(tree: FileTree): Fault[] {
  const faults: Fault[] = [];
  const banned = new Set(["setTimeout", "setInterval", "Date.now", "Math.random", "new Date()"]);
  for (const path of codeIn(tree, "test")) {
    if (house.testsOnRealTime.some((pattern) => pattern.test(path))) continue;
    const { tokens } = scanOf(tree, path);
    tokens.forEach((token, index) => {
      const said = processUseAt(tokens, index);
      if (said === undefined || !banned.has(said)) return;
      const message = `${said} in a test on simulated time`;
      faults.push({ rule: "test-time", path, line: token.line, message });
    });
  }
  return faults;
}

export function sizesRule(tree: FileTree): Fault[] {
  const faults: Fault[] = [];
  for (const path of ["src", "test", "scripts"].flatMap((folder) => codeIn(tree, folder))) {
    const lines = (tree.get(path) ?? "").replace(/\n$/, "").split("\n");
    if (lines.length > house.fileLinesMax) {
      const message = `${lines.length} lines; the limit is ${house.fileLinesMax}`;
      faults.push({ rule: "sizes", path, line: house.fileLinesMax + 1, message });
    }
    if (!path.startsWith("src/")) continue;
    lines.forEach((text, index) => {
      // The formatter breaks code, and leaves whole the strings that it must; comments are nobody's.
      if (text.length <= house.lineColumnsMax || !/^\s*(\/\/|\/?\*)/.test(text)) return;
      const message = `${text.length} columns; the limit is ${house.lineColumnsMax}`;
      faults.push({ rule: "sizes", path, line: index + 1, message });
    });
  }
  return faults;
}

/** A file opens with what it is. A face of re-exports says it in one line. */
export function headersRule(tree: FileTree): Fault[] {
  const faults: Fault[] = [];
  for (const path of ["src", "test", "scripts"].flatMap((folder) => codeIn(tree, folder))) {
    const text = (tree.get(path) ?? "").replace(/^#!.*\n/, "").replace(/^\n+/, "");
    const lines = headerLines(text);
    // A test's names are its header.
    const least = path.endsWith(".test.ts") ? 0 : 1;
    if (lines < least) {
      const message = "opens without a comment that says what the file is";
      faults.push({ rule: "headers", path, line: 1, message });
    } else if (lines > house.headerLinesMax) {
      const message = `a header of ${lines} lines is a page of docs/`;
      faults.push({ rule: "headers", path, line: 1, message });
    }
  }
  return faults;
}

function headerLines(text: string): number {
  if (text.startsWith("/*")) return text.slice(0, text.indexOf("*/")).split("\n").length;
  const lines = text.split("\n");
  const end = lines.findIndex((line) => !line.startsWith("//"));
  return end < 0 ? lines.length : end;
}

/** No default exports, no enums, no namespaces. Tool files that must have a default are not in src. */
export function declarationsRule(tree: FileTree): Fault[] {
  const faults: Fault[] = [];
  for (const path of ["src", "test", "scripts"].flatMap((folder) => codeIn(tree, folder))) {
    const { tokens } = scanOf(tree, path);
    tokens.forEach((token, index) => {
      if (token.kind !== "name" || isMark(tokens[index - 1], ".")) return;
      const next = tokens[index + 1];
      const named = next?.kind === "name" && isMark(tokens[index + 2], "{");
      const found =
        (token.text === "export" && next?.text === "default" && "default export") ||
        (token.text === "enum" && named && "enum") ||
        (token.text === "namespace" && named && "namespace");
      if (!found) return;
      faults.push({ rule: "declarations", path, line: token.line, message: `${found} found` });
    });
  }
  return faults;
}

const testWords = new Set(["test", "it", "describe", "suite", "bench"]);
const restWords = new Set(["skip", "only", "todo", "skipIf", "runIf", "fails"]);
const crossedOut = new Set(["xit", "xtest", "xdescribe", "fit", "fdescribe"]);
const contextWords = new Set(["context", "ctx", "t", "task"]);

/** Every test that is written runs: no skip, only, todo in any spelling. */
export function skippedRule(tree: FileTree): Fault[] {
  const faults: Fault[] = [];
  for (const path of codeIn(tree, "test")) {
    const { tokens } = scanOf(tree, path);
    tokens.forEach((token, index) => {
      const said = restingAt(tokens, index);
      if (said === undefined) return;
      const message = `${said} keeps a test from running`;
      faults.push({ rule: "skipped", path, line: token.line, message });
    });
  }
  return faults;
}

function restingAt(tokens: readonly Token[], index: number): string | undefined {
  const token = tokens[index] as Token;
  const next = tokens[index + 1];
  if (token.kind !== "name") return undefined;
  if (crossedOut.has(token.text) && isMark(next, "(")) return token.text;
  if (!restWords.has(token.text)) return undefined;
  const value = tokens[index + 2];
  if (isMark(next, ":") && value?.text === "true" && token.text !== "fails") return token.text;
  if (!isMark(tokens[index - 1], ".")) return undefined;
  let root = index;
  while (isMark(tokens[root - 1], ".") && tokens[root - 2]?.kind === "name") root -= 2;
  const rootText = (tokens[root] as Token).text;
  const called = isMark(next, "(");
  if (testWords.has(rootText)) return `${rootText}.${token.text}`;
  if (token.text === "skip" && called && contextWords.has(rootText)) return `${rootText}.skip`;
  return undefined;
}

/** Unfinished work has an issue, not a comment. */
export function markersRule(tree: FileTree): Fault[] {
  const faults: Fault[] = [];
  const marker = new RegExp(`\\b(${["TO" + "DO", "FIX" + "ME", "XX" + "X"].join("|")})\\b`);
  for (const path of ["src", "test", "scripts"].flatMap((folder) => codeIn(tree, folder))) {
    for (const comment of scanOf(tree, path).comments) {
      const found = marker.exec(comment.text)?.[1];
      if (found === undefined) continue;
      faults.push({ rule: "markers", path, line: comment.line, message: `${found} in a comment` });
    }
  }
  return faults;
}
