// TTVs as callers see them (`api.ts`) and as slabs keep them (`types.ts`): the same facts, flags
// spelled out or packed.

import { asBuffer } from "../base/index.ts";
import type { AppendRequest, DeliverableTtv, Ttv as PublicTtv, TtvForm, TtvRef } from "./api.ts";
import type { Structure } from "./core/structure.ts";
import { type TtvBatch, ttvAt } from "./layout/ttv-view.ts";
import { type FrameForm, formOf, isRetain, packFlags, qosOf, type Ttv } from "./types.ts";

const forms: Readonly<Record<TtvForm, FrameForm>> = { raw: 0, v4: 4, v5: 5 };

export function flagsOf(request: Pick<AppendRequest, "form" | "qos" | "retain">): number {
  return packFlags(forms[request.form], request.qos, request.retain ? 1 : 0);
}

export function toPublicTtv(ttv: Ttv): PublicTtv {
  const form = formOf(ttv.flags);
  return {
    topic: ttv.topic,
    timeUs: ttv.timeUs,
    publisher: ttv.publisher,
    form: form === 0 ? "raw" : form === 4 ? "v4" : "v5",
    qos: qosOf(ttv.flags),
    retain: isRetain(ttv.flags),
    expiryUs: ttv.expiryUs,
    expiryOffset: ttv.expiryOffset,
    frame: asBuffer(ttv.frame),
  };
}

export function toDeliverable(
  batch: TtvBatch,
  structure: Structure,
  index: number,
  ref: TtvRef,
): DeliverableTtv {
  return { ...toPublicTtv(ttvAt(batch, structure, index)), ref };
}
