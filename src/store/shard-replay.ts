// Replay: a shard's entries above its checkpoint, applied as they stand in the log, and what is
// missing between them.
//
// Invariants: an entry is applied once, in the order of indexes; a hole in the indexes is a loss
// and has bounds in commit time: everything missing lies above the time before it and below the
// first one after. Nothing is decided here: items say what was decided when they were cooked.

import { ByteReader } from "../base/index.ts";
import { storeErrors } from "./errors.ts";
import { entryItemsMax, entryKind, entryVersion, type ShardMachine } from "./machine.ts";
import type { ShardEntry, ShardLog } from "./shard-log.ts";
import type { RecoveryPoint } from "./shard-store.ts";

export type ReplayParts = {
  readonly shard: number;
  readonly log: ShardLog;
  readonly machine: ShardMachine;
  /** An entry is applied: its index and the time of its last item. */
  readonly applied: (index: number, timeUs: number) => void;
};

export type Replayed = {
  /** Index of the next entry. */
  readonly nextIndex: number;
  readonly lost: Array<Omit<RecoveryPoint, "epoch">>;
};

export async function replayEntries(
  checkpointIndex: number,
  checkpointUs: number,
  parts: ReplayParts,
): Promise<Replayed> {
  const lost: Replayed["lost"] = [];
  let nextIndex = checkpointIndex + 1;
  let lastUs = checkpointUs;
  await parts.log.replay(nextIndex, async (entry) => {
    checkVersion(entry, parts.shard);
    if (entry.kind === entryKind.none) {
      nextIndex = entry.index + 1;
      parts.applied(entry.index, lastUs);
      return;
    }
    // A view of the log's buffer, and what follows may wait: keep a copy.
    const payload = Buffer.from(entry.payload);
    const missing = entry.index - nextIndex;
    if (missing > 0) {
      const toUs = new ByteReader(payload).u64() - 1;
      const countMax = Math.min(missing * entryItemsMax, toUs - lastUs);
      lost.push({ fromUs: lastUs, toUs, countMax });
      parts.machine.entriesLost();
    }
    nextIndex = entry.index + 1;
    lastUs = await replayEntry(payload, parts.machine);
    parts.applied(entry.index, lastUs);
  });
  return { nextIndex, lost };
}

/**
 * Applies what the log still has of the entries that are checkpointed already, to a slab that has lost
 * some of them. REQUIRES: items that hold absolute values; the entries behind are replayed next.
 */
export async function replayCheckpointed(
  checkpointIndex: number,
  { shard, log, machine }: Omit<ReplayParts, "applied">,
): Promise<{ readonly fromIndex: number | undefined }> {
  let fromIndex: number | undefined;
  await log.replay(0, async (entry) => {
    if (entry.index > checkpointIndex) return;
    checkVersion(entry, shard);
    fromIndex ??= entry.index;
    await replayEntry(Buffer.from(entry.payload), machine);
  });
  return { fromIndex };
}

async function replayEntry(payload: Buffer, machine: ShardMachine): Promise<number> {
  const reader = new ByteReader(payload);
  let timeUs = reader.u64();
  while (reader.remaining > 0) {
    const kind = reader.u8();
    timeUs += reader.varint();
    const ready = machine.beforeReplay(kind, new ByteReader(payload, reader.offset));
    if (ready !== undefined) await ready;
    machine.apply(kind, timeUs, reader);
  }
  return timeUs;
}

/** @throws STORE_FORMAT_NEWER. */
export function checkVersion(entry: ShardEntry, shard: number): void {
  if (entry.kind === entryKind.none) return;
  if (entry.kind === entryKind.items && entry.version <= entryVersion) return;
  throw storeErrors.formatNewer({
    what: `entry ${entry.index} of shard ${shard}`,
    version: entry.version,
  });
}
