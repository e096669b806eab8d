// What a log shard loads from its stores, and what a checkpoint of it consists of.

import type { KvBatch } from "../kv/index.ts";
import type { EvidenceTable } from "./evidence.ts";
import type { HoldTable } from "./holds.ts";
import type { CheckpointImage } from "./machine.ts";
import type { UseTable } from "./pools/filter-use.ts";
import type { Generations } from "./slab/generations.ts";
import type { WriterTable } from "./writers.ts";

export type LogState = {
  readonly evidence: EvidenceTable;
  readonly writers: WriterTable;
  readonly holds: HoldTable;
  readonly generations: Generations;
};

/** Of everything applied by now, up to `appliedUs`. */
export function captureLog(
  { evidence, writers, holds, generations }: LogState,
  interest: UseTable,
  { ordinal, appliedUs }: { readonly ordinal: number; readonly appliedUs: number },
): CheckpointImage {
  const addEvidence = evidence.capture();
  const addWriters = writers.capture();
  const addHolds = holds.capture();
  const addMatches = interest.capture(ordinal);
  const slabs = generations.capture(appliedUs);
  return {
    prepare: () => slabs.prepare(),
    addRows: (batch: KvBatch) => {
      addEvidence(batch);
      addWriters(batch);
      addHolds(batch);
      addMatches(batch);
      slabs.addRows(batch);
    },
    finish: (committed) => {
      evidence.finish(committed);
      writers.finish(committed);
      holds.finish(committed);
      interest.finish(ordinal, committed);
      slabs.finish(committed);
    },
  };
}
