// Which node a command asks, and with which key: flags, then the environment, then the chosen context,
// then this machine. Contexts are a file of the user, mode 0600, since it holds keys; they are never
// printed, and a saved key goes to the address that it was saved for and to no other.

import { chmodSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import {
  type AdminClient,
  type AdminClientOptions,
  createAdminClient,
} from "../../admin/client.ts";
import { toError } from "../../base/index.ts";
import type { CommandInput, Io, OptionSpec } from "../command.ts";
import { cliErrors } from "../errors.ts";

const urlOption: OptionSpec = {
  flags: "--url <url>",
  doc: "the node's HTTP address (FLAGSTONE_URL)",
};
const contextOption: OptionSpec = {
  flags: "--context <name>",
  doc: "which of the saved contexts",
};

/** For what needs no key. */
export const urlOptions: readonly OptionSpec[] = [urlOption, contextOption];
export const targetOptions: readonly OptionSpec[] = [
  urlOption,
  { flags: "--key <key>", doc: "API key (better: FLAGSTONE_KEY, or a context)" },
  contextOption,
];

export const urlDefault = "http://127.0.0.1:18083";

export type Context = { readonly url: string; readonly key?: string };
export type Contexts = {
  readonly current: string | undefined;
  readonly contexts: Readonly<Record<string, Context>>;
};

type Asking = Pick<CommandInput, "options" | "io">;

/** @throws CLI_USAGE, CLI_FILE_UNREADABLE. */
export function targetUrlOf({ options, io }: Asking, saved = contextOf(options, io)): string {
  const given = options.text("url") ?? io.environment.FLAGSTONE_URL;
  return checkUrl(given ?? saved?.url ?? urlDefault);
}

/** @throws CLI_USAGE, CLI_FILE_UNREADABLE. */
export function clientOf(asking: Asking): AdminClient {
  return createAdminClient(targetOf(asking));
}

/** @throws CLI_USAGE, CLI_FILE_UNREADABLE. */
export function targetOf({ options, io }: Asking): AdminClientOptions {
  const saved = contextOf(options, io);
  const url = targetUrlOf({ options, io }, saved);
  const isSaved = saved !== undefined && isSameAddress(url, saved.url);
  const key =
    options.text("key") ?? io.environment.FLAGSTONE_KEY ?? (isSaved ? saved.key : undefined);
  return { url, ...(key === undefined ? {} : { key }) };
}

/** REQUIRES: both were checked. */
function isSameAddress(one: string, other: string): boolean {
  const [left, right] = [new URL(one), new URL(other)];
  return left.origin === right.origin && left.pathname === right.pathname;
}

/** @throws CLI_USAGE. */
export function checkUrl(text: string): string {
  try {
    const { protocol } = new URL(text);
    if (protocol === "http:" || protocol === "https:") return text;
  } catch {
    // Said below.
  }
  throw cliErrors.usage({
    reason: `--url expects an address such as ${urlDefault}, got "${text}"`,
  });
}

function contextOf(options: CommandInput["options"], io: Io): Context | undefined {
  const wanted = options.text("context");
  const { current, contexts } = readContexts(io);
  const name = wanted ?? io.environment.FLAGSTONE_CONTEXT ?? current;
  if (name === undefined) return undefined;
  const found = Object.hasOwn(contexts, name) ? contexts[name] : undefined;
  if (found !== undefined) return found;
  const known = Object.keys(contexts).join(", ") || "none";
  throw cliErrors.usage({ reason: `there is no context "${name}" (there are: ${known})` });
}

function contextsPath({ environment }: Io): string {
  const folder = environment.XDG_CONFIG_HOME ?? join(environment.HOME ?? homedir(), ".config");
  return join(folder, "flagstone", "contexts.json");
}

const none: Contexts = { current: undefined, contexts: {} };

/** @throws CLI_FILE_UNREADABLE. */
export function readContexts(io: Io): Contexts {
  const path = contextsPath(io);
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    const { code, message } = toError(error) as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return none;
    throw cliErrors.unreadableFile({ path, reason: message }, error);
  }
  const found = parseContexts(text);
  if (found === undefined) {
    throw cliErrors.unreadableFile({ path, reason: "it is not what this program wrote" });
  }
  return found;
}

function parseContexts(text: string): Contexts | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    // The caller says which file it is.
    return undefined;
  }
  const { current, contexts } = (parsed ?? {}) as { current?: unknown; contexts?: unknown };
  if (typeof contexts !== "object" || contexts === null) return undefined;
  const isGood = Object.values(contexts).every((each: unknown) => {
    const { url, key } = (each ?? {}) as { url?: unknown; key?: unknown };
    const hasKey = ["string", "undefined"].includes(typeof key);
    return typeof url === "string" && URL.canParse(url) && hasKey;
  });
  if (!isGood) return undefined;
  return {
    current: typeof current === "string" ? current : undefined,
    contexts: contexts as Contexts["contexts"],
  };
}

export function writeContexts(io: Io, contexts: Contexts): void {
  const path = contextsPath(io);
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    writeFileSync(`${path}.new`, `${JSON.stringify(contexts, null, 2)}\n`, { mode: 0o600 });
    chmodSync(`${path}.new`, 0o600);
    renameSync(`${path}.new`, path);
  } catch (error) {
    throw cliErrors.unreadableFile({ path, reason: toError(error).message }, error);
  }
}
