// The configuration as commands that work on a stopped member need it.

import type { Settings } from "../../node/config/keys.ts";
import type { CommandInput } from "../command.ts";
import { cliErrors } from "../errors.ts";

/** Loaded by those who need it: `cluster status` has its first output sooner. */
export async function settingsOf(input: CommandInput): Promise<Settings> {
  const { configOf } = await import("../config-options.ts");
  return configOf(input).settings;
}

/** @throws CLI_USAGE for the keys of a node by itself, or, to come in, of a first member. */
export function memberOf({ cluster }: Settings, to: "comeIn" | "recover"): Settings["cluster"] {
  if (cluster.name === "") {
    const reason = "cluster.name is missing: the configuration is that of a node by itself";
    throw cliErrors.usage({ reason });
  }
  if (cluster.expect === 0 || to === "recover") return cluster;
  const reason =
    "cluster.expect and cluster.seeds form a cluster at the first start; leave them out";
  throw cliErrors.usage({ reason });
}
