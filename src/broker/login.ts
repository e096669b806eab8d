// A login from CONNECT to its verdict: one question to the listener's chain, or an exchange of AUTH
// packets; later, re-authentication of a client that is in.
//
// It lasts until its identity is no longer good or expires. One step of an exchange is under way at a
// time. Whatever throws refuses: a broken method lets nobody in. What is logged names reasons, never
// credentials.

import type { Clock } from "../base/index.ts";
import { type AuthPacket, type ConnectPacket, type ReasonCode, reason } from "../mqtt/index.ts";
import type {
  AuthPort,
  Exchange,
  ExchangeStep,
  Identity,
  LoginRequest,
  Verdict,
} from "./auth/types.ts";
import { userFault } from "./auth/user-name.ts";
import type { ConnectionTimers } from "./connection-timers.ts";
import { waitFor } from "./waiting.ts";

export type LoginOutcome =
  | {
      readonly kind: "in";
      readonly identity: Identity;
      /** For CONNACK, or the last AUTH. */
      readonly data: Buffer | undefined;
    }
  | { readonly kind: "refused"; readonly reasonCode: ReasonCode; readonly why: string };

export type LoginParts = {
  readonly auth: AuthPort;
  readonly clock: Clock;
  /** Of the connection: an expiry ends with it. */
  readonly timers: ConnectionTimers;
  /** For the answer of a method to one question. */
  readonly waitMs: number;
  /** A user that nobody may log in as, whatever a method says: the program's own. */
  readonly reservedUser: string | undefined;
};

export interface LoginOwner {
  /** AUTH: 0x18 asks for more, 0x00 ends a re-authentication well. */
  answer(reasonCode: ReasonCode, data: Buffer | undefined): void;
  /** Of CONNECT, once. */
  decided(outcome: LoginOutcome): void;
  /** A client that is in has shown again who it is; its rights may be others now. */
  renewed(identity: Identity): void;
  /** A client that was let in is to go. */
  ended(why: string): void;
}

/** What timers can wait at once. */
const timerMsMax = 2 ** 31 - 1;
const usPerMs = 1000;

export class Login {
  readonly #parts: LoginParts;
  readonly #request: LoginRequest;
  readonly #owner: LoginOwner;
  #exchange: Exchange | undefined;
  /** Of a client that is in. */
  #identity: Identity | undefined;

  constructor(parts: LoginParts, request: LoginRequest, owner: LoginOwner) {
    this.#parts = parts;
    this.#request = request;
    this.#owner = owner;
  }

  /** Whether the client had to go, because it would not be let in any more. */
  recheck(): boolean {
    if (this.#identity === undefined || this.#parts.auth.isCurrent(this.#identity)) return false;
    this.#leave("its user or key has changed");
    return true;
  }

  /** May decide at once. */
  start(packet: ConnectPacket): void {
    const { authenticationMethod, authenticationData } = packet.properties;
    if (authenticationMethod !== undefined) {
      this.#begin(authenticationMethod, authenticationData);
      return;
    }
    this.#ask(
      () => this.#parts.auth.authenticate(this.#request),
      (verdict) => this.#judge(verdict),
    );
  }

  /** The client's next part of the exchange that `start` or `again` began. */
  onAuth(packet: AuthPacket): void {
    if (this.#exchange === undefined) this.#refuse(reason.protocolError, "AUTH out of turn");
    else this.#step(this.#exchange, packet.properties.authenticationData);
  }

  /** AUTH 0x19 of a client that is in: an exchange from the beginning, by the same method. */
  again(packet: AuthPacket): void {
    const { authenticationMethod = "", authenticationData } = packet.properties;
    this.#begin(authenticationMethod, authenticationData);
  }

  #begin(method: string, data: Buffer | undefined): void {
    this.#exchange = this.#parts.auth.begin(method, this.#request);
    if (this.#exchange === undefined) {
      this.#refuse(reason.badAuthenticationMethod, "the method is not offered");
    } else {
      this.#step(this.#exchange, data);
    }
  }

