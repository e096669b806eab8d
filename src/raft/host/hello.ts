// The first frame of a connection, each way: which versions of frames are spoken, and whether the
// other is let in. Its own layout never changes, so that releases far apart can still refuse each
// other in a sentence.

import { ByteReader, ByteWriter, isCodedError } from "../../base/index.ts";
import { frameVersion } from "./frames.ts";

export const versionMin = frameVersion;
export const versionMax = frameVersion;
/** Whole frame; all that a stranger may send. */
export const helloBytesMax = 1024;
const refusalBytesMax = 512;

export type Hello = {
  readonly versionMin: number;
  readonly versionMax: number;
  /** Empty: welcome. */
  readonly refusal: string;
};

export function encodeHello(refusal: string): Buffer {
  const text = refusal.slice(0, refusalBytesMax / 4);
  return new ByteWriter().u8(versionMin).u8(versionMax).string(text).finish();
}

/** What follows is of later releases, and passed over. */
export function decodeHello(body: Buffer): Hello | undefined {
  try {
    const reader = new ByteReader(body);
    return { versionMin: reader.u8(), versionMax: reader.u8(), refusal: reader.string() };
  } catch (error) {
    if (isCodedError(error) && error.kind === "corrupt") return undefined;
    throw error;
  }
}
