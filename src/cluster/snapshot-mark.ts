// What the snapshot of a shard holds when its state needs no copy: a mark that the state up to an
// index is in the shard's own slabs, and the fence in force there.

import { ByteReader, ByteWriter, isCodedError } from "../base/index.ts";
import type { Fence } from "./core/claims.ts";

const markVersion = 1;

export function encodeMark(fence: Fence): Buffer {
  const writer = new ByteWriter(32).u8(markVersion);
  return writer.varint(fence.epoch).varint(fence.term).varint(fence.claimIndex).finish();
}

/** Undefined when the bytes are no mark. */
export function decodeMark(bytes: Uint8Array): Fence | undefined {
  if (bytes.length === 0 || bytes[0] !== markVersion) return undefined;
  try {
    const reader = new ByteReader(bytes);
    reader.u8();
    const fence = { epoch: reader.varint(), term: reader.varint(), claimIndex: reader.varint() };
    return reader.remaining === 0 ? fence : undefined;
  } catch (error) {
    if (isCodedError(error) && error.kind === "corrupt") return undefined;
    throw error;
  }
}
