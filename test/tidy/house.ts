// The facts of this house that the tidy rules read: floors, homes of packages, files that may touch
// the process. Change them here together with docs/architecture.md; the rules themselves are in
// the files named *-rules.ts.

/** Rooms of src/ by floor, bottom first. A floor imports only floors below it. */
export const floors: ReadonlyArray<readonly string[]> = [
  ["base"],
  ["topic", "kv", "log"],
  ["mqtt", "raft"],
  ["store"],
  ["cluster", "contracts"],
  ["session", "queue", "watch"],
  ["broker"],
  ["admin", "aedes", "sink"],
  ["node"],
  ["cli", "ui"],
];

/** Another room is entered only through its index.ts. These doors are open besides: importer, file. */
export const sideDoors: ReadonlyArray<readonly [room: string, file: string]> = [
  ["ui", "src/admin/contract.ts"],
  // A command that asks a node over HTTP loads no server.
  ["cli", "src/admin/client.ts"],
  // `explain CODE` loads the tables of all rooms and none of the rooms.
  ...["topic", "log", "mqtt", "raft", "store", "cluster", "session", "broker", "admin"].map(
    (room): [string, string] => ["cli", `src/${room}/errors.ts`],
  ),
  ["cli", "src/aedes/errors.ts"],
  ["cli", "src/node/errors.ts"],
  ["cli", "src/kv/kv.ts"],
  // Of members of a cluster: a node by itself loads nothing of it.
  ["node", "src/broker/peers/live-routes.ts"],
  ["node", "src/session/across/across.ts"],
  // `cluster init` and `join` work on a directory, and load no node.
  ["cli", "src/node/cluster/offline.ts"],
  // `config`, `user` and `acl` read what a node reads, and load no node.
  ...["config", "files", "json-schema", "keys", "raw", "show"].map((file): [string, string] => [
    "cli",
    `src/node/config/${file}.ts`,
  ]),
  ...["auth/password-file", "auth/password-hash", "acl/rule-file", "acl/rule-access", "access"].map(
    (file): [string, string] => ["cli", `src/broker/${file}.ts`],
  ),
];

/** Rooms that may import nothing but the named files of other rooms. */
export const closedRooms: Readonly<Record<string, readonly string[]>> = {
  ui: ["src/admin/contract.ts"],
};

/**
 * Where a third-party package lives: one file, or a folder when it ends in a slash; a second home
 * is an exception. A package that is not listed may be imported by one file of src/.
 */
export const packageHomes: Readonly<Record<string, string | readonly string[]>> = {
  "classic-level": "src/kv/",
  commander: "src/cli/",
  "@hono/node-server": "src/admin/",
  "@valibot/to-json-schema": "src/admin/",
  hono: "src/admin/",
  preact: "src/ui/",
  // Two contracts are written in it: keys of the configuration, bodies of the HTTP API.
  valibot: ["src/node/config/", "src/admin/"],
  yaml: "src/node/config/",
};

/** Files and folders that may use the clock, randomness, the process and the console themselves. */
export const mayTouchProcess: readonly RegExp[] = [
  /^src\/(node|cli|ui)\//,
  /^src\/base\/(clock|random|sim-clock)\.ts$/,
  /^src\/base\/node-[a-z-]+\.ts$/,
];

/** Tests run on a simulated clock. These test real time or real processes. */
export const testsOnRealTime: readonly RegExp[] = [
  /^test\/(integration|crash|conformance|tidy|support)\//,
  /^test\/unit\/(aedes|base|support|node|cli|scripts)\//,
];

export const fileLinesMax = 600;
/** The formatter holds code to 100; a line of prose may hang over by the end of a word. */
export const lineColumnsMax = 104;
/** A header of more lines is a page of docs/. */
export const headerLinesMax = 14;

export function floorOf(room: string): number {
  return floors.findIndex((rooms) => rooms.includes(room));
}

/** `src/store/core/lts.ts` -> `store`; undefined outside the rooms of src/. */
export function roomOf(path: string): string | undefined {
  return /^src\/([^/]+)\//.exec(path)?.[1];
}
