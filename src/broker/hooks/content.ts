// Messages as hooks see them: plain values, copied out of stored frames.

import { framePayload, frameProperties, type StoredFrame } from "../../mqtt/index.ts";
import type { Ttv } from "../../store/index.ts";
import type { HookPublish } from "./types.ts";

export type StoredMessage = Pick<
  Ttv,
  "topic" | "qos" | "retain" | "frame" | "form" | "expiryOffset"
>;

export function contentOf(frame: StoredFrame): Pick<HookPublish, "payload" | "properties"> {
  const payload = Buffer.from(framePayload(frame));
  return { payload, properties: frame.version === 5 ? frameProperties(frame) : {} };
}

export function hookPublishOf(message: StoredMessage): HookPublish {
  const { topic, qos, retain, frame, form, expiryOffset } = message;
  if (form === "raw") return { topic, qos, retain, payload: Buffer.from(frame), properties: {} };
  const version = form === "v5" ? 5 : 4;
  return { topic, qos, retain, ...contentOf({ bytes: frame, version, expiryOffset }) };
}
