// How connections end, as counters and the log tell it.

import { type ConnectionEnd, type ReasonCode, reason, reasonName } from "../mqtt/index.ts";
import type { ConnectionParts } from "./connection-parts.ts";
import type { BrokerCounters } from "./counters.ts";

type EndParts = Pick<ConnectionParts, "log" | "counters" | "flapping" | "settings" | "clock">;

type Ended = {
  readonly clientId: string;
  readonly remote: string;
  readonly isAccepted: boolean;
  /** The broker stops: its log does not name every client that it lets go. */
  readonly isStopping: boolean;
};

export function reportEnd(parts: EndParts, end: ConnectionEnd, ended: Ended): void {
  const { log, counters } = parts;
  const { cause, reasonCode, error } = end;
  const { isAccepted, isStopping, ...names } = ended;
  countEnd(counters, end, isAccepted);
  const isTakenOver = reasonCode === reason.sessionTakenOver;
  if (isTakenOver) noteTakeover(parts, names);
  const fields = { ...names, cause, reason: reasonName(reasonCode) };
  if (cause === "client_disconnect" || cause === "transport" || isTakenOver) {
    log.debug("broker.connection_ended", fields);
  } else if (!isStopping) {
    const why = error === undefined ? fields : { ...fields, error: error.message };
    log.warn(cause === "refused" ? "broker.connect_refused" : "broker.connection_ended", why);
  }
}

export function noteTakeover(parts: EndParts, names: Pick<Ended, "clientId" | "remote">): void {
  const { flapping, counters, log, settings, clock } = parts;
  if (!flapping.note(names.clientId, clock.elapsedMs())) return;
  counters.clientsFlapping++;
  const { takeoversMax, windowMs } = settings.flapping;
  log.warn("broker.client_flapping", { ...names, takeovers: takeoversMax, windowMs });
}

function countEnd(counters: BrokerCounters, end: ConnectionEnd, isAccepted: boolean): void {
  switch (end.cause) {
    case "client_disconnect":
      if (end.publishWill) counters.disconnectsWithWill++;
      else counters.disconnects++;
      return;
    case "keep_alive":
      counters.endsKeepAlive++;
      return;
    case "connect_timeout":
      counters.connectTimeouts++;
      return;
    case "transport":
      counters.endsTransport++;
      return;
    case "protocol_error":
      counters.endsProtocolError++;
      return;
    default:
      countServerEnd(counters, end.reasonCode, isAccepted);
  }
}

function countServerEnd(
  counters: BrokerCounters,
  reasonCode: ReasonCode,
  isAccepted: boolean,
): void {
  if (reasonCode === reason.sessionTakenOver) {
    counters.takeovers++;
  } else if (isAccepted) {
    counters.endsServer++;
  } else {
    counters.clientsRefused++;
    if (reasonCode === reason.badUserNameOrPassword) counters.clientsBadCredentials++;
    if (reasonCode === reason.notAuthorized) counters.clientsNotAuthorized++;
    if (reasonCode === reason.serverUnavailable) counters.clientsUnavailable++;
    if (reasonCode === reason.connectionRateExceeded) counters.clientsHeld++;
  }
}
