// Reading the arguments of a conversation's commands. What does not fit is a ScriptError, whose
// text the conversation prints as `error: ...`.

import type { MessageType, NodeId } from "../core/types.ts";
import type { Link, Selection } from "./network.ts";

/** Thrown while a command is read or run; printed, never fatal. */
export class ScriptError extends Error {}

export const messageTypes: readonly MessageType[] = [
  "vote",
  "vote-resp",
  "pre-vote",
  "pre-vote-resp",
  "append",
  "append-resp",
  "heartbeat",
  "heartbeat-resp",
  "snapshot",
  "timeout-now",
  "read-index",
  "read-index-resp",
];

export function parseNumber(word: string | undefined, what: string): number {
  if (word === undefined || !/^\d{1,15}$/.test(word)) {
    throw new ScriptError(`${what} must be a number, not ${word === undefined ? "absent" : word}`);
  }
  return Number(word);
}

export function parsePositive(word: string | undefined, what: string): number {
  const number = parseNumber(word, what);
  if (number === 0) throw new ScriptError(`${what} must not be 0`);
  return number;
}

/** `1,2,3` */
export function parseIds(word: string): NodeId[] {
  return word.split(",").map((part) => parsePositive(part, "node"));
}

export function parseSwitch(word: string | undefined): boolean {
  if (word !== "on" && word !== "off") throw new ScriptError(`wanted on or off, not ${word}`);
  return word === "on";
}

/** `A->B` */
export function parseLink(word: string): Link {
  const [from, to, ...more] = word.split("->");
  if (more.length > 0) throw new ScriptError(`wanted FROM->TO, not ${word}`);
  return { from: parsePositive(from, "sender"), to: parsePositive(to, "receiver") };
}

/** `A-B` is both ways, `A->B` one, `A` all from and to it. */
export function parseLinks(word: string, nodes: readonly NodeId[]): Link[] {
  if (word.includes("->")) return [parseLink(word)];
  if (word.includes("-")) {
    const { from, to } = parseLink(word.replace("-", "->"));
    return [
      { from, to },
      { from: to, to: from },
    ];
  }
  const alone = parsePositive(word, "node");
  return nodes.flatMap((node) => [
    { from: node, to: alone },
    { from: alone, to: node },
  ]);
}

/** `[FROM->TO] [type=T] [n=N]`, in any order. */
export function parseSelection(words: readonly string[]): Selection {
  let selection: Selection = {};
  for (const word of words) {
    if (word.startsWith("type=")) selection = { ...selection, type: parseType(word.slice(5)) };
    else if (word.startsWith("n=")) {
      selection = { ...selection, count: parseNumber(word.slice(2), "n") };
    } else selection = { ...selection, link: parseLink(word) };
  }
  return selection;
}

/** `name=value` words as a map; any other word is refused. */
export function parseOptions(
  words: readonly string[],
  names: readonly string[],
): Map<string, string> {
  const options = new Map<string, string>();
  for (const word of words) {
    const at = word.indexOf("=");
    const name = at < 0 ? word : word.slice(0, at);
    if (at < 0 || !names.includes(name)) throw new ScriptError(`unknown option ${word}`);
    options.set(name, word.slice(at + 1));
  }
  return options;
}

function parseType(word: string): MessageType {
  const type = messageTypes.find((known) => known === word);
  if (type === undefined) throw new ScriptError(`unknown type of message ${word}`);
  return type;
}
