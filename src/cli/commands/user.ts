// `flagstone user add|passwd|rm|list`: users of a password file with `--file`, without a node, which
// takes the file at its next reload (SIGHUP); without it users in a node's store (`user-node.ts`).
//
// The file is written beside itself and renamed: a reader finds the old one or the new one. A new file
// has mode 0600; a known one keeps its group's right to read it and, by root, its owner, so that the
// broker can go on reading it. Nobody else can.
// Passwords come from standard input, never from the command line, which other users can see.

import { randomBytes } from "node:crypto";
import {
  chmodSync,
  chownSync,
  existsSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from "node:fs";
import type { Readable } from "node:stream";
import { systemRandom, toError } from "../../base/index.ts";
import {
  editPasswordFile,
  parsePasswordFile,
  type UserTable,
  userNameFault,
} from "../../broker/auth/password-file.ts";
import { hashForScram, hashPassword } from "../../broker/auth/password-hash.ts";
import { pageOptions } from "../admin/ask.ts";
import { targetOptions } from "../admin/target.ts";
import type { Command, CommandFamily, CommandInput, OptionSpec } from "../command.ts";
import { cliErrors } from "../errors.ts";
import { exitCodes } from "../exit-codes.ts";
import { listUsers, putUser, removeUser } from "./user-node.ts";

const file: OptionSpec = {
  flags: "--file <path>",
  doc: "password file (authentication.passwordFile); without it: the store of a node",
};
const scram: OptionSpec = {
  flags: "--scram",
  doc: "hash for SCRAM-SHA-256 logins too; passwords work as well",
};
const name = { name: "<name>", doc: "name of the user" };

const add: Command = {
  name: "add",
  summary: "add a user; its password is read from standard input",
  arguments: [name],
  options: [file, scram, ...targetOptions],
  examples: [
    "user add alice --file users.txt < password.txt",
    "user add meter --scram < password.txt",
  ],
  run: (input) => setPassword(input, "add"),
};

const passwd: Command = {
  name: "passwd",
  summary: "change a user's password, read from standard input",
  arguments: [name],
  options: [file, scram, ...targetOptions],
  examples: [
    "user passwd alice --file users.txt < password.txt",
    "user passwd meter --scram < password.txt",
  ],
  run: (input) => setPassword(input, "passwd"),
};

const rm: Command = {
  name: "rm",
  summary: "remove a user",
  arguments: [name],
  options: [file, ...targetOptions],
  examples: ["user rm alice --file users.txt", "user rm meter"],
  run: async (input) => {
    if (!input.options.has("file")) return removeUser(input, nameOf(input));
    const { path, users, text } = open(input);
    const user = nameOf(input);
    if (!users.has(user)) throw cliErrors.usage({ reason: `no user ${quoted(user)} in ${path}` });
    save(path, editPasswordFile(text, user, undefined));
    input.io.out(`removed ${quoted(user)}\n`);
    return exitCodes.ok;
  },
};

const list: Command = {
  name: "list",
  summary: "list users and how their passwords are hashed",
  options: [file, ...pageOptions, ...targetOptions],
  examples: ["user list --file users.txt", "user list --all"],
  run: async (input) => {
    if (!input.options.has("file")) return listUsers(input);
    const { users } = open(input);
    for (const [user, hash] of [...users].sort()) {
      input.io.out(`${user}\t${formNames[hash.split("$")[1] ?? ""] ?? "unknown"}\n`);
    }
    return exitCodes.ok;
  },
};

export const user: CommandFamily = {
  name: "user",
  summary: "keep the users of a password file, or of a node",
  commands: [add, passwd, rm, list],
};

const formNames: Readonly<Record<string, string>> = {
  scrypt: "scrypt",
  "scram-sha-256": "SCRAM-SHA-256",
  "7": "PBKDF2-SHA512 (Mosquitto)",
  "6": "SHA-512 (Mosquitto, weak)",
};

async function setPassword(input: CommandInput, verb: "add" | "passwd"): Promise<number> {
  if (!input.options.has("file")) {
    const password = await readPassword(input.io.stdin);
    const expect = verb === "add" ? "new" : "known";
    return putUser(input, nameOf(input), password.toString("utf8"), expect);
  }
  const { path, users, text } = open(input, verb === "add");
  const user = nameOf(input);
  const isThere = users.has(user);
  if (verb === "add" && isThere) {
    throw cliErrors.usage({ reason: `${quoted(user)} is in ${path} already; see user passwd` });
  }
  if (verb === "passwd" && !isThere) {
    throw cliErrors.usage({ reason: `no user ${quoted(user)} in ${path}; see user add` });
  }
  const password = await readPassword(input.io.stdin);
  const hash = input.options.isOn("scram")
    ? await hashForScram(password, systemRandom)
    : await hashPassword(password, systemRandom);
  save(path, editPasswordFile(text, user, hash));
  input.io.out(`${verb === "add" ? "added" : "changed"} ${quoted(user)}\n`);
  return exitCodes.ok;
}

function nameOf({ arguments: [user = ""] }: CommandInput): string {
  const fault = userNameFault(user);
  if (fault !== undefined) throw cliErrors.usage({ reason: fault });
  return user;
}

type OpenedFile = { readonly path: string; readonly text: string; readonly users: UserTable };

/** @throws BROKER_USERS_INVALID: a broken file is not made worse. */
function open({ options }: CommandInput, mayBeNew = false): OpenedFile {
  const path = options.text("file");
  if (path === undefined) throw cliErrors.usage({ reason: "--file is missing" });
  if (mayBeNew && !existsSync(path)) return { path, text: "", users: new Map() };
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    throw cliErrors.unreadableFile({ path, reason: toError(error).message }, error);
  }
  return { path, text, users: parsePasswordFile(text) };
}

const ownerOnly = 0o600;
const groupMayRead = 0o040;

function save(path: string, text: string): void {
  const beside = `${path}.${randomBytes(6).toString("hex")}.new`;
  try {
    writeFileSync(beside, text, { mode: ownerOnly, flag: "wx", flush: true });
    const before = statSync(path, { throwIfNoEntry: false });
    if (before !== undefined) {
      if (process.getuid?.() === 0) chownSync(beside, before.uid, before.gid);
      chmodSync(beside, ownerOnly | (before.mode & groupMayRead));
    }
    renameSync(beside, path);
  } catch (error) {
    throw cliErrors.unwritableFile({ path, reason: toError(error).message }, error);
  }
}

const passwordBytesMax = 1024;

/** The first line. */
async function readPassword(stdin: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of stdin) {
    const bytes = Buffer.from(chunk);
    chunks.push(bytes);
    sizeBytes += bytes.length;
    if (bytes.includes(0x0a) || sizeBytes > passwordBytesMax) break;
  }
  const line = Buffer.concat(chunks).toString("utf8").split(/\r?\n/, 1)[0] ?? "";
  if (line === "") throw cliErrors.usage({ reason: "no password on standard input" });
  if (Buffer.byteLength(line) > passwordBytesMax) {
    throw cliErrors.usage({ reason: `the password is longer than ${passwordBytesMax} bytes` });
  }
  return Buffer.from(line);
}

function quoted(text: string): string {
  return JSON.stringify(text);
}
