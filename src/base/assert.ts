// Assertions of our own invariants. They stay on in production: a broken invariant must stop the
// work at hand, never write wrong data. What came from a socket, a file or a user is parsed or
// refused with a code instead, never asserted.

import { CodedError } from "./errors.ts";

export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) fail(message);
}

/** The value, where an absent one would be our bug. */
export function assertPresent<T>(value: T | undefined | null, message: string): T {
  if (value === undefined || value === null) fail(message);
  return value as T;
}

/** For the `default` of a switch over a union: does not compile while a case is missing. */
export function unreachable(value: never, message = "unreachable case"): never {
  return fail(`${message}: ${String(value)}`);
}

/** For a branch that cannot be reached; builds no message where the check is hot. */
export function fail(message: string): never {
  throw new CodedError("BASE_ASSERTION_FAILED", "internal", `assertion failed: ${message}`, {});
}
