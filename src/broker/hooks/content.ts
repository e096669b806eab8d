// Messages as hooks see them: plain values, copied out of stored frames. They are frozen: a hook that
// assigns to one, where it should have answered with a change, throws and so refuses, instead of
// being passed over in silence.

import { framePayload, frameProperties, type StoredFrame } from "../../mqtt/index.ts";
import type { Ttv } from "../../store/index.ts";
import type { HookPublish } from "./types.ts";

export type StoredMessage = Pick<
  Ttv,
  "topic" | "qos" | "retain" | "frame" | "form" | "expiryOffset"
>;

type Head = Pick<HookPublish, "topic" | "qos" | "retain">;

/** Of a frame that belongs to `head`. */
export function hookPublishIn(head: Head, frame: StoredFrame): HookPublish {
  const { topic, qos, retain } = head;
  const payload = Buffer.from(framePayload(frame));
  const properties = frame.version === 5 ? frameProperties(frame) : {};
  return frozen({ topic, qos, retain, payload, properties });
}

export function hookPublishOf(message: StoredMessage): HookPublish {
  const { topic, qos, retain, frame, form, expiryOffset } = message;
  if (form === "raw") {
    return frozen({ topic, qos, retain, payload: Buffer.from(frame), properties: {} });
  }
  const version = form === "v5" ? 5 : 4;
  return hookPublishIn(message, { bytes: frame, version, expiryOffset });
}

/** But for the bytes of its payload, which cannot be: they are a copy. */
export function frozen<T extends HookPublish>(publish: T): T {
  Object.freeze(publish.properties.userProperties);
  Object.freeze(publish.properties);
  return Object.freeze(publish);
}
