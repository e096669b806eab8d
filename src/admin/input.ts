// A request's parameters, query and body, checked against the contract. All faults at once, each with
// where it is; values of the caller are not repeated at length.

import * as v from "valibot";
import { contract, type InputOf, type OperationName } from "./contract.ts";
import { adminErrors } from "./errors.ts";
import { withoutKeys } from "./keys.ts";

export type RawInput = {
  readonly params: Readonly<Record<string, string>>;
  readonly query: URLSearchParams;
  /** Parsed JSON; undefined when there was no body. */
  readonly body: unknown;
};

type Schemas = {
  readonly params?: v.GenericSchema;
  readonly query?: v.GenericSchema;
  readonly body?: v.GenericSchema;
  readonly answer: v.GenericSchema;
};

/** @throws ADMIN_INPUT_INVALID with `faults`. */
export function checkInput<K extends OperationName>(name: K, raw: RawInput): InputOf<K> {
  const schemas: Schemas = contract[name];
  const faults: string[] = [];
  const params = check(schemas.params, raw.params, "", faults);
  const query = check(schemas.query ?? noQuery, queryRecord(raw.query, faults), "", faults);
  if (schemas.body === undefined && raw.body !== undefined) faults.push("body: none is expected");
  const isRecord = typeof raw.body === "object" && raw.body !== null && !Array.isArray(raw.body);
  if (raw.body !== undefined && !isRecord) faults.push("body: expected an object");
  const body = check(schemas.body, isRecord ? raw.body : {}, "body", faults);
  if (faults.length > 0) throw adminErrors.inputInvalid({ reason: faults.join("; "), faults });
  const checked = { params, query: schemas.query === undefined ? undefined : query, body };
  return checked as InputOf<K>;
}

const noQuery = v.strictObject({});

function queryRecord(query: URLSearchParams, faults: string[]): Record<string, string> {
  const record: Record<string, string> = {};
  for (const [key, value] of query) {
    if (Object.hasOwn(record, key)) faults.push(`${clip(key)}: is there twice`);
    Object.defineProperty(record, key, { value, enumerable: true, configurable: true });
  }
  return record;
}

function check(
  schema: v.GenericSchema | undefined,
  value: unknown,
  place: string,
  faults: string[],
): unknown {
  if (schema === undefined) return undefined;
  const result = v.safeParse(schema, value);
  if (result.success) return result.output;
  const shown = result.issues.slice(0, faultsShownMax);
  for (const issue of shown) faults.push(faultOf(issue, place));
  return undefined;
}

const faultsShownMax = 20;

function faultOf(issue: v.BaseIssue<unknown>, place: string): string {
  const path = [place, v.getDotPath(issue) ?? ""].filter((part) => part !== "").join(".");
  const at = path === "" ? "" : `${clip(path)}: `;
  if (issue.expected === "never") return `${at}is not known here`;
  if (issue.received === "undefined") return `${at}is missing`;
  // A pattern tells people nothing; its message does.
  if (issue.expected === null || issue.type === "regex") return `${at}${clip(issue.message)}`;
  return `${at}expected ${issue.expected}, got ${clip(issue.received)}`;
}

function clip(text: string): string {
  const shown = withoutKeys(text);
  return shown.length <= 60 ? shown : `${shown.slice(0, 60)}...`;
}
