// Every operation of the HTTP API as plain data: where it is, who may use it, what it is for. Bodies
// and answers are in contract.ts under the same names. Routes, OpenAPI document, typed client, command
// line and reference page all come from these two tables.
//
// Invariants: a name is never given a second meaning; what a role may do, a higher one may as well;
// whatever changes anything is a `change` and is written to the audit log.

/** viewer: looks, sees no payloads. operator: sees payloads, ends and purges. admin: everything. */
export const roles = ["viewer", "operator", "admin"] as const;
export type Role = (typeof roles)[number];

export type Method = "get" | "post" | "put" | "patch" | "delete";

export type OperationRow = {
  readonly method: Method;
  /** Below `/api/v1`; `{name}` is a parameter. */
  readonly path: string;
  readonly role: Role;
  readonly tag: string;
  readonly summary: string;
  /** Changes something: audited. */
  readonly change?: true;
  /** Works before the node is ready, and while it drains. */
  readonly always?: true;
};

export const apiPrefix = "/api/v1";

export const operations = {
  getStatus: {
    ...{ method: "get", path: "/status", role: "viewer", tag: "node", always: true },
    summary: "What runs here: version, state, addresses, counts, rates, space",
  },
  getHealth: {
    ...{ method: "get", path: "/health", role: "viewer", tag: "node", always: true },
    summary: "The named checks behind /readyz, each with a sentence",
  },
  listAlarms: {
    ...{ method: "get", path: "/alarms", role: "viewer", tag: "node" },
    summary: "What an operator should know of now",
  },
  runDoctor: {
    ...{ method: "get", path: "/doctor", role: "operator", tag: "node", always: true },
    summary: "Look at descriptors, clock, disk, ports and versions, with advice",
  },
  listClients: {
    ...{ method: "get", path: "/clients", role: "viewer", tag: "clients" },
    summary: "Connected clients, in order of client id",
  },
  getClient: {
    ...{ method: "get", path: "/clients/{clientId}", role: "viewer", tag: "clients" },
    summary: "One connected client",
  },
  kickClient: {
    ...{ method: "delete", path: "/clients/{clientId}", role: "operator", tag: "clients" },
    summary: "End a client's connection (0x98); its session stays",
    change: true,
  },
  listSessions: {
    ...{ method: "get", path: "/sessions", role: "viewer", tag: "sessions" },
    summary: "Durable sessions, in order of client id; filters read no more than they return",
  },
  getSession: {
    ...{ method: "get", path: "/sessions/{clientId}", role: "viewer", tag: "sessions" },
    summary: "One durable session with its subscriptions and will",
  },
  peekBacklog: {
    ...{ method: "get", path: "/sessions/{clientId}/backlog", role: "viewer", tag: "sessions" },
    summary: "Messages that wait, in the order of delivery, consuming none",
  },
  purgeSessions: {
    ...{ method: "post", path: "/sessions/purge", role: "operator", tag: "sessions" },
    summary: "Drop the backlog of every session that matches; a dry run tells which",
    change: true,
  },
  endSessions: {
    ...{ method: "post", path: "/sessions/end", role: "operator", tag: "sessions" },
    summary: "End every session that matches, wills published; a dry run tells which",
    change: true,
  },
  removeSubscription: {
    ...{ method: "delete", path: "/sessions/{clientId}/subscriptions", role: "operator" },
    tag: "sessions",
    summary: "Drop one subscription of a durable session and what waits because of it",
    change: true,
  },
  listSubscriptions: {
    ...{ method: "get", path: "/subscriptions", role: "viewer", tag: "sessions" },
    summary: "Subscriptions of durable sessions and of connected clients, in order of client id",
  },
  listSharedGroups: {
    ...{ method: "get", path: "/shared-groups", role: "viewer", tag: "sessions" },
    summary: "Groups of shared subscriptions, in order of their filters",
  },
  listRetained: {
    ...{ method: "get", path: "/retained", role: "viewer", tag: "messages" },
    summary: "Retained messages whose topic matches a filter",
  },
  getRetained: {
    ...{ method: "get", path: "/retained/message", role: "viewer", tag: "messages" },
    summary: "The retained message of a topic",
  },
  deleteRetained: {
    ...{ method: "post", path: "/retained/delete", role: "operator", tag: "messages" },
    summary: "Clear retained messages by filter; a dry run tells which",
    change: true,
  },
  publish: {
    ...{ method: "post", path: "/publish", role: "operator", tag: "messages" },
    summary: "Publish a message; answered when it is durable",
    change: true,
  },
  queryHistory: {
    ...{ method: "get", path: "/history", role: "viewer", tag: "messages" },
    summary: "Stored messages by filter and time",
  },
  listDatabases: {
    ...{ method: "get", path: "/databases", role: "viewer", tag: "storage" },
    summary: "Databases with their shards, retention and sizes",
  },
  createDatabase: {
    ...{ method: "post", path: "/databases", role: "admin", tag: "storage" },
    summary: "Create a database",
    change: true,
  },
  alterDatabase: {
    ...{ method: "patch", path: "/databases/{database}", role: "admin", tag: "storage" },
    summary: "Change retention, routing or learning of a database",
    change: true,
  },
  dropDatabase: {
    ...{ method: "delete", path: "/databases/{database}", role: "admin", tag: "storage" },
    summary: "Drop a database with all it holds",
    change: true,
  },
  rotateDatabase: {
    ...{ method: "post", path: "/databases/{database}/rotate", role: "operator", tag: "storage" },
    summary: "End the current generation of every shard",
    change: true,
  },
  dropGenerations: {
    ...{ method: "post", path: "/databases/{database}/drop", role: "admin", tag: "storage" },
    summary: "Drop sealed generations that ended before a time",
    change: true,
  },
  listGroups: {
    ...{ method: "get", path: "/groups", role: "viewer", tag: "storage" },
    summary: "Groups with quota, write buffer and work slots",
  },
  listShards: {
    ...{ method: "get", path: "/shards", role: "viewer", tag: "storage" },
    summary: "Shards with position, checkpoint and size",
  },
  listGenerations: {
    ...{ method: "get", path: "/shards/{shard}/generations", role: "viewer", tag: "storage" },
    summary: "Generations of a shard with their slabs, oldest first",
  },
  listStreams: {
    ...{ method: "get", path: "/shards/{shard}/generations/{generation}/streams" },
    ...{ role: "viewer", tag: "storage" },
    summary: "Streams of a slab with their learned structure",
  },
  explainFilter: {
    ...{ method: "get", path: "/explain", role: "viewer", tag: "storage" },
    summary: "Which streams and blocks a filter would read, and advice",
  },
  listHolds: {
    ...{ method: "get", path: "/holds", role: "viewer", tag: "storage" },
    summary: "Holds that keep generations from being dropped",
  },
  putHold: {
    ...{ method: "put", path: "/holds/{hold}", role: "operator", tag: "storage" },
    summary: "Make or move a hold",
    change: true,
  },
  releaseHold: {
    ...{ method: "delete", path: "/holds/{hold}", role: "operator", tag: "storage" },
    summary: "Release a hold",
    change: true,
  },
  listTasks: {
    ...{ method: "get", path: "/tasks", role: "viewer", tag: "tasks" },
    summary: "Long work: running, waiting, ended lately",
  },
  getTask: {
    ...{ method: "get", path: "/tasks/{task}", role: "viewer", tag: "tasks" },
    summary: "One task with its progress",
  },
  startTask: {
    ...{ method: "post", path: "/tasks", role: "operator", tag: "tasks" },
    summary: "Begin long work: verify, compact, repack, drop (role admin) or export",
    change: true,
  },
  removeTask: {
    ...{ method: "delete", path: "/tasks/{task}", role: "operator", tag: "tasks" },
    summary: "Forget a task that has ended, with the file of an export",
    change: true,
  },
  steerTask: {
    ...{ method: "post", path: "/tasks/{task}/{verb}", role: "operator", tag: "tasks" },
    summary: "Pause, resume or cancel a task",
    change: true,
  },
  listTraces: {
    ...{ method: "get", path: "/traces", role: "viewer", tag: "traces" },
    summary: "Traces that run or ended lately",
  },
  startTrace: {
    ...{ method: "post", path: "/traces", role: "operator", tag: "traces" },
    summary: "Write all that a client does, or that happens to topics, to the log for some minutes",
    change: true,
  },
  readTrace: {
    ...{ method: "get", path: "/traces/{trace}/lines", role: "viewer", tag: "traces" },
    summary: "The last lines of a trace; no payloads, no secrets",
  },
  stopTrace: {
    ...{ method: "delete", path: "/traces/{trace}", role: "operator", tag: "traces" },
    summary: "End a trace; its lines stay for a while",
    change: true,
  },
  getConfig: {
    ...{ method: "get", path: "/config", role: "viewer", tag: "configuration" },
    summary: "Every value that holds and where it came from; secrets masked",
  },
  reloadConfig: {
    ...{ method: "post", path: "/config/reload", role: "admin", tag: "configuration" },
    summary: "Read the configuration again, all or nothing; a dry run shows the difference",
    change: true,
  },
  listKeys: {
    ...{ method: "get", path: "/keys", role: "admin", tag: "access", always: true },
    summary: "API keys, without their secrets",
  },
  createKey: {
    ...{ method: "post", path: "/keys", role: "admin", tag: "access", always: true },
    summary: "Make an API key; its secret is answered once",
    change: true,
  },
  deleteKey: {
    ...{ method: "delete", path: "/keys/{key}", role: "admin", tag: "access", always: true },
    summary: "Revoke an API key, at once",
    change: true,
  },
  listUsers: {
    ...{ method: "get", path: "/users", role: "admin", tag: "access" },
    summary: "Users in the node's store, without their hashes",
  },
  putUser: {
    ...{ method: "put", path: "/users/{user}", role: "admin", tag: "access" },
    summary: "Add a user to the store, or change the password",
    change: true,
  },
  deleteUser: {
    ...{ method: "delete", path: "/users/{user}", role: "admin", tag: "access" },
    summary: "Remove a user from the store; who is connected so is let go",
    change: true,
  },
  getRules: {
    ...{ method: "get", path: "/rules", role: "admin", tag: "access" },
    summary: "The rules in the node's store",
  },
  putRules: {
    ...{ method: "put", path: "/rules", role: "admin", tag: "access" },
    summary: "Replace the rules in the store, all or nothing; a dry run checks them",
    change: true,
  },
  getCluster: {
    ...{ method: "get", path: "/cluster", role: "viewer", tag: "cluster" },
    summary: "Sites of the cluster, who answers, and how its groups stand, as this node sees them",
  },
  joinCluster: {
    ...{ method: "post", path: "/cluster/sites", role: "admin", tag: "cluster" },
    summary: "Take a new site in; `flagstone cluster join` asks for it. May be repeated",
    change: true,
  },
  steerSite: {
    ...{ method: "post", path: "/cluster/sites/{node}/{verb}", role: "admin", tag: "cluster" },
    summary: "Evacuate a site, keep one that is evacuated, or forget one that is lost for good",
    change: true,
  },
  moveSite: {
    ...{ method: "put", path: "/cluster/sites/{node}/address", role: "admin", tag: "cluster" },
    summary: "Tell all members where a site is reached now",
    change: true,
  },
  setReplicas: {
    ...{ method: "put", path: "/cluster/replicas", role: "admin", tag: "cluster" },
    summary: "How many replicas shards need: no site goes while fewer would be left",
    change: true,
  },
  listAudit: {
    ...{ method: "get", path: "/audit", role: "admin", tag: "access", always: true },
    summary: "Who changed what, newest first",
  },
} as const satisfies Readonly<Record<string, OperationRow>>;

export type OperationName = keyof typeof operations;

export const operationNames = Object.keys(operations) as OperationName[];

/** Whether a key of role `has` may use what asks for `needs`. */
export function isAllowed(has: Role, needs: Role): boolean {
  return roles.indexOf(has) >= roles.indexOf(needs);
}
