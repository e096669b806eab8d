// What a log shard loads from its stores, what items other than appends change of it, and what a
// checkpoint of it consists of.

import type { ByteReader } from "../base/index.ts";
import type { KvBatch } from "../kv/index.ts";
import { readLtsRecords } from "./core/lts-codec.ts";
import { storeErrors } from "./errors.ts";
import { type EvidenceTable, readEvidence } from "./evidence.ts";
import type { HoldTable } from "./holds.ts";
import { logItemKind } from "./log-items.ts";
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

/** An item that is no append. @throws STORE_SHARD_CORRUPT for one of an unknown kind. */
export function applyToState(
  { evidence, writers, holds, generations }: LogState,
  {
    shard,
    kind,
    timeUs,
  }: { readonly shard: number; readonly kind: number; readonly timeUs: number },
  body: ByteReader,
): void {
  switch (kind) {
    case logItemKind.release:
      return evidence.applyReleased(readEvidence(body));
    case logItemKind.endEvidence: {
      const publisher = body.string();
      const incarnation = body.u64();
      const ids = Array.from({ length: body.varint() }, () => body.u16());
      return evidence.applyEnded(publisher, incarnation, ids);
    }
    case logItemKind.openWriter:
      return writers.applyOpen(body.string(), timeUs);
    case logItemKind.closeWriter:
      return writers.applyClose(body.string());
    case logItemKind.rotate:
      return generations.applyRotate(body.u32(), timeUs, readLtsRecords(body));
    case logItemKind.drop: {
      const numbers = Array.from({ length: body.varint() }, () => body.u32());
      for (const gone of generations.applyDrop(numbers)) {
        holds.applyLoss(gone.untilUs, gone.countMax);
      }
      return;
    }
    case logItemKind.hold:
      return holds.applyHold(body.string(), body.u64());
    case logItemKind.releaseHold:
      return holds.applyRelease(body.string());
    case logItemKind.claim:
      return evidence.applyClaimed(readEvidence(body));
    default:
      throw storeErrors.shardCorrupt({ shard, reason: `item of kind ${kind}` });
  }
}

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
