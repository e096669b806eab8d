// Certificates of listeners as an operator hears of them: an alarm from a fortnight before the end on,
// and a line of the doctor, who reads the files and so needs no running node.

import { createSecureContext } from "node:tls";
import type { Doctor } from "../../admin/index.ts";
import { toError } from "../../base/index.ts";
import type { Alarm } from "../../store/index.ts";
import type { Settings } from "../config/keys.ts";
import {
  certificateWarnMs,
  checkedExpiryMs,
  type ListenerCertificate,
  readMaterial,
} from "../security/certificates.ts";

type Advice = Doctor["checks"][number];

const help = "Renew it; a node takes files that change within seconds, connections live on.";

export function certificateAlarms(
  certificates: readonly ListenerCertificate[],
  nowMs: number,
): Alarm[] {
  return certificates.flatMap((each) => [...faultAlarms(each), ...endAlarms(each, nowMs)]);
}

/** The node goes on with what it has; the next start would not come up. */
function faultAlarms({ listener, fault }: ListenerCertificate): Alarm[] {
  if (fault === undefined) return [];
  return [
    {
      ...{ name: "certificate_refused", subject: `listener ${listener}`, severity: "critical" },
      sinceMs: fault.sinceMs,
      message: `its files are not taken, the former ones are used: ${fault.reason}`,
      help: "Mend certificate and key; a node takes files that change within seconds. The next start would not come up.",
    },
  ];
}

function endAlarms({ listener, expiresMs }: ListenerCertificate, nowMs: number): Alarm[] {
  const sinceMs = expiresMs - certificateWarnMs;
  if (nowMs <= sinceMs) return [];
  const isOver = nowMs >= expiresMs;
  return [
    {
      name: isOver ? "certificate_expired" : "certificate_expires",
      subject: `listener ${listener}`,
      severity: isOver ? "critical" : "warning",
      sinceMs: isOver ? expiresMs : sinceMs,
      message: `its certificate ${isOver ? "ended" : "ends"} at ${timeText(expiresMs)}`,
      help,
    },
  ];
}

/** Reads the files, as the next start would. */
export async function certificateCheck({ listeners }: Settings, nowMs: number): Promise<Advice> {
  const name = "certificates";
  const found: ListenerCertificate[] = [];
  for (const [listener, { type, tls }] of Object.entries(listeners)) {
    if (type !== "tls" && type !== "wss") continue;
    try {
      const { cert, key, ca } = await readMaterial(tls);
      found.push({ listener, expiresMs: checkedExpiryMs(tls, { cert, key, ca }) });
      // What TLS itself does not take: a key that is too weak.
      createSecureContext({ cert, key, ...(ca === undefined ? {} : { ca }) });
    } catch (error) {
      return { name, state: "failed", message: `listener ${listener}: ${toError(error).message}` };
    }
  }
  if (found.length === 0) return { name, state: "ok", message: "no listener has one" };
  const first = found.reduce((one, other) => (other.expiresMs < one.expiresMs ? other : one));
  const isOver = nowMs >= first.expiresMs;
  const ends = `that of listener ${first.listener}`;
  const message = `${ends} ${isOver ? "ended" : "ends"} ${found.length > 1 ? "first, " : ""}at ${timeText(first.expiresMs)}`;
  if (first.expiresMs - nowMs >= certificateWarnMs) return { name, state: "ok", message };
  return { name, state: isOver ? "failed" : "warning", message, help };
}

function timeText(ms: number): string {
  return Number.isFinite(ms) ? new Date(ms).toISOString() : "a time that cannot be read";
}
