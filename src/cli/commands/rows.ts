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
    summary: "keep the users of a password file, or of a node",
    load: async () => (await import("./user.ts")).user,
  },
  {
    name: "acl",
    summary: "check a rule file, show and replace the rules of a node",
    load: async () => (await import("./acl.ts")).acl,
  },
  {
    name: "status",
    summary: "what runs there and how it does",
    load: async () => (await import("./status.ts")).status,
  },
  {
    name: "health",
    summary: "whether a node is ready, as an exit code",
    load: async () => (await import("./health.ts")).health,
  },
  {
    name: "clients",
    summary: "connected clients",
    load: async () => (await import("./clients.ts")).clients,
  },
  {
    name: "sessions",
    summary: "durable sessions: find, look into, clear",
    load: async () => (await import("./sessions.ts")).sessions,
  },
  {
    name: "subscriptions",
    summary: "subscriptions of durable sessions and connected clients",
    load: async () => (await import("./messages.ts")).subscriptions,
  },
  {
    name: "shared",
    summary: "groups of shared subscriptions",
    load: async () => (await import("./messages.ts")).shared,
  },
  {
    name: "retained",
    summary: "retained messages",
    load: async () => (await import("./messages.ts")).retained,
  },
  {
    name: "history",
    summary: "stored messages by topic filter and time",
    load: async () => (await import("./messages.ts")).history,
  },
  {
    name: "export",
    summary: "stored messages as a file, one JSON object a line",
    load: async () => (await import("./export.ts")).exportCommand,
  },
  {
    name: "databases",
    summary: "databases",
    load: async () => (await import("./storage.ts")).databases,
  },
  {
    name: "groups",
    summary: "groups with quota and use",
    load: async () => (await import("./storage.ts")).groups,
  },
  {
    name: "shards",
    summary: "shards with positions and sizes",
    load: async () => (await import("./storage.ts")).shards,
  },
  {
    name: "slabs",
    summary: "slabs: each generation of each shard",
    load: async () => (await import("./storage.ts")).slabs,
  },
  {
    name: "streams",
    summary: "streams of a slab with their learned structure",
    load: async () => (await import("./storage.ts")).streams,
  },
  {
    name: "holds",
    summary: "holds that keep generations",
    load: async () => (await import("./storage.ts")).holds,
  },
  {
    name: "cluster",
    summary: "sites of a cluster: form, join, look, let go",
    load: async () => (await import("./cluster.ts")).cluster,
  },
  {
    name: "tasks",
    summary: "long work",
    load: async () => (await import("./tasks.ts")).tasks,
  },
  {
    name: "verify",
    summary: "read every stored block and check it",
    load: async () => (await import("./tasks.ts")).verify,
  },
  {
    name: "compact",
    summary: "give back the room of what was deleted",
    load: async () => (await import("./tasks.ts")).compact,
  },
  {
    name: "repack",
    summary: "pack sealed slabs anew: full blocks, nothing that expired",
    load: async () => (await import("./tasks.ts")).repack,
  },
  {
    name: "trace",
    summary: "watch one client or topic for some minutes",
    load: async () => (await import("./trace.ts")).trace,
  },
  {
    name: "alarms",
    summary: "what somebody should look at now",
    load: async () => (await import("./status.ts")).alarms,
  },
  {
    name: "reload",
    summary: "let a node read its configuration again",
    load: async () => (await import("./access.ts")).reload,
  },
  {
    name: "keys",
    summary: "API keys",
    load: async () => (await import("./access.ts")).keys,
  },
  {
    name: "audit",
    summary: "who changed what",
    load: async () => (await import("./access.ts")).audit,
  },
  {
    name: "context",
    summary: "saved addresses and keys of nodes",
    load: async () => (await import("./access.ts")).context,
  },
  {
    name: "doctor",
    summary: "examine a node and its machine, with advice",
    load: async () => (await import("./doctor.ts")).doctor,
  },
  {
    name: "explain",
    summary: "explain an error code, or what reading a topic filter costs",
    load: async () => (await import("./explain.ts")).explain,
  },
  {
    name: "version",
    summary: "print the version",
    load: async () => (await import("./version.ts")).versionCommand,
  },
];
