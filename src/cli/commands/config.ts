// `flagstone config check|show|schema`.

import { configurationSchema, formatSchema } from "../../node/config/json-schema.ts";
import { keyTable } from "../../node/config/keys.ts";
import { showConfig } from "../../node/config/show.ts";
import type { Command, CommandFamily } from "../command.ts";
import { configOptions } from "../config-flags.ts";
import { configOf } from "../config-options.ts";
import { exitCodes } from "../exit-codes.ts";

const check: Command = {
  name: "check",
  summary: "name every fault of the configuration, without starting anything",
  arguments: [{ name: "[file]", doc: "configuration file (as --config)" }],
  options: configOptions,
  examples: ["config check config/flagstone.yaml", "config check --set mqtt.publishWait=15s"],
  run: async (input) => {
    const config = configOf(input, input.arguments[0] ?? input.options.text("config"));
    const given = [...config.effective.values()].filter(({ place }) => place.kind !== "default");
    input.io.out(`configuration is good: ${given.length} of ${config.effective.size} keys given\n`);
    return exitCodes.ok;
  },
};

const show: Command = {
  name: "show",
  summary: "print every value that holds, as a file that can be read back",
  options: [...configOptions, { flags: "--origin", doc: "say where each value came from" }],
  examples: ["config show --origin --config config/flagstone.yaml", "config show > full.yaml"],
  run: async (input) => {
    const { effective } = configOf(input);
    input.io.out(showConfig(effective, { origin: input.options.isOn("origin") }));
    return exitCodes.ok;
  },
};

const schema: Command = {
  name: "schema",
  summary: "print the JSON Schema of the configuration file, for editors",
  options: [],
  examples: ["config schema", "config schema > flagstone.schema.json"],
  run: async ({ io }) => {
    io.out(formatSchema(configurationSchema(keyTable)));
    return exitCodes.ok;
  },
};

export const config: CommandFamily = {
  name: "config",
  summary: "check and show the configuration",
  commands: [check, show, schema],
};
