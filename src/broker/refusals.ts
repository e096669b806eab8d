// The MQTT reason codes that errors of lower rooms become. Lower rooms know nothing of reason codes:
// the maps stand here, by kind, with the few codes that need an answer of their own.

import { type CodedError, isCodedError } from "../base/index.ts";
import { type ReasonCode, reason } from "../mqtt/index.ts";

/** What PUBACK and PUBREC say when a message could not be stored. */
export function publishReason(error: CodedError): ReasonCode {
  if (error.code === "SESSION_RETAINED_TOPIC_TOO_LONG") return reason.topicNameInvalid;
  if (error.kind === "limit" || error.code === "STORE_WRITE_BUFFER_FULL") {
    return reason.quotaExceeded;
  }
  return reason.implementationSpecificError;
}

/** What a connection ends with whose message could not be stored, where that is its fault. */
export function endReason(error: CodedError): ReasonCode {
  const isFormer = error.code === "STORE_OWNER_FENCED";
  return isFormer ? reason.sessionTakenOver : reason.implementationSpecificError;
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
