// A stored or retained message as the API shows it. Payloads only to those who may see them, cut at a
// limit, as base64 where they are not UTF-8.

import { framePayload } from "../mqtt/index.ts";
import type { Ttv } from "../store/index.ts";
import type { Message } from "./contract.ts";
import { type Caller, checkRole } from "./guard.ts";

/** Bytes of a payload that are answered. */
const payloadShownMax = 64 * 1024;

/** @throws ADMIN_FORBIDDEN when payloads are asked for by somebody who may not see them. */
export function mayShow(payload: boolean | undefined, caller: Caller): boolean {
  if (payload !== true) return false;
  checkRole(caller, "operator", "to see payloads");
  return true;
}

export function messageView(ttv: Ttv, showsPayload: boolean): Message {
  const { topic, timeUs, publisher, qos, retain, expiryUs } = ttv;
  const payload = payloadOf(ttv);
  return {
    topic,
    timeUs,
    publisher,
    qos,
    retain,
    ...(expiryUs === 0 ? {} : { expiryUs }),
    payloadBytes: payload.length,
    ...(showsPayload ? shown(payload) : {}),
  };
}

function payloadOf({ form, frame, expiryOffset }: Ttv): Buffer {
  if (form === "raw") return frame;
  return framePayload({ bytes: frame, version: form === "v5" ? 5 : 4, expiryOffset });
}

function shown(payload: Buffer): Partial<Message> {
  const isCut = payload.length > payloadShownMax;
  const bytes = Buffer.from(isCut ? payload.subarray(0, payloadShownMax) : payload);
  const text = bytes.toString("utf8");
  const isText = Buffer.from(text).equals(bytes);
  return {
    ...(isText ? { payload: text } : { payloadBase64: bytes.toString("base64") }),
    ...(isCut ? { isCut } : {}),
  };
}