  #step(exchange: Exchange, data: Buffer | undefined): void {
    this.#ask(
      () => exchange.step(data),
      (step: ExchangeStep) => {
        if (step.kind === "continue") {
          this.#owner.answer(reason.continueAuthentication, step.data);
        } else if (step.kind === "done") {
          this.#finish({ kind: "in", identity: step.identity, data: step.data });
        } else {
          const isHeld = step.kind === "held";
          this.#refuse(isHeld ? reason.connectionRateExceeded : reason.notAuthorized, step.why);
        }
      },
    );
  }

  #judge(verdict: Verdict): void {
    switch (verdict.kind) {
      case "allow":
        this.#finish({ kind: "in", identity: verdict.identity, data: undefined });
        return;
      case "unavailable":
        this.#refuse(reason.serverUnavailable, verdict.why);
        return;
      case "held":
        this.#refuse(reason.connectionRateExceeded, verdict.why);
        return;
      case "deny":
        this.#refuse(this.#denialReason(), verdict.why);
        return;
      case "ignore":
        this.#refuse(this.#denialReason(), "no method knows this client");
    }
  }

  /** Who has shown nothing lacks rights; who has, has shown the wrong thing. */
  #denialReason(): ReasonCode {
    const { userName, password } = this.#request;
    const hasShown = userName !== undefined || password !== undefined;
    return hasShown ? reason.badUserNameOrPassword : reason.notAuthorized;
  }

  #ask<T>(question: () => T | Promise<T>, answered: (answer: T) => void): void {
    const failed = (): void => this.#refuse(reason.serverUnavailable, "a method failed");
    let answer: T | Promise<T>;
    try {
      answer = question();
    } catch {
      failed(); // a method of the embedding program; what it threw may hold secrets
      return;
    }
    if (!(answer instanceof Promise)) {
      answered(answer);
      return;
    }
    waitFor(this.#parts.clock, this.#parts.waitMs, answer, {
      value: answered,
      error: failed,
      late: () => this.#refuse(reason.serverUnavailable, "a method did not answer in time"),
    });
  }

  #refuse(reasonCode: ReasonCode, why: string): void {
    this.#finish({ kind: "refused", reasonCode, why });
  }

  #finish(decided: LoginOutcome): void {
    this.#exchange = undefined;
    const outcome = decided.kind === "in" ? this.#checked(decided) : decided;
    const before = this.#identity;
    if (before === undefined) {
      if (outcome.kind === "in") this.#keep(outcome.identity);
      this.#owner.decided(outcome);
    } else if (outcome.kind === "refused") {
      this.#leave(outcome.why);
    } else if (outcome.identity.user !== before.user) {
      this.#leave("re-authentication as another user");
    } else {
      this.#keep(outcome.identity);
      this.#owner.renewed(outcome.identity);
      this.#owner.answer(reason.success, outcome.data);
    }
  }

  /**
   * A table may have changed while the password was hashed, and whoever is not in yet was passed over
   * then. Tokens, certificates and services tell names that no file or store would take.
   */
  #checked(outcome: Extract<LoginOutcome, { kind: "in" }>): LoginOutcome {
    if (!this.#parts.auth.isCurrent(outcome.identity)) {
      return {
        kind: "refused",
        reasonCode: this.#denialReason(),
        why: "its user or key has changed",
      };
    }
    const { user } = outcome.identity;
    if (user === undefined) return outcome;
    const isReserved = user === this.#parts.reservedUser;
    const fault = isReserved ? "it is the program's own" : userFault(user);
    if (fault === undefined) return outcome;
    const why = `the user name of ${outcome.identity.method} cannot be used: ${fault}`;
    return { kind: "refused", reasonCode: this.#denialReason(), why };
  }

  #keep(identity: Identity): void {
    this.#identity = identity;
    const { expiresUs } = identity;
    if (expiresUs === undefined) return;
    const { clock, timers } = this.#parts;
    const restMs = Math.max(0, (expiresUs - clock.wallUs()) / usPerMs);
    timers.after(Math.min(restMs, timerMsMax), () => {
      if (this.#identity !== identity) return;
      if (expiresUs > clock.wallUs()) this.#keep(identity);
      else this.#leave("it has expired");
    });
  }

  #leave(why: string): void {
    this.#identity = undefined;
    this.#owner.ended(why);
  }
}
