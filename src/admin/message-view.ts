// A stored or retained message as the API shows it. Payloads only to those who may see them, in lists
// cut at a limit, as base64 where they are not UTF-8.

import { framePayload } from "../mqtt/index.ts";
import type { Ttv } from "../store/index.ts";
import type { Message } from "./contract.ts";
import { type Caller, checkRole } from "./guard.ts";

/** Bytes of a payload in a list: a page has up to 1,000 of them. */
const payloadShownMax = 64 * 1024;

/** How much of a payload is shown: not even that there is one, its beginning, or all of it. */
export type PayloadShown = "none" | "beginning" | "whole";

/** @throws ADMIN_FORBIDDEN when payloads are asked for by somebody who may not see them. */
export function payloadShown(
  payload: boolean | undefined,
  caller: Caller,
  asMuchAs: Exclude<PayloadShown, "none"> = "beginning",
): PayloadShown {
  if (payload !== true) return "none";
  checkRole(caller, "operator", "to see payloads");
  return asMuchAs;
}

export function messageView(ttv: Ttv, show: PayloadShown): Message {
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
    ...(show === "none"
      ? {}
      : textOf(payload, show === "whole" ? payload.length : payloadShownMax)),
  };
}

function payloadOf({ form, frame, expiryOffset }: Ttv): Buffer {
  if (form === "raw") return frame;
  return framePayload({ bytes: frame, version: form === "v5" ? 5 : 4, expiryOffset });
}

function textOf(payload: Buffer, bytesMax: number): Partial<Message> {
  const isCut = payload.length > bytesMax;
  const bytes = Buffer.from(isCut ? payload.subarray(0, bytesMax) : payload);
  const text = bytes.toString("utf8");
  const isText = Buffer.from(text).equals(bytes);
  return {
    ...(isText ? { payload: text } : { payloadBase64: bytes.toString("base64") }),
    ...(isCut ? { isCut } : {}),
  };
}
