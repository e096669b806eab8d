// Finds one TTV in a slab by its stream and time.

import { indexAfter, ttvAt } from "../layout/ttv-view.ts";
import type { Ttv } from "../types.ts";
import type { LogSlab } from "./log-slab.ts";

/** Undefined when it is not there, or its block is lost. */
export async function fetchFrom(
  slab: LogSlab,
  ref: { readonly stream: number; readonly timeUs: number },
): Promise<Ttv | undefined> {
  const found = await fetchOf(slab, ref.stream, ref.timeUs);
  if (found !== undefined) return found;
  // After a loss its topic may have been learned anew, under another stream.
  for (const stream of slab.lts.streams) {
    const elsewhere = await fetchOf(slab, stream, ref.timeUs);
    if (elsewhere !== undefined) return elsewhere;
  }
  return undefined;
}

async function fetchOf(slab: LogSlab, stream: number, timeUs: number): Promise<Ttv | undefined> {
  const found = await slab.next(stream, timeUs - 1);
  if (found === undefined) return undefined;
  const batch = found.kind === "memory" ? found.batch : await slab.read(stream, found.row);
  const at = indexAfter(batch, timeUs - 1);
  if (at >= batch.count || batch.timeUs(at) !== timeUs) return undefined;
  return ttvAt(batch, slab.structureOf(stream), at);
}
