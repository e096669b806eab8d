// What the flags of `config-flags.ts` mean: `--data` and the like are shorthand for one key each and
// win over `--set`.

import { type Config, readConfig } from "../node/config/config.ts";
import { openConfigFile, readSecretFile } from "../node/config/files.ts";
import type { Assignment } from "../node/config/raw.ts";
import type { CommandInput } from "./command.ts";

const shorthands = [
  ["data", "--data", ["data", "dir"]],
  ["host", "--host", ["listeners", "tcp", "host"]],
  ["port", "--port", ["listeners", "tcp", "port"]],
] as const;

/** @throws CLI_USAGE, CONFIG_INVALID, CONFIG_FILE_UNREADABLE. */
export function configOf({ options, io }: CommandInput, file = options.text("config")): Config {
  const flags: Assignment[] = adminFlags(options.text("adminPort"));
  for (const [name, label, path] of shorthands) {
    const text = options.text(name);
    if (text !== undefined) flags.push({ path, text, place: { kind: "flag", label } });
  }
  return readConfig({
    ...(file === undefined ? {} : { file: openConfigFile(file) }),
    environment: io.environment,
    readSecret: readSecretFile,
    set: options.texts("set"),
    flags,
  });
}

/** One flag for two keys: who names a port wants one, `off` wants none. */
function adminFlags(text: string | undefined): Assignment[] {
  if (text === undefined) return [];
  const place = { kind: "flag", label: "--admin-port" } as const;
  const isOn = text !== "off";
  const enabled: Assignment = { path: ["admin", "enabled"], text: String(isOn), place };
  return isOn ? [enabled, { path: ["admin", "port"], text, place }] : [enabled];
}
