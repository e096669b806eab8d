// Files that security is made of: read whole or not at all, and only when it is plain that nobody is
// in the middle of writing them.

import { promises as fs } from "node:fs";
import { setImmediate } from "node:timers/promises";
import { type Logger, toError } from "../../base/index.ts";
import type { Slices } from "../../broker/index.ts";
import { nodeErrors } from "../errors.ts";

const mebibyte = 1024 * 1024;
const linesMebibytesMax = 64;
/** Keys and certificates are parsed in one go: as much as a URL of keys may answer. */
const keysMebibytesMax = 1;
const othersMayRead = 0o004;
const othersMayWrite = 0o002;

/** Keys or certificates. @throws NODE_SECURITY_FILE_UNREADABLE. */
export function readSecurityFile(path: string): Promise<string> {
  return readWhole(path, keysMebibytesMax);
}

async function readWhole(path: string, mebibytesMax: number): Promise<string> {
  try {
    const { size } = await fs.stat(path);
    if (size > mebibytesMax * mebibyte) throw new Error(`it is larger than ${mebibytesMax} MiB`);
    return await fs.readFile(path, "utf8");
  } catch (error) {
    throw nodeErrors.securityFileUnreadable({ path, reason: toError(error).message }, error);
  }
}

/** Between the slices everybody else has a turn. */
export async function inSlices<T>(slices: Slices<T>): Promise<T> {
  for (;;) {
    const slice = slices.next();
    if (slice.done) return slice.value;
    await setImmediate();
  }
}

/**
 * A file of lines. One that does not end in a line end is half written, or was cut: what is missing
 * might be a denial.
 * @throws NODE_SECURITY_FILE_UNREADABLE.
 */
export async function readLines(path: string): Promise<string> {
  const text = await readWhole(path, linesMebibytesMax);
  if (text === "" || text.endsWith("\n")) return text;
  const reason = "its last line does not end; is somebody writing it?";
  throw nodeErrors.securityFileUnreadable({ path, reason });
}

/** Says so when everybody on the machine can read a secret, or change what decides who may enter. */
export async function warnWhenOpen(
  path: string,
  kind: "secret" | "public",
  logger: Logger,
): Promise<void> {
  try {
    const { mode } = await fs.stat(path);
    if (kind === "secret" && (mode & othersMayRead) !== 0) {
      logger.warn("node.secret_file_open", { path, mode: modeText(mode) });
    }
    if ((mode & othersMayWrite) !== 0) {
      logger.warn("node.security_file_writable", { path, mode: modeText(mode) });
    }
  } catch {
    // Reading it says what is wrong.
  }
}

function modeText(mode: number): string {
  return `0${(mode & 0o777).toString(8)}`;
}
