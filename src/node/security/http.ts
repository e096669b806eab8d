// Requests to services that security asks: one answer in time, of bounded length, or a rejection.

import { toError } from "../../base/index.ts";

export type HttpRequest = {
  readonly url: string;
  readonly timeoutMs: number;
  /** Undefined: GET. */
  readonly body?: string;
  readonly bearer?: string;
};

const answerBytesMax = 1024 * 1024;

export async function request({ url, timeoutMs, body, bearer }: HttpRequest) {
  const response = await fetch(url, {
    method: body === undefined ? "GET" : "POST",
    headers: {
      accept: "application/json",
      ...(body !== undefined && { "content-type": "application/json" }),
      ...(bearer !== undefined && { authorization: `Bearer ${bearer}` }),
    },
    ...(body !== undefined && { body }),
    // An answer comes from where it was asked for.
    redirect: "error",
    signal: AbortSignal.timeout(timeoutMs),
  });
  return { status: response.status, text: await textOf(response) };
}

async function textOf(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let sizeBytes = 0;
  for await (const chunk of response.body ?? []) {
    sizeBytes += chunk.length;
    if (sizeBytes > answerBytesMax) throw new Error("the answer is longer than 1 MiB");
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** Without what a URL may hold of secrets. */
export function reasonOf(error: unknown): string {
  const { message, cause } = toError(error);
  const code = cause instanceof Error && "code" in cause ? ` (${String(cause.code)})` : "";
  return `${message.replace(/https?:\/\/\S+/g, "the URL").slice(0, 200)}${code}`;
}
