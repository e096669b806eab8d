// Errors that leave the session room. Which MQTT reason code answers one is the broker's business.

import { defineErrors } from "../base/index.ts";

export const sessionErrors = defineErrors({
  userMismatch: {
    code: "SESSION_USER_MISMATCH",
    kind: "invalid",
    message: "the session of client {clientId} belongs to another user",
    help: "Give the client an id of its own, or end the other user's session first.",
  },
  userFull: {
    code: "SESSION_USER_FULL",
    kind: "limit",
    message: "user {user} has {max} durable sessions already, as many as sessions.perUserMax lets",
    help: "End some of them, give clients other users, or raise sessions.perUserMax.",
  },
  overtaken: {
    code: "SESSION_OVERTAKEN",
    kind: "retry",
    message: "client {clientId} has connected to another node meanwhile",
    help: "Two connections of one client id came at the same time; one of them is served. See that no two clients have the same id.",
  },
  stopped: {
    code: "SESSION_STOPPED",
    kind: "closed",
    message: "the session of client {clientId} is no longer attached to this connection",
    help: "The client has connected again or the connection has ended; nothing to do.",
  },
  closed: {
    code: "SESSION_ROOM_CLOSED",
    kind: "closed",
    message: "sessions are closed: the broker is stopping",
    help: "Connect again once the broker has started.",
  },
  recordCorrupt: {
    code: "SESSION_RECORD_CORRUPT",
    kind: "corrupt",
    message: "session record {record} cannot be read: {reason}",
    help: "The stored session is damaged; discard it with a clean start or restore a backup.",
  },
  recordVersion: {
    code: "SESSION_RECORD_VERSION",
    kind: "corrupt",
    message: "session record {record} has version {version}; this build reads up to {known}",
    help: "The data directory was written by a newer Flagstone; run that version.",
  },
  pageInvalid: {
    code: "SESSION_PAGE_INVALID",
    kind: "invalid",
    message: "{what} of the page cannot be used; at most {max} entries at a time",
    help: "Give a countMax from 1, and as `after` nothing but the `next` of the page before.",
  },
  retainedTopicTooLong: {
    code: "SESSION_RETAINED_TOPIC_TOO_LONG",
    kind: "limit",
    message: "a retained topic has at most {max} bytes, this one has {size}",
    help: "Shorten the topic, or publish it without RETAIN.",
  },
});
