// One fault of the configuration, as facts, and its text: where, what was got, what is expected,
// the allowed range, the nearest key, the source line with a caret. Faults are collected, never
// thrown one by one: a reader mends a file in one go. Secrets never reach `got`.

import { comparePlaces, describePlace, type Place, printable, showSource } from "./place.ts";

export type Fault = {
  readonly code:
    | "CONFIG_UNKNOWN_KEY"
    | "CONFIG_VALUE_INVALID"
    | "CONFIG_KEY_MISSING"
    | "CONFIG_SOURCE_INVALID"
    | "CONFIG_COMBINATION_INVALID";
  readonly place: Place;
  /** Dotted path of the key, empty when the fault is not about one. */
  readonly path: string;
  /** The sentence, without place and path. */
  readonly message: string;
};

/** Text of all faults in reading order, with a closing count. */
export function formatFaults(faults: readonly Fault[]): string {
  const sorted = [...faults].sort((left, right) => comparePlaces(left.place, right.place));
  const count = sorted.length === 1 ? "1 fault" : `${sorted.length} faults`;
  return [...sorted.map(formatFault), `${count} in the configuration`].join("\n");
}

export function formatFault(fault: Fault): string {
  const where = fault.place.kind === "default" ? "" : `${describePlace(fault.place)}: `;
  const path = fault.path === "" ? "" : `${fault.path}: `;
  return [`${where}${path}${fault.message}`, ...showSource(fault.place)].join("\n");
}

export function unknownKey(place: Place, path: string, known: readonly string[]): Fault {
  const key = path.slice(path.lastIndexOf(".") + 1);
  const near = nearest(key, known);
  const listed = known.length <= 12 ? `; known here: ${known.join(", ")}` : "";
  const hint = near === undefined ? listed : `; did you mean ${quote(near)}?`;
  return {
    code: "CONFIG_UNKNOWN_KEY",
    place,
    path: "",
    message: `unknown key ${quote(path)}${hint}`,
  };
}

/** The candidate with the fewest edits, when few enough to be a slip of the hand. */
export function nearest(text: string, candidates: readonly string[]): string | undefined {
  const word = text.toLowerCase();
  let best: string | undefined;
  let bestEdits = Math.max(1, Math.floor(word.length / 3)) + 1;
  for (const candidate of candidates) {
    const edits = editDistance(word, candidate.toLowerCase(), bestEdits);
    if (edits < bestEdits) {
      best = candidate;
      bestEdits = edits;
    }
  }
  return best;
}

export function quote(text: string): string {
  const short = text.length > 60 ? `${text.slice(0, 57)}...` : text;
  return `"${printable(short)}"`;
}

/** Optimal string alignment distance: insert, delete, replace, swap neighbours; `limit` at most. */
function editDistance(left: string, right: string, limit: number): number {
  if (Math.abs(left.length - right.length) >= limit) return limit;
  let before: number[] = [];
  let previous = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let i = 1; i <= left.length; i++) {
    const current = [i];
    for (let j = 1; j <= right.length; j++) {
      const replaced = at(previous, j - 1) + (left[i - 1] === right[j - 1] ? 0 : 1);
      let edits = Math.min(at(previous, j) + 1, at(current, j - 1) + 1, replaced);
      const swapped = left[i - 1] === right[j - 2] && left[i - 2] === right[j - 1];
      if (i > 1 && j > 1 && swapped) edits = Math.min(edits, at(before, j - 2) + 1);
      current.push(edits);
    }
    [before, previous] = [previous, current];
  }
  return Math.min(limit, at(previous, right.length));
}

function at(row: readonly number[], index: number): number {
  return row[index] ?? Number.POSITIVE_INFINITY;
}
