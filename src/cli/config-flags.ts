// The flags that commands with a configuration share. `config-options.ts` reads what they mean, and
// loads all that a configuration is.

import type { OptionSpec } from "./command.ts";

export const configOptions: readonly OptionSpec[] = [
  { flags: "--config <file>", doc: "configuration file (YAML)" },
  { flags: "--set <path=value>", doc: "one key, such as mqtt.publishWait=15s", repeats: true },
  { flags: "--data <dir>", doc: "data directory (data.dir)" },
  { flags: "--host <address>", doc: "address to bind (listeners.tcp.host)" },
  { flags: "--port <port>", doc: "port for MQTT, 0 for any (listeners.tcp.port)" },
  {
    flags: "--admin-port <port|off>",
    doc: "port of the HTTP interface, or off (admin.port, admin.enabled)",
  },
];
