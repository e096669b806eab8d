// A service that is asked about each login. It gets the credentials as JSON and answers
//
//   {"result": "allow" | "deny" | "ignore", "user": "...", "rights": {...}, "expires": <seconds>}
//
// Anything else, an answer too late or too long, a status other than 200: the login is refused for
// now. Nothing of the answer but its verdict is logged.

import { parseJson } from "../../base/index.ts";
import { parseGrants } from "../acl/rules.ts";
import { brokerErrors } from "../errors.ts";
import type { AuthMethod, LoginRequest, Verdict } from "./types.ts";

export type HttpAnswer = { readonly status: number; readonly text: string };

/** Rejects when there is no whole answer in time. */
export type HttpAsk = (body: string) => Promise<HttpAnswer>;

const usPerS = 1_000_000;

export class HttpMethod implements AuthMethod {
  readonly name = "http";
  readonly #ask: HttpAsk;
  readonly #requestsMax: number;
  #requests = 0;

  constructor(ask: HttpAsk, requestsMax: number) {
    this.#ask = ask;
    this.#requestsMax = requestsMax;
  }

  async authenticate(request: LoginRequest): Promise<Verdict> {
    if (this.#requests >= this.#requestsMax) {
      return { kind: "unavailable", why: "too many questions to the http method are under way" };
    }
    this.#requests++;
    try {
      const { status, text } = await this.#ask(bodyOf(request));
      if (status !== 200) return { kind: "unavailable", why: `the http method said ${status}` };
      return verdictOf(request, parseJson(text));
    } catch {
      // No answer, or none that can be read; what it holds may be secret.
      return { kind: "unavailable", why: "the http method gave no answer" };
    } finally {
      this.#requests--;
    }
  }
}

function bodyOf({ clientId, userName, password, certificate, remote, listener }: LoginRequest) {
  return JSON.stringify({
    ...{ clientId, userName, remote, listener },
    password: password?.toString("utf8"),
    certificate: certificate && { commonName: certificate.commonName },
  });
}

function verdictOf(request: LoginRequest, answer: unknown): Verdict {
  if (typeof answer !== "object" || answer === null) throw unreadable();
  const { result, user, rights, expires } = answer as Record<string, unknown>;
  if (result === "ignore") return { kind: "ignore" };
  if (result === "deny") return { kind: "deny", why: "the http method denied" };
  if (result !== "allow") throw unreadable();
  const name = user ?? request.userName;
  if (name !== undefined && (typeof name !== "string" || name === "")) throw unreadable();
  if (expires !== undefined && !Number.isSafeInteger(expires)) throw unreadable();
  return {
    kind: "allow",
    identity: {
      user: name,
      method: "http",
      grants: parseGrants(rights),
      ...(typeof expires === "number" && { expiresUs: expires * usPerS }),
    },
  };
}

function unreadable(): Error {
  return brokerErrors.hookUnreadable();
}
