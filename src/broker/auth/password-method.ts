// Logins with user name and password against a table of users, and SCRAM logins against the same
// table. The table may be swapped at any time; who was let in by a line that is gone or has changed
// is no longer current.

import type { UserTable } from "./password-file.ts";
import { type PasswordHash, parsePasswordHash } from "./password-hash.ts";
import type { AuthMethod, Identity, LoginRequest, Verdict } from "./types.ts";
import type { PasswordVerifier } from "./verifier.ts";

export interface Users {
  /** Text of the hash. */
  find(user: string): string | undefined;
}

/** A table that is replaced as a whole. */
export class SwappedUsers implements Users {
  #table: UserTable;

  constructor(table: UserTable) {
    this.#table = table;
  }

  find(user: string): string | undefined {
    return this.#table.get(user);
  }

  swap(table: UserTable): void {
    this.#table = table;
  }
}

/** `name`: as in the chain, `password_file` or `users`. */
export function passwordMethod(name: string, users: Users, verifier: PasswordVerifier): AuthMethod {
  return {
    name,
    authenticate: ({ userName, password }: LoginRequest): Verdict | Promise<Verdict> => {
      // A name without a password is no match, whatever the table says.
      if (userName === undefined || password === undefined) return { kind: "ignore" };
      return check(name, users.find(userName), { userName, password }, verifier);
    },
    isCurrent: (identity) => isCurrentIn(users, identity),
  };
}

export function isCurrentIn(users: Users, { user, proof }: Identity): boolean {
  return user !== undefined && users.find(user) === proof;
}

async function check(
  method: string,
  text: string | undefined,
  { userName, password }: { readonly userName: string; readonly password: Buffer },
  verifier: PasswordVerifier,
): Promise<Verdict> {
  const answer = await verifier.verify(userName, text, password);
  if (answer === "busy") return { kind: "unavailable", why: "too many logins are being checked" };
  // Nobody of that name here: a later method may know it.
  if (text === undefined) return { kind: "ignore" };
  if (answer === "wrong") return { kind: "deny", why: "wrong password" };
  return { kind: "allow", identity: { user: userName, method, proof: text } };
}

/** The verifier of a user who may log in by SCRAM. */
export function scramVerifierOf(text: string | undefined) {
  const hash: PasswordHash | undefined = text === undefined ? undefined : parsePasswordHash(text);
  return hash?.kind === "scram" ? hash : undefined;
}
