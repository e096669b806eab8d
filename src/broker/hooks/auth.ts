// The hooks `preConnect` and `authenticate` in front of what a listener asks: refused before anybody
// looks at credentials, let in by a hook, or left to the listener's own methods.

import type {
  AuthPort,
  Exchange,
  ExchangeStep,
  Identity,
  LoginRequest,
  Verdict,
} from "../auth/types.ts";
import type { Decided, HookRunner, UserDecision } from "./runner.ts";
import type { HookLogin } from "./types.ts";

const method = "hook";

export class HookedAuth implements AuthPort {
  readonly #hooks: HookRunner;
  readonly #inner: AuthPort;

  constructor(hooks: HookRunner, inner: AuthPort) {
    this.#hooks = hooks;
    this.#inner = inner;
  }

  authenticate(request: LoginRequest): Verdict | Promise<Verdict> {
    const login = loginOf(request);
    return then(this.#hooks.preConnect(login), (before) => {
      if ("refusal" in before) return refusalVerdict(before);
      return then(this.#hooks.authenticate(login), (decided) => this.#judge(request, decided));
    });
  }

  begin(name: string, request: LoginRequest): Exchange | undefined {
    const exchange = this.#inner.begin(name, request);
    if (exchange === undefined || !this.#hooks.has("preConnect")) return exchange;
    let isFirst = true;
    return {
      step: (data) => {
        if (!isFirst) return exchange.step(data);
        isFirst = false;
        return then(
          this.#hooks.preConnect(loginOf(request)),
          (before): ExchangeStep | Promise<ExchangeStep> =>
            "refusal" in before
              ? { kind: "failed", why: "a hook refused it" }
              : exchange.step(data),
        );
      },
    };
  }

  isCurrent(identity: Identity): boolean {
    return identity.method === method || this.#inner.isCurrent(identity);
  }

  #judge(request: LoginRequest, decided: Decided<UserDecision>): Verdict | Promise<Verdict> {
    if ("refusal" in decided) return refusalVerdict(decided);
    const { value } = decided;
    if (value.kind === "next") return this.#inner.authenticate(request);
    return { kind: "allow", identity: { user: value.user, method } };
  }
}

function loginOf(request: LoginRequest): HookLogin {
  const { clientId, userName, password, remote, listener } = request;
  return Object.freeze({ clientId, userName, password, remote, listener });
}

function refusalVerdict({ refusal }: { readonly refusal: "refused" | "failed" }): Verdict {
  return refusal === "refused"
    ? { kind: "deny", why: "a hook refused it" }
    : { kind: "unavailable", why: "a hook failed" };
}

/** Goes on at once with what is there, later with what is to come. */
function then<T, R>(value: T | Promise<T>, next: (value: T) => R | Promise<R>): R | Promise<R> {
  return value instanceof Promise ? value.then(next) : next(value);
}
