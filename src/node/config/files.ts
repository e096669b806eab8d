// The two kinds of file that the configuration reads: the file of `--config` and those that hold a
// secret. Synchronous: nothing else happens yet, and a fault ends the start.

import { readFileSync } from "node:fs";
import { toError } from "../../base/index.ts";
import { configErrors } from "../errors.ts";
import type { ConfigSources } from "./config.ts";
import type { ReadSecret } from "./environment.ts";

/** @throws CONFIG_FILE_UNREADABLE. */
export function openConfigFile(path: string): NonNullable<ConfigSources["file"]> {
  try {
    return { name: path, bytes: readFileSync(path) };
  } catch (error) {
    throw configErrors.unreadable({ path, reason: plainReason(error) }, error);
  }
}

export const readSecretFile: ReadSecret = (path) => {
  try {
    return { text: readFileSync(path, "utf8") };
  } catch (error) {
    return { reason: plainReason(error) };
  }
};

const reasons: Readonly<Record<string, string>> = {
  ENOENT: "no such file",
  EACCES: "not permitted for this user",
  EPERM: "not permitted for this user",
  EISDIR: "it is a folder",
  ENOTDIR: "a part of the path is not a folder",
};

function plainReason(error: unknown): string {
  const { code, message } = toError(error) as NodeJS.ErrnoException;
  return reasons[code ?? ""] ?? message;
}
