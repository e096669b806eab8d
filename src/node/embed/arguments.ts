// What a program hands over is checked before anything is done with it: a slip of the hand is told
// with the name of the option, what was got and what is expected. An option that does not exist is
// a fault too: it was meant to do something.
//
// Values are never shown but texts and numbers: what lies in objects may be a secret.

import { nearest, quote } from "../config/fault.ts";
import { nodeErrors } from "../errors.ts";

export type Rule = { readonly expected: string; readonly holds: (value: unknown) => boolean };

/** One for each option of T. */
export type Rules<T> = { readonly [K in keyof T]-?: Rule };

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export const rules = {
  flag: { expected: "true or false", holds: (value) => typeof value === "boolean" },
  text: {
    expected: "a text that is not empty",
    holds: (value) => typeof value === "string" && value !== "",
  },
  qos: { expected: "0, 1 or 2", holds: (value) => value === 0 || value === 1 || value === 2 },
  call: { expected: "a function", holds: (value) => typeof value === "function" },
  signal: { expected: "an AbortSignal", holds: (value) => value instanceof AbortSignal },
} as const satisfies Readonly<Record<string, Rule>>;

/** An integer from `min` to `max`. */
export function countRule(min: number, max: number): Rule {
  const holds = (value: unknown): boolean =>
    Number.isInteger(value) && (value as number) >= min && (value as number) <= max;
  return { expected: `a whole number from ${min} to ${max}`, holds };
}

/** A number of at least 0, `Infinity` included. */
export const amountRule: Rule = {
  expected: "a number of at least 0",
  holds: (value) => typeof value === "number" && value >= 0,
};

/** @throws NODE_ARGUMENT_INVALID. */
export function checkArgument(what: string, value: unknown, { expected, holds }: Rule): void {
  if (holds(value)) return;
  throw nodeErrors.argumentInvalid({ what, reason: `got ${shown(value)}, expected ${expected}` });
}

/** Options that are not given or undefined are as they should be. @throws NODE_ARGUMENT_INVALID. */
export function checkOptions<T extends object>(
  call: string,
  options: unknown,
  known: Rules<T>,
): void {
  if (!isRecord(options)) {
    const reason = `got ${shown(options)}, expected an object`;
    throw nodeErrors.argumentInvalid({ what: `the options of ${call}`, reason });
  }
  for (const [name, value] of Object.entries(options)) {
    const rule = Object.hasOwn(known, name) ? (known as Record<string, Rule>)[name] : undefined;
    if (rule === undefined) throw unknownOption(call, name, Object.keys(known));
    if (value !== undefined) checkArgument(`the option "${name}" of ${call}`, value, rule);
  }
}

function unknownOption(call: string, name: string, known: readonly string[]): Error {
  const near = nearest(name, known);
  const hint =
    near === undefined ? `; there are ${known.join(", ")}` : `; did you mean ${quote(near)}?`;
  const reason = `there is no option ${quote(name)}${hint}`;
  return nodeErrors.argumentInvalid({ what: call, reason });
}

function shown(value: unknown): string {
  if (typeof value === "string") return quote(value);
  if (typeof value === "function") return "a function";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object" && value !== null) return "an object";
  return String(value);
}
