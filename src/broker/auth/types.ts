// Who somebody is: what a login brings, what a method of the chain says to it, and the two ports
// that the broker asks, one for CONNECT with credentials, one for exchanges of several steps.

import type { PeerCertificate } from "../../base/index.ts";
import type { Grant } from "../acl/rules.ts";

/** What is known of a client that wants in. */
export type LoginRequest = {
  readonly clientId: string;
  readonly userName: string | undefined;
  readonly password: Buffer | undefined;
  readonly certificate: PeerCertificate | undefined;
  readonly remote: string;
  /** Name of the listener. */
  readonly listener: string;
};

export type Identity = {
  /** Undefined: anonymous. */
  readonly user: string | undefined;
  /** Rights that came with the login, besides those of the rules. */
  readonly grants?: readonly Grant[];
  /** Wall time at which the login ends, such as a token's; undefined: with the connection. */
  readonly expiresUs?: number;
  /** Name of the method that let it in, for `recheck` and the log. */
  readonly method: string;
  /** What the credentials were checked against: when it changes the login is no longer good. */
  readonly proof?: string;
};

export type Verdict =
  | { readonly kind: "allow"; readonly identity: Identity }
  /** Known and refused: nobody further down the chain is asked. `why` is for the log only. */
  | { readonly kind: "deny"; readonly why: string }
  /** Not a matter of this method. */
  | { readonly kind: "ignore" }
  /** Cannot be decided now: refused, and may be tried again. */
  | { readonly kind: "unavailable"; readonly why: string }
  /** Not looked at: too many before it were wrong. No method says so. */
  | { readonly kind: "held"; readonly why: string };

export interface AuthMethod {
  readonly name: string;
  authenticate(request: LoginRequest): Verdict | Promise<Verdict>;
  /** Whether an identity that this method gave is still good. Default: it is. */
  isCurrent?(identity: Identity): boolean;
}

export type ExchangeStep =
  | { readonly kind: "continue"; readonly data: Buffer }
  | { readonly kind: "done"; readonly identity: Identity; readonly data: Buffer | undefined }
  | { readonly kind: "failed"; readonly why: string }
  | { readonly kind: "held"; readonly why: string };

/** One run of an exchange. `step` is called once for each AUTH of the client, one at a time. */
export interface Exchange {
  step(data: Buffer | undefined): ExchangeStep | Promise<ExchangeStep>;
}

/** Enhanced authentication (MQTT 5, 4.12). */
export interface ExchangeMethod {
  /** As in the Authentication Method of CONNECT. */
  readonly name: string;
  begin(request: LoginRequest): Exchange;
  isCurrent?(identity: Identity): boolean;
}

/** What a listener asks. */
export interface AuthPort {
  authenticate(request: LoginRequest): Verdict | Promise<Verdict>;
  /** Undefined: the method is not offered. */
  begin(method: string, request: LoginRequest): Exchange | undefined;
  /** Whether somebody who was let in would still be. */
  isCurrent(identity: Identity): boolean;
}
