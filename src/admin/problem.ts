// Failures as the API answers them: application/problem+json (RFC 9457) with our code, kind and help.
// A fault of ours tells no more than that it is one; the log has the rest.

import { CodedError } from "../base/index.ts";
import { statusOf } from "./errors.ts";

export const problemType = "application/problem+json";

export type Problem = {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly code: string;
  readonly kind: CodedError["kind"];
  readonly help: string;
  readonly faults?: readonly string[];
};

const titles: Readonly<Record<CodedError["kind"], string>> = {
  retry: "Not now",
  conflict: "In conflict with what is there",
  invalid: "Refused",
  closed: "Closed",
  limit: "A limit is reached",
  corrupt: "Stored bytes are damaged",
  internal: "Failed",
};

/** `helpOf` knows the sentences of all rooms. */
export function problemOf(error: unknown, helpOf: (code: string) => string): Problem {
  if (!(error instanceof CodedError)) {
    return {
      type: "urn:flagstone:error:ADMIN_INTERNAL",
      title: titles.internal,
      status: 500,
      detail: "this is a fault of Flagstone; its log says more",
      code: "ADMIN_INTERNAL",
      kind: "internal",
      help: "Please report it with the lines of the log.",
    };
  }
  const { faults } = error.details;
  return {
    type: `urn:flagstone:error:${error.code}`,
    title: titles[error.kind],
    status: statusOf(error),
    detail: error.message,
    code: error.code,
    kind: error.kind,
    help: helpOf(error.code),
    ...(Array.isArray(faults) ? { faults: faults.map(faultText) } : {}),
  };
}

/** Faults of a configuration are records with a message. */
function faultText(fault: unknown): string {
  if (typeof fault === "string") return fault;
  const { path, message } = (fault ?? {}) as { path?: unknown; message?: unknown };
  return [path, message].filter((part) => typeof part === "string").join(": ");
}
