// Decompression of Snappy, which LevelDB's tables are compressed with.
//
// The input has passed a checksum; it is checked all the same, so that nothing is read or written
// outside of it.

import { Varints } from "./varints.ts";

/** A block of a table holds about 4 KiB or one large value. */
const sizeBytesMax = 64 * 1024 * 1024;

/** Undefined when the bytes are not Snappy's. */
export function unsnap(bytes: Buffer): Buffer | undefined {
  const reader = new Varints(bytes);
  const sizeBytes = reader.next();
  if (sizeBytes === undefined || sizeBytes > sizeBytesMax) return undefined;
  const out = Buffer.alloc(sizeBytes);
  let written = 0;
  let at = reader.offset;
  while (at < bytes.length) {
    const tag = bytes[at++] as number;
    const isLiteral = (tag & 3) === 0;
    const extra = isLiteral ? literalExtra(tag) : copyExtra(tag);
    if (at + extra > bytes.length) return undefined;
    const number = extra === 0 ? 0 : bytes.readUIntLE(at, extra);
    at += extra;
    if (isLiteral) {
      const size = (extra === 0 ? tag >>> 2 : number) + 1;
      if (at + size > bytes.length || written + size > sizeBytes) return undefined;
      bytes.copy(out, written, at, at + size);
      at += size;
      written += size;
      continue;
    }
    const isShort = (tag & 3) === 1;
    const size = isShort ? ((tag >>> 2) & 7) + 4 : (tag >>> 2) + 1;
    const distance = isShort ? ((tag >>> 5) << 8) | number : number;
    if (distance === 0 || distance > written || written + size > sizeBytes) return undefined;
    // Byte by byte: a copy may overlap what it writes.
    for (let end = written + size; written < end; written++) {
      out[written] = out[written - distance] as number;
    }
  }
  return written === sizeBytes ? out : undefined;
}

/** Bytes of a literal's length behind its tag. */
function literalExtra(tag: number): number {
  return Math.max(0, (tag >>> 2) - 59);
}

/** Bytes of a copy's distance behind its tag. */
function copyExtra(tag: number): number {
  const kind = tag & 3;
  return kind === 3 ? 4 : kind;
}
