// The first frame of a connection, each way: which versions of frames are spoken, and whether the
// other is let in. Its own layout never changes, so that releases far apart can still refuse each
// other in a sentence.

import { ByteReader, ByteWriter, isCodedError } from "../../base/index.ts";
import { frameVersion } from "./frames.ts";
import { readUuid } from "./identity.ts";
import type { Life } from "./life.ts";

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
  /** Which start of its directory speaks; not said by releases before starts were counted. */
  readonly life: Life | undefined;
};

export function encodeHello(refusal: string, life: Life | undefined): Buffer {
  const text = refusal.slice(0, refusalBytesMax / 4);
  const writer = new ByteWriter().u8(versionMin).u8(versionMax).string(text);
  if (life !== undefined) writer.varint(life.start).raw(Buffer.from(life.mark, "hex"));
  return writer.finish();
}

/** What follows is of later releases, and passed over. */
export function decodeHello(body: Buffer): Hello | undefined {
  try {
    const reader = new ByteReader(body);
    const [min, max, refusal] = [reader.u8(), reader.u8(), reader.string()];
    const hasLife = reader.remaining > 0;
    const life = hasLife ? { start: reader.varint(), mark: readUuid(reader) } : undefined;
    return { versionMin: min, versionMax: max, refusal, life };
  } catch (error) {
    if (isCodedError(error) && error.kind === "corrupt") return undefined;
    throw error;
  }
}
