// How a connection of `pub` and `sub` ends, as an error: its kind says whether coming back may help.
// Somebody whom the broker refused, or whose client id another client took, must not come back by
// himself: he would throw the other one out again.

import { type CodedError, isCodedError } from "../base/index.ts";
import { type ClientEnd, type ReasonCode, reason, reasonName } from "../mqtt/index.ts";
import { cliErrors } from "./errors.ts";
import type { ClientOptions } from "./mqtt-client.ts";

/** REQUIRES: not the client's own end. */
export function endError(end: ClientEnd, options: ClientOptions, address: string): CodedError {
  const said = end.properties.reasonString;
  const text = said === undefined ? nameOf(end, options) : `${nameOf(end, options)}: ${said}`;
  if (end.cause === "refused") {
    const passing = options.version === 5 ? refusalsThatPass : returnCodesThatPass;
    if (!passing.has(end.reasonCode)) return cliErrors.connectRefused({ address, reason: text });
    return cliErrors.connectFailed({ address, reason: `the broker says ${text}` });
  }
  if (end.cause === "protocol_error") {
    const why = end.error?.message ?? text;
    return cliErrors.disconnected({ address, reason: `it broke the protocol: ${why}` }, end.error);
  }
  if (end.cause === "server_disconnect" && !endsThatPass.has(end.reasonCode)) {
    return cliErrors.disconnected({ address, reason: text });
  }
  return cliErrors.connectionLost({ address, reason: text });
}

/** What the network says, without the address: the sentence around it has that already. */
export function reasonOf(error: Error): string {
  if (isCodedError(error, "NETWORK_REFUSED")) return "nobody listens there";
  if (!isCodedError(error)) return error.message;
  const { errno } = error.details;
  return errno === undefined ? error.message : String(errno);
}

/** CONNACK return codes of 3.1 and 3.1.1. */
const returnCodes: Readonly<Record<number, string>> = {
  1: "it does not speak this version of MQTT",
  2: "it does not like this client id",
  3: "server unavailable",
  4: "bad user name or password",
  5: "not authorized",
};

function nameOf({ cause, reasonCode }: ClientEnd, { version }: ClientOptions): string {
  const old = cause === "refused" && version < 5 ? returnCodes[reasonCode] : undefined;
  return old ?? reasonName(reasonCode);
}

/** A broker that starts, stops or is full may take us later. */
const returnCodesThatPass = new Set<ReasonCode>([3]);
const refusalsThatPass = new Set<ReasonCode>([
  reason.serverUnavailable,
  reason.serverBusy,
  reason.connectionRateExceeded,
]);

/** Ends after which coming back throws nobody out and meets no standing refusal. */
const endsThatPass = new Set<ReasonCode>([
  reason.normalDisconnection,
  reason.unspecifiedError,
  reason.serverBusy,
  reason.serverShuttingDown,
  reason.keepAliveTimeout,
  reason.connectionRateExceeded,
  reason.maximumConnectTime,
]);
