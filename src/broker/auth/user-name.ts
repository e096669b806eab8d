// What can be the name of a user, wherever it comes from.

/** It stands in rules, records of sessions and lines of logs. */
export const userNameBytesMax = 1024;

/** Why a text cannot be the name of a user. */
export function userFault(name: string): string | undefined {
  if (name === "") return "the name is empty";
  if (Buffer.byteLength(name) > userNameBytesMax) return "the name is longer than 1,024 bytes";
  return /\p{Cc}/u.test(name) ? "the name has a control character" : undefined;
}
