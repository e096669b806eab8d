// Messages that outlive the call that brought them.

import type { Ttv } from "../../store/index.ts";

let keptFrom: Ttv | undefined;
let keptFrame: Buffer | undefined;
let kept: Ttv | undefined;

/**
 * A copy that outlives the call. Many sessions keep the same message one after the other: they
 * share the last copy. The frame is compared too, in case the caller fills one object again.
 */
export function keepMessage(message: Ttv): Ttv {
  if (message === keptFrom && message.frame === keptFrame && kept !== undefined) return kept;
  const { topic, timeUs, publisher, form, qos, retain, expiryUs, expiryOffset } = message;
  const frame = Buffer.from(message.frame);
  kept = { topic, timeUs, publisher, form, qos, retain, expiryUs, expiryOffset, frame };
  keptFrom = message;
  keptFrame = message.frame;
  return kept;
}
