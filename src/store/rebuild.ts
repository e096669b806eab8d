// Makes the checkpoint and the table of a shard anew when the shard store and its copy are both gone,
// from what lies beside them: slabs, map, log. What the log no longer has was checkpointed, so it is
// in the slabs; what a slab has above its last window comes back from the log.
//
// Lost with the rows are evidence of QoS 2 publishes, holds, writers and reports of what was dropped:
// said in the log. A shard whose log begins with its first entry had no checkpoint yet: it is
// replayed, and nothing is made up.

import { ByteReader, joinPath, toError } from "../base/index.ts";
import { isDamage } from "./damage-codes.ts";
import type { DurableKv } from "./durable-kv.ts";
import { decodeMapValue } from "./map/value.ts";
import type { MendParts } from "./mending.ts";
import type { ShardLog } from "./shard-log.ts";
import { firstCheckpoint, type RecoveryPoint, type ShardStore } from "./shard-store.ts";
import { type FoundIn, type FoundSlab, lookIntoSlab, tableOfSlabs } from "./slab/found-slabs.ts";
import { tableRows } from "./slab/generation-rows.ts";
import { folderName, parseFolderName, type SlabName } from "./slab/slab-name.ts";

export type RebuildParts = MendParts & {
  /** Folder of the shard. */
  readonly dir: string;
  readonly store: ShardStore;
  readonly log: ShardLog;
};

type Entry = { readonly index: number; readonly firstUs: number };

/** For a log shard, before its generations are opened. */
export async function rebuildLogStore(parts: RebuildParts): Promise<void> {
  const { store, logger } = parts;
  if (!store.isBlank) return;
  const names = await slabNames(parts);
  if (names.length === 0) return;
  const { first } = await readLog(parts.log, 0);
  if (first?.index === 1) return;
  const loggedFromUs = first?.firstUs ?? Number.MAX_SAFE_INTEGER;
  const slabs = wholePacks(await lookIntoSlabs(names, { ...parts, loggedFromUs }));
  const whole = slabs.filter(({ windowedUs }) => windowedUs > 0);
  const untilUs = Math.max(0, ...whole.map(({ windowedUs }) => windowedUs));
  const lost = slabs.filter(
    ({ windowedUs, ttvs, firstUs }) => windowedUs === 0 && ttvs > 0 && firstUs < loggedFromUs,
  );
  if (whole.length === 0 && lost.length === 0) return;
  const table = tableOfSlabs(whole, untilUs, Math.max(...names.map(({ number }) => number)));
  const { next, lastIndex } = await readLog(parts.log, untilUs);
  const index = next === undefined ? Math.max(1, lastIndex) : next.index - 1;
  const rows = tableRows(table, table.generations);
  const recoveries = lost.map(lossOf);
  const epoch = firstCheckpoint.epoch + 1;
  // Folders that the table does not name are set aside, not removed.
  store.markMended();
  await store.commit({ index, timeUs: untilUs, epoch, recoveries }, (batch) => {
    for (const [key, value] of rows) batch.put(key, value);
  });
  logger.error("store.shard_store_rebuilt", {
    ...{ shard: store.shard, path: parts.dir, checkpoint: index, untilUs },
    ...{ generations: table.generations.length, lost: lost.length },
    advice: "evidence of QoS 2 publishes, holds and writers of this shard are lost",
  });
}

/** For a map shard: its rows hold absolute values, so that the log is replayed over them. */
export async function rebuildMapStore(parts: RebuildParts, map: DurableKv): Promise<void> {
  const { store, logger } = parts;
  if (!store.isBlank) return;
  let rowUs = 0;
  await map.scan({}, (_, value) => {
    rowUs = Math.max(rowUs, timeOf(value));
  });
  const { first } = await readLog(parts.log, 0);
  if (rowUs === 0 || first?.index === 1) return;
  const index = first === undefined ? 1 : first.index - 1;
  const timeUs = first === undefined ? rowUs : Math.min(rowUs, first.firstUs - 1);
  store.markMended();
  await store.commit({ ...firstCheckpoint, index, timeUs }, () => undefined);
  const fields = { shard: store.shard, path: parts.dir, checkpoint: index };
  logger.error("store.shard_store_rebuilt", fields);
}

/** 0 for a row that is damaged: its reader finds out. */
function timeOf(value: Buffer): number {
  try {
    return decodeMapValue(value).timeUs;
  } catch (error) {
    if (!isDamage(error)) throw error;
    return 0;
  }
}

type Logged = {
  /** Undefined when the log has nothing of the shard. */
  readonly first: Entry | undefined;
  /** The first one that begins above the time. */
  readonly next: Entry | undefined;
  readonly lastIndex: number;
};

async function readLog(log: ShardLog, untilUs: number): Promise<Logged> {
  let first: Entry | undefined;
  let next: Entry | undefined;
  let lastIndex = 0;
  await log.replay(1, ({ index, payload }) => {
    lastIndex = index;
    const entry = { index, firstUs: new ByteReader(payload).u64() };
    first ??= entry;
    if (entry.firstUs > untilUs) next ??= entry;
  });
  return { first, next, lastIndex };
}

async function slabNames({ disk, dir }: RebuildParts): Promise<SlabName[]> {
  const names: SlabName[] = [];
  for (const entry of await disk.list(dir)) {
    const name = entry.isDirectory ? parseFolderName(entry.name) : undefined;
    if (name !== undefined) names.push(name);
  }
  return names.sort((a, b) => a.number - b.number || a.pack - b.pack);
}

/**
 * Of two packs of a generation the lower one, unless it has begun to go, which the index does
 * first: that happens only behind a checkpoint that names the other.
 */
function wholePacks(slabs: readonly FoundSlab[]): FoundSlab[] {
  const chosen = new Map<number, FoundSlab>();
  for (const slab of slabs) {
    if (slab.ttvs > (chosen.get(slab.number)?.ttvs ?? -1)) chosen.set(slab.number, slab);
  }
  return [...chosen.values()];
}

async function lookIntoSlabs(names: readonly SlabName[], parts: RebuildParts & FoundIn) {
  const found: FoundSlab[] = [];
  for (const name of names) {
    try {
      found.push(await lookIntoSlab(name, parts));
    } catch (error) {
      if (!isDamage(error)) throw error;
      const slab = joinPath(parts.dir, folderName(name));
      parts.logger.error("store.slab_lost", { slab, reason: toError(error).message });
    }
  }
  return found;
}

function lossOf({ firstUs, lastUs, ttvs }: FoundSlab): RecoveryPoint {
  return { epoch: firstCheckpoint.epoch + 1, fromUs: firstUs - 1, toUs: lastUs, countMax: ttvs };
}
