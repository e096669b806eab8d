// Blocks for tests: TTVs of one stream from a few words.

import type { Structure } from "../../../src/store/core/structure.ts";
import { OpenBlock, type OpenBlockSettings } from "../../../src/store/layout/open-block.ts";
import { type TtvBatch, ttvAt } from "../../../src/store/layout/ttv-view.ts";
import { packFlags, type Ttv } from "../../../src/store/types.ts";

export const hostStructure: Structure = ["m", "+", "cpu", "+"];

export function varyingOf(structure: Structure, topic: string): string[] {
  const words = topic.split("/");
  return structure[0] === "#" ? words : words.filter((_, level) => structure[level] === "+");
}

export function makeTtv(fields: Partial<Ttv> = {}): Ttv {
  return {
    ...{ topic: "m/h1/cpu/0", timeUs: 1_000, publisher: "p1", flags: packFlags(5, 1) },
    ...{ expiryUs: 0, expiryOffset: 0, frame: Buffer.from("frame") },
    ...fields,
  };
}

export function blockOf(
  ttvs: readonly Ttv[],
  structure: Structure = hostStructure,
  settings?: OpenBlockSettings,
): OpenBlock {
  const block = new OpenBlock(settings);
  for (const ttv of ttvs) block.append(ttv, varyingOf(structure, ttv.topic));
  return block;
}

/** All TTVs as objects, with frames as Buffers, to compare. */
export function ttvsOf(batch: TtvBatch, structure: Structure = hostStructure): Ttv[] {
  return Array.from({ length: batch.count }, (_, index) => {
    const ttv = ttvAt(batch, structure, index);
    return { ...ttv, frame: Buffer.from(ttv.frame) };
  });
}
