// Goes through a slab as it lies: stream by stream, block by block, on disk and in memory. For work
// that looks at everything; readers have cursors.

import type { TtvBatch } from "./layout/ttv-view.ts";
import type { LogSlab } from "./slab/log-slab.ts";

export type WalkedBatch = {
  readonly stream: number;
  readonly batch: TtvBatch;
  /** First index that was not seen before: an open block may have grown since. */
  readonly from: number;
};

/** Streams ascend, times ascend within each. REQUIRES: the slab is not dropped meanwhile;
 * one that is packed anew stays until the walk ends. */
export async function* walkSlab(slab: LogSlab): AsyncGenerator<WalkedBatch> {
  const endWalk = slab.beginWalk();
  try {
    for (const stream of [...slab.lts.streams].sort((a, b) => a - b)) {
      for (let afterUs = slab.afterUs; ; ) {
        const found = await slab.next(stream, afterUs);
        if (found === undefined) break;
        const batch =
          found.kind === "memory" ? found.batch : await slab.readUncached(stream, found.row);
        const lastUs = batch.count === 0 ? afterUs : batch.timeUs(batch.count - 1);
        let from = 0;
        while (from < batch.count && batch.timeUs(from) <= afterUs) from++;
        yield { stream, batch, from };
        afterUs = Math.max(lastUs, found.kind === "disk" ? found.row.lastTimeUs : afterUs + 1);
      }
    }
  } finally {
    endWalk();
  }
}
