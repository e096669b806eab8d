// What a key wanted instead of the value it got: expected form, allowed range, and what was probably
// meant by `64MB`, `15 sec` or a misspelt choice.

import { nearest, quote } from "./fault.ts";
import type { Field, RawValue } from "./schema.ts";
import { describeRange } from "./schema.ts";

/** @param got the text that did not fit; undefined for something that is no text at all. */
export function wanted(field: Field, got: RawValue | undefined): string {
  const allowed = field.range === undefined ? "" : `; allowed ${describeRange(field)}`;
  const meant = typeof got === "string" ? probablyMeant(field, got) : undefined;
  const hint = meant === undefined ? "" : `; did you mean ${quote(meant)}?`;
  return `expected ${field.expected}${allowed}${hint}`;
}

function probablyMeant(field: Field, got: string): string | undefined {
  if (field.choices !== undefined) return nearest(got, field.choices);
  if (field.kind !== "size" && field.kind !== "duration") return undefined;
  const match = /^(\d+)\s*([A-Za-z]*)$/.exec(got.trim());
  if (match === null) return undefined;
  const [, amount, word = ""] = match;
  const words = field.kind === "size" ? sizeWords : durationWords;
  const known = word.toLowerCase();
  const unit = Object.hasOwn(words, known) ? words[known] : undefined;
  return unit === undefined ? undefined : `${amount}${unit}`;
}

const sizeWords: Readonly<Record<string, string>> = {
  "": "B",
  b: "B",
  bytes: "B",
  k: "KiB",
  kb: "KiB",
  kib: "KiB",
  m: "MiB",
  mb: "MiB",
  mib: "MiB",
  g: "GiB",
  gb: "GiB",
  gib: "GiB",
  t: "TiB",
  tb: "TiB",
  tib: "TiB",
};

const durationWords: Readonly<Record<string, string>> = {
  "": "s",
  ms: "ms",
  msec: "ms",
  s: "s",
  sec: "s",
  secs: "s",
  seconds: "s",
  m: "m",
  min: "m",
  minutes: "m",
  h: "h",
  hours: "h",
  d: "d",
  day: "d",
  days: "d",
};
