// All commands with their line of the overview. Modules are loaded when they are run.

import type { Command, CommandFamily } from "../command.ts";

export type CommandRow = {
  readonly name: string;
  readonly summary: string;
  readonly load: () => Promise<Command | CommandFamily>;
};

export const commandRows: readonly CommandRow[] = [
  {
    name: "start",
    summary: "run a node",
    load: async () => (await import("./start.ts")).start,
  },
  {
    name: "pub",
    summary: "publish messages",
    load: async () => (await import("./pub.ts")).pub,
  },
  {
    name: "sub",
    summary: "subscribe and print messages",
    load: async () => (await import("./sub.ts")).sub,
  },
  {
    name: "config",
    summary: "check and show the configuration",
    load: async () => (await import("./config.ts")).config,
  },
  {
    name: "user",
    summary: "keep the users of a password file",
    load: async () => (await import("./user.ts")).user,
  },
  {
    name: "acl",
    summary: "check a rule file",
    load: async () => (await import("./acl.ts")).acl,
  },
  {
    name: "explain",
    summary: "explain an error code",
    load: async () => (await import("./explain.ts")).explain,
  },
  {
    name: "version",
    summary: "print the version",
    load: async () => (await import("./version.ts")).versionCommand,
  },
];
