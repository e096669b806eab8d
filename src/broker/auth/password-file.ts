// The password file: `name:hash` a line, empty lines and `#` comments besides. The forms of hashes
// are those of `password-hash.ts`; files of Mosquitto can be used as they are.
//
// All or nothing: one line that cannot be read refuses the file, so that a slip of the editor does
// not quietly lock out, or let in, half of the users. Messages name lines, never what is in them.

import { brokerErrors } from "../errors.ts";
import { atOnce, eachLine, type Slices } from "../slices.ts";
import { parsePasswordHash } from "./password-hash.ts";
import { userFault } from "./user-name.ts";

/** Users by name with the text of their hash. */
export type UserTable = ReadonlyMap<string, string>;

const fileBytesMax = 64 * 1024 * 1024;

/** @throws BROKER_USERS_INVALID with the number of the first line that is wrong. */
export function parsePasswordFile(text: string): UserTable {
  return atOnce(passwordFileSlices(text));
}

/** `parsePasswordFile` a slice at a time. */
export function* passwordFileSlices(text: string): Slices<UserTable> {
  if (text.length > fileBytesMax) throw invalid(0, "it is larger than 64 MiB");
  const users = new Map<string, string>();
  yield* eachLine(text, (raw, number) => {
    const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
    if (line.trim() === "" || line.startsWith("#")) return;
    const colon = line.indexOf(":");
    if (colon < 0) throw invalid(number, 'expected "name:hash"');
    const name = line.slice(0, colon);
    const fault = userNameFault(name);
    if (fault !== undefined) throw invalid(number, fault);
    if (users.has(name)) throw invalid(number, "this user has a line already");
    const hash = line.slice(colon + 1);
    if (parsePasswordHash(hash) === undefined) {
      throw invalid(
        number,
        "the hash has none of the known forms ($scrypt$, $scram-sha-256$, $7$, $6$)",
      );
    }
    users.set(name, hash);
  });
  return users;
}

/**
 * The text with a user's hash set, or without the user; comments and all other lines stay as they are.
 * REQUIRES: `parsePasswordFile` has read the text.
 */
export function editPasswordFile(text: string, name: string, hash: string | undefined): string {
  const own = hash === undefined ? [] : [`${name}:${hash}`];
  const lines = text === "" ? [] : text.replace(/\n$/, "").split("\n");
  const at = lines.findIndex((line) => line.startsWith(`${name}:`) && !line.startsWith("#"));
  if (at < 0) lines.push(...own);
  else lines.splice(at, 1, ...own);
  return lines.map((line) => `${line}\n`).join("");
}

/** Why a text cannot be the name of a user in a table. */
export function userNameFault(name: string): string | undefined {
  return userFault(name) ?? (name.includes(":") ? "the name has a colon" : undefined);
}

function invalid(line: number, reason: string): Error {
  const at = line === 0 ? "" : `line ${line}: `;
  return brokerErrors.usersInvalid({ line, reason: `${at}${reason}` });
}
