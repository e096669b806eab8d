// Ranges in their normal form: lower bound inclusive, upper bound exclusive, so that each driver
// deals with one shape of the four.

import { asBuffer } from "../base/index.ts";
import type { KvRange } from "./kv.ts";

export type KvBounds = { readonly gte?: Buffer; readonly lt?: Buffer };

export function boundsOf(range: KvRange): KvBounds {
  const lower = [
    ...(range.gte === undefined ? [] : [asBuffer(range.gte)]),
    ...(range.gt === undefined ? [] : [successorOf(range.gt)]),
  ];
  const upper = [
    ...(range.lt === undefined ? [] : [asBuffer(range.lt)]),
    ...(range.lte === undefined ? [] : [successorOf(range.lte)]),
  ];
  const gte = lower.sort(Buffer.compare).at(-1);
  const lt = upper.sort(Buffer.compare).at(0);
  return { ...(gte === undefined ? {} : { gte }), ...(lt === undefined ? {} : { lt }) };
}

/** The least key above `key`. */
export function successorOf(key: Uint8Array): Buffer {
  return Buffer.concat([key, zero]);
}

const zero = Buffer.alloc(1);
