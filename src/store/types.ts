// What the store takes and gives: topic-time-value records (TTVs).
//
// A frame is opaque to the store. Its flags say what it is, so that upper floors can send runs of
// frames without decoding them.

import { ByteSource } from "../base/index.ts";

/** The unit stored. */
export type Ttv = {
  readonly topic: string;
  /** Commit time, integer microseconds since the Unix epoch; unique and growing per shard. */
  readonly timeUs: number;
  /** Client id of the publisher; empty where there is none. */
  readonly publisher: string;
  /** See `packFlags`. */
  readonly flags: number;
  /** Wall time after which nobody is sent this TTV; 0 for never. */
  readonly expiryUs: number;
  /** Offset in the frame of the four bytes that hold the seconds left; 0 where there are none. */
  readonly expiryOffset: number;
  readonly frame: Uint8Array;
};

/** A TTV whose frame lies among other bytes, from `from` to `to`. */
export type TtvSource = Omit<Ttv, "frame"> & {
  readonly bytes: ByteSource;
  readonly from: number;
  readonly to: number;
};

export function sourceOf(ttv: Ttv): TtvSource {
  const { topic, timeUs, publisher, flags, expiryUs, expiryOffset, frame } = ttv;
  const span = { bytes: new ByteSource(frame), from: 0, to: frame.length };
  return { topic, timeUs, publisher, flags, expiryUs, expiryOffset, ...span };
}

/** 0: the bare value. 4: a PUBLISH packet of MQTT 3.1.1. 5: one of MQTT 5. */
export type FrameForm = 0 | 4 | 5;
export type Qos = 0 | 1 | 2;

const formMask = 0b0000_0111;
const qosShift = 3;
const qosMask = 0b11;
const retainBit = 0b0010_0000;

/** Bits 0-2 form, 3-4 QoS, 5 RETAIN; the others are 0. */
export function packFlags(form: FrameForm, qos: Qos, retain: 0 | 1 = 0): number {
  return form | (qos << qosShift) | (retain === 1 ? retainBit : 0);
}

export function formOf(flags: number): FrameForm {
  return (flags & formMask) as FrameForm;
}

export function qosOf(flags: number): Qos {
  return ((flags >> qosShift) & qosMask) as Qos;
}

export function isRetain(flags: number): boolean {
  return (flags & retainBit) !== 0;
}

/** Whether a byte from outside can be the flags of a TTV. */
export function areFlags(flags: number): boolean {
  const form = flags & formMask;
  const known = form === 0 || form === 4 || form === 5;
  return known && ((flags >> qosShift) & qosMask) !== 3 && flags >> 6 === 0;
}
