// JSON Web Tokens as passwords. The one home of jose, which is loaded with the first key set or token:
// its forty modules are not for a start that asks for no tokens.
//
// What must hold: a signature by a key of the configured set, with an algorithm that was allowed; the
// token's times; issuer and audience where they are configured; a user in the configured claim, equal
// to the user name where one is given. Rights may stand in the claim `rights`. The login ends when
// the token does.

import type * as jose from "jose";
import { type Clock, parseJson, toError } from "../../base/index.ts";
import { type Grant, parseGrants } from "../acl/rules.ts";
import type { AuthMethod, LoginRequest, Verdict } from "./types.ts";

export type JwtRules = {
  readonly algorithms: readonly string[];
  /** Undefined: any. */
  readonly issuer: string | undefined;
  readonly audience: string | undefined;
  readonly userClaim: string;
  /** How far clocks may be apart. */
  readonly leewayS: number;
};

/** The keys that may have signed: `find` by the header of a token. */
export type JwtKeys = jose.JWTVerifyGetKey;

const usPerS = 1_000_000;
const tokenBytesMax = 16 * 1024;
const secretBytesMin = 32;

/** @throws Error with a reason: no key set, or none that can be used. */
export async function keysOfJwks(text: string): Promise<JwtKeys> {
  const set = parseJson(text) as jose.JSONWebKeySet;
  const { createLocalJWKSet } = await import("jose");
  return createLocalJWKSet(set);
}

/** Whether a key set holds what only its owner may know: shared keys, or private ones. */
export function holdsSecretKeys(text: string): boolean {
  const { keys = [] } = parseJson(text) as Partial<jose.JSONWebKeySet>;
  return keys.some((key) => key.k !== undefined || key.d !== undefined);
}

/** A shared secret (HS256 and the like). @throws Error when it is too short to be one. */
export function keysOfSecret(secret: string): JwtKeys {
  const bytes = Buffer.from(secret, "utf8");
  if (bytes.length < secretBytesMin) throw new Error("a shared secret needs 32 bytes or more");
  return async () => bytes;
}

export class JwtMethod implements AuthMethod {
  readonly name = "jwt";
  readonly #rules: JwtRules;
  readonly #clock: Clock;
  readonly #keys: () => JwtKeys | undefined;

  /** `keys` is asked at each login: the set rotates. Undefined: there is none now, nobody gets in. */
  constructor(rules: JwtRules, clock: Clock, keys: () => JwtKeys | undefined) {
    this.#rules = rules;
    this.#clock = clock;
    this.#keys = keys;
  }

  authenticate({ password, userName }: LoginRequest): Verdict | Promise<Verdict> {
    if (password === undefined || password.length > tokenBytesMax) return { kind: "ignore" };
    const token = password.toString("latin1");
    // Three parts of base64url, the first of which says what it is: other passwords are not ours.
    if (!/^eyJ[\w-]*\.[\w-]+\.[\w-]+$/.test(token)) return { kind: "ignore" };
    return this.#verify(token, userName);
  }

  async #verify(token: string, userName: string | undefined): Promise<Verdict> {
    const keys = this.#keys();
    if (keys === undefined) return { kind: "unavailable", why: "no key set for tokens" };
    const { algorithms, issuer, audience, userClaim, leewayS } = this.#rules;
    const { jwtVerify } = await import("jose");
    let claims: jose.JWTPayload;
    try {
      const options: jose.JWTVerifyOptions = {
        algorithms: [...algorithms],
        clockTolerance: leewayS,
        currentDate: new Date(this.#clock.wallUs() / 1000),
        requiredClaims: ["exp"],
        ...(issuer !== undefined && { issuer }),
        ...(audience !== undefined && { audience }),
      };
      claims = (await jwtVerify(token, keys, options)).payload;
    } catch (error) {
      return { kind: "deny", why: `token: ${toError(error).message}` };
    }
    const user = claims[userClaim];
    if (typeof user !== "string" || user === "") {
      return { kind: "deny", why: `token: no text in the claim ${userClaim}` };
    }
    if (userName !== undefined && userName !== "" && userName !== user) {
      return { kind: "deny", why: "token: of another user" };
    }
    let grants: readonly Grant[] = [];
    try {
      grants = parseGrants(claims.rights);
    } catch (error) {
      return { kind: "deny", why: `token: ${toError(error).message}` };
    }
    const expiresUs = ((claims.exp as number) + leewayS) * usPerS;
    return { kind: "allow", identity: { user, grants, expiresUs, method: this.name } };
  }
}

/** Parses once what a URL or a file holds, and keeps the last good set. */
export class RotatingKeys {
  #keys: JwtKeys | undefined;
  #text: string | undefined;

  get current(): JwtKeys | undefined {
    return this.#keys;
  }

  /** True when the set has changed. @throws Error when the text is no key set: the old one stays. */
  async set(text: string): Promise<boolean> {
    return (await this.prepare(text))();
  }

  /** As `set`, but nothing changes before the result is called. */
  async prepare(text: string): Promise<() => boolean> {
    if (text === this.#text) return () => false;
    const keys = await keysOfJwks(text);
    return () => {
      this.#keys = keys;
      this.#text = text;
      return true;
    };
  }
}
