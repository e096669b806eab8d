// TTVs as callers see them (`api.ts`) and as slabs keep them (`types.ts`): the same facts, flags
// spelled out or packed.

import { asBuffer } from "../base/index.ts";
import type { AppendRequest, DeliverableTtv, Ttv as PublicTtv, TtvForm, TtvRef } from "./api.ts";
import {
  type FrameForm,
  formOf,
  isRetain,
  packFlags,
  qosOf,
  type Ttv,
  type TtvSource,
} from "./types.ts";

const forms: Readonly<Record<TtvForm, FrameForm>> = { raw: 0, v4: 4, v5: 5 };
const formNames: Readonly<Record<FrameForm, TtvForm>> = { 0: "raw", 4: "v4", 5: "v5" };

export function formNameOf(flags: number): TtvForm {
  return formNames[formOf(flags)];
}

/** A TTV among the bytes of its entry, for readers at the tail. */
export function sourceToDeliverable(source: TtvSource, ref: TtvRef): DeliverableTtv {
  const { topic, timeUs, publisher, flags, expiryUs, expiryOffset, bytes, from, to } = source;
  const frame = bytes.bytes.subarray(from, to);
  return toDeliverable({ topic, timeUs, publisher, flags, expiryUs, expiryOffset, frame }, ref);
}

export function flagsOf(request: Pick<AppendRequest, "form" | "qos" | "retain">): number {
  return packFlags(forms[request.form], request.qos, request.retain ? 1 : 0);
}

export function toPublicTtv(ttv: Ttv): PublicTtv {
  const { topic, timeUs, publisher, flags, expiryUs, expiryOffset } = ttv;
  const form = formNames[formOf(flags)];
  const qos = qosOf(flags);
  const retain = isRetain(flags);
  const frame = asBuffer(ttv.frame);
  return { topic, timeUs, publisher, form, qos, retain, expiryUs, expiryOffset, frame };
}

/** Spelled out like `toPublicTtv`: one object for every delivery, and no copy of another. */
export function toDeliverable(ttv: Ttv, ref: TtvRef): DeliverableTtv {
  const { topic, timeUs, publisher, flags, expiryUs, expiryOffset } = ttv;
  const form = formNames[formOf(flags)];
  const qos = qosOf(flags);
  const retain = isRetain(flags);
  const frame = asBuffer(ttv.frame);
  return { topic, timeUs, publisher, form, qos, retain, expiryUs, expiryOffset, frame, ref };
}
