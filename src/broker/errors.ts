// Errors that leave the broker, and the MQTT reason codes that errors of lower rooms become. Lower
// rooms know nothing of reason codes: the maps stand here, by kind, with the few codes that need an
// answer of their own.

import { type CodedError, defineErrors, isCodedError } from "../base/index.ts";
import { type ReasonCode, reason } from "../mqtt/index.ts";

export const brokerErrors = defineErrors({
  closed: {
    code: "BROKER_CLOSED",
    kind: "closed",
    message: "the broker is stopping",
    help: "Connect again once it has started.",
  },
  publishDenied: {
    code: "BROKER_PUBLISH_DENIED",
    kind: "invalid",
    message: "client {clientId} may not publish to {topic}",
    help: "Give the client the right to publish there, or make it use another topic.",
  },
  usersInvalid: {
    code: "BROKER_USERS_INVALID",
    kind: "invalid",
    message: "password file cannot be used: {reason}",
    help: "Each line is name:hash; `flagstone user` writes them. A node that runs keeps the old ones.",
  },
  hookUnreadable: {
    code: "BROKER_HOOK_UNREADABLE",
    kind: "invalid",
    message: "the http method's answer has another form",
    help: 'It is JSON with "result": allow, deny or ignore; docs/operating/security.md has the rest.',
  },
  rulesInvalid: {
    code: "BROKER_RULES_INVALID",
    kind: "invalid",
    message: "{what} cannot be used: {reason}",
    help: "docs/operating/security.md has the grammar. A node that runs keeps the old rules.",
  },
});

/** What PUBACK and PUBREC say when a message could not be stored. */
export function publishReason(error: CodedError): ReasonCode {
  if (error.code === "SESSION_RETAINED_TOPIC_TOO_LONG") return reason.topicNameInvalid;
  if (error.kind === "limit" || error.code === "STORE_WRITE_BUFFER_FULL") {
    return reason.quotaExceeded;
  }
  return reason.implementationSpecificError;
}

/** What CONNACK says when the session could not be made or resumed. */
export function connectReason(error: unknown): ReasonCode {
  if (isCodedError(error, "SESSION_USER_MISMATCH")) return reason.notAuthorized;
  if (isCodedError(error) && error.kind === "limit") return reason.quotaExceeded;
  return reason.serverUnavailable;
}

/**
 * Trying the same later may help: the message is held back instead of refused. A limit passes when it
 * is the store's own (disk, quota), which then refuses everything; the others are the message's.
 */
export function mayPass(error: CodedError, isStoreRefusing: boolean): boolean {
  return error.kind === "retry" || (error.kind === "limit" && isStoreRefusing);
}
