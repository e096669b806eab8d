// What a handler is, and the few things all of them do.

import { type CodedError, parseJson } from "../base/index.ts";
import { limitDefault } from "./contract/values.ts";
import type { AnswerOf, InputOf, OperationName } from "./contract.ts";
import { adminErrors } from "./errors.ts";
import type { Caller } from "./guard.ts";
import { withoutKeys } from "./keys.ts";
import type { RunningParts } from "./ports.ts";

export type Handler<K extends OperationName> = (
  input: InputOf<K>,
  caller: Caller,
) => AnswerOf<K> | Promise<AnswerOf<K>>;

export type Handlers<K extends OperationName = OperationName> = { readonly [N in K]: Handler<N> };

/** What there is of a ready node. @throws ADMIN_NODE_NOT_READY. */
export type Running = () => RunningParts;

export type Given<T> = { [K in keyof T]: Exclude<T[K], undefined> };

/** Without the keys that are undefined: absent and undefined mean the same to a caller of the API. */
export function given<T extends object>(values: T): Given<T> {
  const entries = Object.entries(values).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as Given<T>;
}

export function pageRequest({
  after,
  limit,
}: {
  after?: string | undefined;
  limit?: number | undefined;
}) {
  return given({ after, countMax: limit ?? limitDefault });
}

export function missing(thing: string, name: string | number): CodedError {
  return adminErrors.thingMissing({ thing, name: withoutKeys(JSON.stringify(name)) });
}

/** A cursor of our own making: JSON, so that any text fits. */
export function encodeCursor(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString("base64url");
}

/** @throws ADMIN_INPUT_INVALID. */
export function decodeCursor<T>(
  text: string | undefined,
  isOne: (value: unknown) => value is T,
): T | undefined {
  if (text === undefined) return undefined;
  let value: unknown;
  try {
    value = parseJson(Buffer.from(text, "base64url").toString("utf8"));
  } catch {
    // Not made here: refused below.
  }
  if (isOne(value)) return value;
  throw adminErrors.inputInvalid({ reason: "after: not the `next` of a page" });
}

/** A place that a cursor may name. */
export function isPlace(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

export function listOf<T>(items: readonly T[]): { items: T[]; total: number } {
  return { items: [...items], total: items.length };
}
