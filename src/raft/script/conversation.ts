// Conversations as files: a command a line, under it, indented by two spaces, what it prints.
// `#` opens a comment line, empty lines are skipped. Each file begins with `nodes`.

import { ScriptWorld } from "./world.ts";

export type Mismatch = {
  /** Line of the command, from 1. */
  readonly line: number;
  readonly command: string;
  readonly wanted: readonly string[];
  readonly got: readonly string[];
};

export type Outcome = {
  readonly commands: number;
  readonly mismatches: readonly Mismatch[];
  /** The text with what was printed in the place of what was wanted. */
  readonly rewritten: string;
};

/** Stands in a file for any text of an error. */
const anyError = "error: ...";

/** Runs a conversation from a fresh world and compares what it prints. */
export function runConversation(text: string): Outcome {
  const world = new ScriptWorld();
  const lines = text.split(/\r?\n/);
  const mismatches: Mismatch[] = [];
  const rewritten: string[] = [];
  let commands = 0;
  for (let at = 0; at < lines.length; at++) {
    const line = (lines[at] as string).trimEnd();
    if (isSkipped(line)) {
      rewritten.push(line);
      continue;
    }
    const block = readBlock(lines, at + 1);
    const got = world.run(line).map((each) => each.trimEnd());
    commands++;
    rewritten.push(line);
    if (agrees(block.wanted, got)) {
      rewritten.push(...block.lines);
    } else {
      mismatches.push({ line: at + 1, command: line, wanted: block.wanted, got });
      rewritten.push(...got.map((each) => `  ${each}`));
      rewritten.push(...block.lines.filter(isSkipped));
    }
    at += block.lines.length;
  }
  return { commands, mismatches, rewritten: rewritten.join("\n") };
}

/** `file:line: command`, then wanted and got. */
export function formatMismatch(file: string, mismatch: Mismatch): string {
  const block = (lines: readonly string[]): string =>
    lines.length === 0 ? "    (nothing)" : lines.map((line) => `    ${line}`).join("\n");
  const { line, command, wanted, got } = mismatch;
  return `${file}:${line}: ${command}\n  wanted\n${block(wanted)}\n  got\n${block(got)}`;
}

type Block = { readonly lines: readonly string[]; readonly wanted: readonly string[] };

// The indented lines after a command; comments and empty lines among them stay with them.
function readBlock(lines: readonly string[], from: number): Block {
  let end = from;
  for (let at = from; at < lines.length; at++) {
    const line = lines[at] as string;
    if (/^\s+\S/.test(line)) end = at + 1;
    else if (!isSkipped(line.trimEnd())) break;
  }
  const block = lines.slice(from, end).map((line) => line.trimEnd());
  const wanted = block.filter((line) => !isSkipped(line));
  return { lines: block, wanted: wanted.map((line) => line.replace(/^( {2}|\s)/, "")) };
}

function isSkipped(line: string): boolean {
  return line.trim() === "" || line.startsWith("#");
}

function agrees(wanted: readonly string[], got: readonly string[]): boolean {
  if (wanted.length !== got.length) return false;
  return wanted.every((line, place) => {
    const printed = got[place] as string;
    return line === printed || (line === anyError && printed.startsWith("error: "));
  });
}
