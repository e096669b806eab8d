// The methods of a listener in their order. The first that allows or denies decides; when all ignore
// a login it is refused. Nothing that fails lets anybody in.

import type {
  AuthMethod,
  AuthPort,
  Exchange,
  ExchangeMethod,
  Identity,
  LoginRequest,
  Verdict,
} from "./types.ts";

export class AuthChain implements AuthPort {
  readonly #methods: readonly AuthMethod[];
  readonly #exchanges: ReadonlyMap<string, ExchangeMethod>;

  constructor(methods: readonly AuthMethod[], exchanges: readonly ExchangeMethod[] = []) {
    this.#methods = methods;
    this.#exchanges = new Map(exchanges.map((method) => [method.name, method]));
  }

  authenticate(request: LoginRequest): Verdict | Promise<Verdict> {
    return this.#ask(request, 0);
  }

  begin(method: string, request: LoginRequest): Exchange | undefined {
    return this.#exchanges.get(method)?.begin(request);
  }

  isCurrent(identity: Identity): boolean {
    const method =
      this.#methods.find(({ name }) => name === identity.method) ??
      this.#exchanges.get(identity.method);
    if (method === undefined) return false;
    return method.isCurrent?.(identity) ?? true;
  }

  // Without a promise where no method needs one: anonymous logins are the hot way.
  #ask(request: LoginRequest, from: number): Verdict | Promise<Verdict> {
    for (let at = from; at < this.#methods.length; at++) {
      const verdict = (this.#methods[at] as AuthMethod).authenticate(request);
      if (verdict instanceof Promise) {
        return verdict.then((found) =>
          found.kind === "ignore" ? this.#ask(request, at + 1) : found,
        );
      }
      if (verdict.kind !== "ignore") return verdict;
    }
    return { kind: "deny", why: "no method knows this client" };
  }
}

/** Lets everybody in without a name. Credentials are not looked at. */
export const everybody: AuthMethod = {
  name: "anonymous",
  authenticate: () => ({ kind: "allow", identity: { user: undefined, method: "anonymous" } }),
};

/** Behind other methods: only who brings no credentials, so that a wrong password stays wrong. */
export const withoutCredentials: AuthMethod = {
  name: "anonymous",
  authenticate: (request) =>
    request.userName === undefined && request.password === undefined
      ? everybody.authenticate(request)
      : { kind: "ignore" },
};

export type CertificateUser = "common_name" | "alternative_name";

/** The user is who the certificate says; the transport has verified it. */
export function certificateMethod(field: CertificateUser): AuthMethod {
  return {
    name: "certificate",
    authenticate: ({ certificate, userName }) => {
      if (certificate === undefined) return { kind: "ignore" };
      const user =
        field === "common_name" ? certificate.commonName : certificate.alternativeNames[0];
      if (user === undefined) return { kind: "deny", why: `the certificate has no ${field}` };
      if (userName !== undefined && userName !== user) {
        return { kind: "deny", why: "another user name than the certificate's" };
      }
      return { kind: "allow", identity: { user, method: "certificate" } };
    },
  };
}
