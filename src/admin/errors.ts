// What can go wrong at the HTTP API itself, and which HTTP status an error of any room means there.

import { type CodedError, defineErrors, type ErrorRow } from "../base/index.ts";

export const adminErrors = defineErrors({
  unauthenticated: {
    code: "ADMIN_UNAUTHENTICATED",
    kind: "invalid",
    message: "this needs an API key: {reason}",
    help: "Send `Authorization: Bearer KEY`. The first key was printed at the first start with an admin port.",
  },
  forbidden: {
    code: "ADMIN_FORBIDDEN",
    kind: "invalid",
    message: "{what} needs the role {needs}; this key has the role {has}",
    help: "Use a key of that role; `flagstone keys` lists them.",
  },
  originRefused: {
    code: "ADMIN_ORIGIN_REFUSED",
    kind: "invalid",
    message: "requests from pages of another origin are refused",
    help: "The API is for programs and for its own pages; no other web page may use it.",
  },
  hostRefused: {
    code: "ADMIN_HOST_REFUSED",
    kind: "invalid",
    message: "the host name {host} is not one of this node",
    help: "Use an address or localhost, or add the name to admin.hosts.",
  },
  tooManyFailures: {
    code: "ADMIN_TOO_MANY_FAILURES",
    kind: "limit",
    message: "too many requests with a wrong key from this address; wait a minute",
    help: "Guessing is slowed down. A right key works again after the wait.",
  },
  notFound: {
    code: "ADMIN_NOT_FOUND",
    kind: "invalid",
    message: "there is nothing at {method} {path}",
    help: "See /api/v1/openapi.json for what there is.",
  },
  thingMissing: {
    code: "ADMIN_THING_NOT_FOUND",
    kind: "invalid",
    message: "there is no {thing} {name}",
    help: "It may have ended meanwhile; list them to see what there is.",
  },
  thingExists: {
    code: "ADMIN_THING_EXISTS",
    kind: "conflict",
    message: "there is a {thing} {name} already",
    help: "Choose another name, or change that one.",
  },
  inputInvalid: {
    code: "ADMIN_INPUT_INVALID",
    kind: "invalid",
    message: "{reason}",
    help: "See the operation in /api/v1/openapi.json.",
  },
  bodyTooLarge: {
    code: "ADMIN_BODY_TOO_LARGE",
    kind: "limit",
    message: "the body is larger than {limitBytes} bytes",
    help: "Send less at once.",
  },
  bodyUnreadable: {
    code: "ADMIN_BODY_UNREADABLE",
    kind: "invalid",
    message: "the body is not JSON: {reason}",
    help: "Send one JSON object as application/json.",
  },
  starting: {
    code: "ADMIN_NODE_NOT_READY",
    kind: "retry",
    message: "the node is {state}: this works when it is ready",
    help: "See /startupz and /readyz?verbose.",
  },
  busy: {
    code: "ADMIN_BUSY",
    kind: "limit",
    message: "{what} are at their limit of {max}",
    help: "Try again in a moment.",
  },
  taskState: {
    code: "ADMIN_TASK_STATE",
    kind: "conflict",
    message: "cannot {verb} task {task}: it is {state}",
    help: "Running tasks pause, paused ones resume, both are cancelled; ended ones are forgotten.",
  },
  exportNoRoom: {
    code: "ADMIN_EXPORT_NO_ROOM",
    kind: "limit",
    message:
      "the export has stopped: {freeBytes} bytes are free on the volume, and the node needs them",
    help: "Free space, narrow the filter or the time, or export in parts.",
  },
  lastAdmin: {
    code: "ADMIN_LAST_ADMIN_KEY",
    kind: "conflict",
    message: "this is the last key of the role admin",
    help: "Make another admin key first.",
  },
  keyExists: {
    code: "ADMIN_KEY_EXISTS",
    kind: "conflict",
    message: "there is a key named {name} already",
    help: "Choose another name, or delete that one.",
  },
  reloadUnavailable: {
    code: "ADMIN_RELOAD_UNAVAILABLE",
    kind: "invalid",
    message: "this node was started by a program: it has no configuration to read again",
    help: "Only a node started by `flagstone start` reads its configuration again.",
  },
  unserved: {
    code: "ADMIN_NOT_SERVED",
    kind: "invalid",
    message: "{what}: this is a store node of a cluster (cluster.storeOnly), which serves no MQTT",
    help: "Clients, sessions, subscriptions, retained messages, users and rules are of nodes that serve MQTT.",
  },
  databasesFixed: {
    code: "ADMIN_DATABASES_FIXED",
    kind: "invalid",
    message: "{what} on a cluster in this release",
    help: "Name them in the configuration (`databases`) of all first members before they form the cluster.",
  },
  notClustered: {
    code: "ADMIN_NOT_CLUSTERED",
    kind: "invalid",
    message: "this node runs by itself and is of no cluster",
    help: "See docs/operating/cluster.md: `flagstone cluster init` makes its data the first replica of one.",
  },
  callFailed: {
    code: "ADMIN_CALL_FAILED",
    kind: "retry",
    message: "cannot reach {url}: {reason}",
    help: "Is the node running with an admin port there?",
  },
  callRefused: {
    code: "ADMIN_CALL_REFUSED",
    kind: "invalid",
    message: "{detail}",
    help: "The node refused the request; the sentence says why.",
  },
});

const byCode: Readonly<Record<string, number>> = {
  ADMIN_UNAUTHENTICATED: 401,
  ADMIN_FORBIDDEN: 403,
  ADMIN_ORIGIN_REFUSED: 403,
  ADMIN_HOST_REFUSED: 403,
  ADMIN_NOT_FOUND: 404,
  ADMIN_TOO_MANY_FAILURES: 429,
  ADMIN_BODY_TOO_LARGE: 413,
  ADMIN_BUSY: 429,
  ADMIN_RELOAD_UNAVAILABLE: 501,
  ADMIN_NOT_SERVED: 501,
  ADMIN_NOT_CLUSTERED: 409,
  ADMIN_EXPORT_NO_ROOM: 507,
  STORE_DISK_FULL: 507,
  STORE_QUOTA_EXCEEDED: 507,
};

const byKind: Readonly<Record<ErrorRow["kind"], number>> = {
  retry: 503,
  conflict: 409,
  invalid: 400,
  closed: 503,
  limit: 429,
  corrupt: 500,
  internal: 500,
};

export function statusOf(error: CodedError): number {
  const status = byCode[error.code];
  if (status !== undefined) return status;
  if (/_(NOT_FOUND|MISSING|UNKNOWN)$/.test(error.code)) return 404;
  if (/_EXISTS$/.test(error.code)) return 409;
  return byKind[error.kind];
}
