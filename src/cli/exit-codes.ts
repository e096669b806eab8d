// Exit codes, stable for scripts and service managers, by code first and by kind then.

import { CodedError } from "../base/index.ts";

export const exitCodes = {
  ok: 0,
  failed: 1,
  usage: 2,
  badConfiguration: 3,
  cannotStartOrReach: 4,
  storageFailed: 5,
  ourBug: 70,
} as const;

export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes];

export const exitCodeHelp: Readonly<Record<keyof typeof exitCodes, string>> = {
  ok: "done",
  failed: "not done: refused, or timed out",
  usage: "the command line is wrong",
  badConfiguration: "the configuration is wrong; nothing was started or changed",
  cannotStartOrReach: "the node cannot start, or the broker cannot be reached",
  storageFailed: "the storage failed while running; mend the volume, then start again",
  ourBug: "a fault of Flagstone itself; please report it",
};

/** Rooms below the broker: what leaves them ends a start, or a node that had started. */
const storageRooms = ["DISK_", "KV_", "LOG_", "STORE_", "SESSION_"];

const byCode: ReadonlyArray<readonly [prefix: string, exit: ExitCode]> = [
  ["ADMIN_CALL_FAILED", exitCodes.cannotStartOrReach],
  ["CLI_USAGE", exitCodes.usage],
  ["CLI_FILE_UNREADABLE", exitCodes.usage],
  ["CLI_CONNECT", exitCodes.cannotStartOrReach],
  ["CLI_", exitCodes.failed],
  ["CONFIG_", exitCodes.badConfiguration],
  ["NODE_FAILED", exitCodes.storageFailed],
  ["NODE_", exitCodes.cannotStartOrReach],
  ["CLUSTER_", exitCodes.cannotStartOrReach],
  ["RAFT_", exitCodes.cannotStartOrReach],
];

/** The exit code for an error that ends a command. Anything without a code is our bug. */
export function exitCodeOf(error: unknown): ExitCode {
  if (!(error instanceof CodedError)) return exitCodes.ourBug;
  // A node answered: it is there, and its storage is its own matter. Its configuration is the caller's.
  if (typeof error.details.status === "number") {
    return error.code.startsWith("CONFIG_") ? exitCodes.badConfiguration : exitCodes.failed;
  }
  const found = byCode.find(([prefix]) => error.code.startsWith(prefix));
  if (found !== undefined) return found[1];
  const isStorage = storageRooms.some((room) => error.code.startsWith(room));
  if (isStorage && error.kind === "internal") return exitCodes.storageFailed;
  if (isStorage) return exitCodes.cannotStartOrReach;
  return error.kind === "internal" ? exitCodes.ourBug : exitCodes.failed;
}
