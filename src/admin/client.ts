// The typed client of the HTTP API, published as `flagstone/admin`: one function for each operation of
// the contract, by its name.
//
//     const admin = createAdminClient({ url: "http://127.0.0.1:18083", key });
//     const page = await admin.listSessions({ query: { backlog: true } });
//
// It loads no schemas: paths come from a plain table, types from the contract. A refusal is a
// CodedError with the code, kind and sentence that the node gave.

import { CodedError, toError } from "../base/index.ts";
import type { AnswerOf, CallOf, OperationName } from "./contract.ts";
import { adminErrors } from "./errors.ts";
import { apiPrefix, operationNames, operations } from "./operations.ts";

export type * from "./contract.ts";

export type AdminClientOptions = {
  /** `http://127.0.0.1:18083`. */
  readonly url: string;
  readonly key?: string;
  /** Default 30 s. */
  readonly timeoutMs?: number;
  /** Default: the global one. */
  readonly fetch?: typeof fetch;
};

export type AdminClient = {
  readonly [K in OperationName]: (
    ...call: object extends CallOf<K> ? [call?: CallOf<K>] : [call: CallOf<K>]
  ) => Promise<AnswerOf<K>>;
};

type Call = {
  readonly params?: Readonly<Record<string, unknown>>;
  readonly query?: Readonly<Record<string, unknown>>;
  readonly body?: unknown;
};

const timeoutMsDefault = 30_000;

export function createAdminClient(options: AdminClientOptions): AdminClient {
  const functions = operationNames.map((name) => [
    name,
    (call: Call = {}) => request(options, name, call),
  ]);
  return Object.fromEntries(functions) as AdminClient;
}

/** The messages of an export that is done, one JSON object a line. @throws as a call does. */
export async function downloadExport(
  options: AdminClientOptions,
  task: string,
): Promise<AsyncIterable<Uint8Array>> {
  const url = `${options.url.replace(/\/+$/, "")}${apiPrefix}/tasks/${encodeURIComponent(task)}/export`;
  const send = options.fetch ?? fetch;
  const headers: Record<string, string> = {};
  if (options.key !== undefined) headers.authorization = `Bearer ${options.key}`;
  let response: Response;
  try {
    response = await send(url, { headers, redirect: "error" });
    if (response.ok && response.body !== null) return response.body;
  } catch (error) {
    throw adminErrors.callFailed({ url: options.url, reason: reasonOf(toError(error)) }, error);
  }
  throw problemError(parsed(await response.text()), response.status, options.url);
}

async function request(
  options: AdminClientOptions,
  name: OperationName,
  call: Call,
): Promise<unknown> {
  const { method } = operations[name];
  const url = `${options.url.replace(/\/+$/, "")}${pathOf(name, call)}`;
  const send = options.fetch ?? fetch;
  const headers: Record<string, string> = { accept: "application/json" };
  if (options.key !== undefined) headers.authorization = `Bearer ${options.key}`;
  if (call.body !== undefined) headers["content-type"] = "application/json";
  let response: Response;
  let text: string;
  try {
    response = await send(url, {
      method: method.toUpperCase(),
      headers,
      redirect: "error",
      signal: AbortSignal.timeout(options.timeoutMs ?? timeoutMsDefault),
      ...(call.body === undefined ? {} : { body: JSON.stringify(call.body) }),
    });
    text = await response.text();
  } catch (error) {
    throw adminErrors.callFailed({ url: options.url, reason: reasonOf(toError(error)) }, error);
  }
  const value = parsed(text);
  if (response.ok && value !== undefined) return value;
  throw problemError(value, response.status, options.url);
}

function pathOf(name: OperationName, { params = {}, query = {} }: Call): string {
  const path = operations[name].path.replaceAll(/\{(\w+)\}/g, (_all, key: string) =>
    encodeURIComponent(String(params[key])),
  );
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== undefined) search.set(key, String(value));
  }
  const text = search.toString();
  return `${apiPrefix}${path}${text === "" ? "" : `?${text}`}`;
}

/** What fetch hides in its cause is what happened. */
function reasonOf(error: Error): string {
  const { cause } = error;
  const code = (cause as { code?: unknown } | undefined)?.code;
  if (code === "ECONNREFUSED") return "nobody listens there";
  if (error.name === "TimeoutError") return "it does not answer";
  return cause instanceof Error ? cause.message : error.message;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // Something else answers there.
    return undefined;
  }
}

function problemError(value: unknown, status: number, url: string): CodedError {
  const { code, kind, detail } = (value ?? {}) as Partial<Record<string, string>>;
  if (code === undefined || detail === undefined || kind === undefined) {
    const reason = `it answers with HTTP status ${status}, which no Flagstone does`;
    return adminErrors.callFailed({ url, reason });
  }
  return new CodedError(code, kind as CodedError["kind"], detail, { status });
}
