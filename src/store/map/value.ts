// Value of a key in a `map` slab: format version u8 | commit time u64 | bytes.

import { ByteReader, ByteWriter } from "../../base/index.ts";
import { storeErrors } from "../errors.ts";

const formatVersion = 1;
const headerBytes = 9;

/** What is known of a key. `value` undefined: absent since `timeUs` (0: as far as is known). */
export type Version = { readonly timeUs: number; readonly value: Buffer | undefined };

export function encodeMapValue(timeUs: number, value: Uint8Array): Buffer {
  const writer = new ByteWriter(headerBytes + value.length);
  return writer.u8(formatVersion).u64(timeUs).raw(value).finish();
}

export function decodeMapValue(bytes: Buffer): Version {
  const reader = new ByteReader(bytes);
  const version = reader.u8();
  if (version > formatVersion) throw storeErrors.formatNewer({ what: "a map value", version });
  const timeUs = reader.u64();
  return { timeUs, value: reader.raw(reader.remaining) };
}
