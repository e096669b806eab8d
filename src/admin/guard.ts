// Who may ask: checks that come before any operation. A request must name this node as its host (a
// page of another site that points its name at us does not), come from no other page, and carry a
// key. Wrong keys from one address are slowed down; right ones from there go on working.

import { isIP } from "node:net";
import { adminErrors } from "./errors.ts";
import type { ApiKeys } from "./keys.ts";
import { isAllowed, type Role } from "./operations.ts";

export type Caller = {
  readonly keyId: string;
  readonly keyName: string;
  readonly role: Role;
  readonly remote: string;
};

/** The headers of a request, by lower-case name. */
export type Headers = (name: string) => string | undefined;

/** @throws ADMIN_HOST_REFUSED, ADMIN_ORIGIN_REFUSED. */
export function checkSource(header: Headers, hosts: readonly string[]): void {
  const host = header("host") ?? "";
  if (!isOwnHost(host, hosts)) throw adminErrors.hostRefused({ host: JSON.stringify(host) });
  const site = header("sec-fetch-site");
  const isForeignSite = site !== undefined && site !== "same-origin" && site !== "none";
  const origin = header("origin");
  if (isForeignSite || (origin !== undefined && !isSameOrigin(origin, host))) {
    throw adminErrors.originRefused({});
  }
}

/** Addresses cannot be pointed elsewhere by a name server; names can. */
function isOwnHost(host: string, hosts: readonly string[]): boolean {
  const name = /^(\[[0-9a-fA-F:.]+\]|[^:]*)(:\d{1,5})?$/.exec(host)?.[1]?.toLowerCase();
  if (name === undefined || name === "") return false;
  const bare = name.startsWith("[") ? name.slice(1, -1) : name;
  return isIP(bare) !== 0 || name === "localhost" || hosts.includes(name);
}

function isSameOrigin(origin: string, host: string): boolean {
  return origin === `http://${host}` || origin === `https://${host}`;
}

const failuresMax = 20;
const windowMs = 60_000;
const addressesMax = 1000;

export class Gatekeeper {
  readonly #keys: ApiKeys;
  readonly #nowMs: () => number;
  readonly #failures = new Map<string, { count: number; readonly sinceMs: number }>();

  constructor(keys: ApiKeys, nowMs: () => number) {
    this.#keys = keys;
    this.#nowMs = nowMs;
  }

  /** @throws ADMIN_UNAUTHENTICATED, ADMIN_TOO_MANY_FAILURES. */
  admit(header: Headers, remote: string): Caller {
    const text = header("authorization");
    if (text === undefined) throw adminErrors.unauthenticated({ reason: "none was sent" });
    const key = /^Bearer +(\S+) *$/i.exec(text)?.[1];
    if (key === undefined) {
      throw adminErrors.unauthenticated({ reason: "only the scheme Bearer is understood" });
    }
    // Looked up first: others behind the same address must not lock out who has a right one, and
    // 256 random bits are not found by trying.
    const found = this.#keys.find(key);
    if (found !== undefined) {
      return { keyId: found.id, keyName: found.name, role: found.role, remote };
    }
    if (this.#failuresOf(remote) >= failuresMax) throw adminErrors.tooManyFailures({});
    this.#fail(remote);
    throw adminErrors.unauthenticated({ reason: "this one is not known" });
  }

  #failuresOf(remote: string): number {
    const entry = this.#failures.get(remote);
    if (entry === undefined) return 0;
    if (this.#nowMs() - entry.sinceMs < windowMs) return entry.count;
    this.#failures.delete(remote);
    return 0;
  }

  #fail(remote: string): void {
    const count = this.#failuresOf(remote);
    const entry = this.#failures.get(remote);
    if (entry !== undefined) {
      entry.count = count + 1;
      return;
    }
    const [oldest] = this.#failures.keys();
    if (this.#failures.size >= addressesMax && oldest !== undefined) this.#failures.delete(oldest);
    this.#failures.set(remote, { count: 1, sinceMs: this.#nowMs() });
  }
}

/** @throws ADMIN_FORBIDDEN. */
export function checkRole(caller: Caller, needs: Role, what: string): void {
  if (isAllowed(caller.role, needs)) return;
  throw adminErrors.forbidden({ what, needs, has: caller.role });
}
