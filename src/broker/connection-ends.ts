// How connections end, as counters tell it.

import { type ConnectionEnd, type ReasonCode, reason } from "../mqtt/index.ts";
import type { BrokerCounters } from "./counters.ts";

export function countEnd(counters: BrokerCounters, end: ConnectionEnd, isAccepted: boolean): void {
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
  }
}
