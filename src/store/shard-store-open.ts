// Opens a shard store, whatever has become of it or of its copy.
//
// Of the two the newer one counts, and of a store that lost entries whatever its copy says; neither is
// ever ahead of what is durable. What the copy does not have is not trusted then: evidence of QoS 2
// publishes could call a new message a repeat, and a last match could hide messages from a reader. Both
// are dropped, the first said so: a publish that is repeated may be stored twice, never not at all.
//
// Every checkpoint writes its record: rows without one are the rest of a loss that no copy mends. The
// log may be replayed from its first entry, and must not meet a table that has its rotations: such rows
// go. So do record and rows of a store that is known to have lost some, by itself or by a folder
// that its table should have, without a copy that says which (rebuild.ts).

import { ByteReader, isCodedError, joinPath } from "../base/index.ts";
import type { DurableKv } from "./durable-kv.ts";
import { type MendParts, openMended, verifyBytesMax } from "./mending.ts";
import { readFacts, type ShardFacts } from "./shard-facts.ts";
import {
  type CheckpointRecord,
  checkpointKey,
  decodeCheckpoint,
  factPrefixes,
  firstCheckpoint,
  mapProofKey,
  prefixEnd,
  rowPrefix,
  ShardStore,
} from "./shard-store.ts";
import { droppedKey, generationKey, nextNumberKey } from "./slab/generation-rows.ts";
import { parseFolderName } from "./slab/slab-name.ts";

const evidenceAdvice =
  "QoS 2 publishes that were under way may be stored again when they are repeated";

type MendPlace = MendParts & { readonly dir: string };

const olderReason = "it is older than its copy";
const remnantReason = "its checkpoint is gone, or rows of it";

/** What is true of one checkpoint only; a hold was made by somebody on purpose and stays. */
const checkpointPrefixes: readonly number[] = [
  rowPrefix.generation,
  rowPrefix.nextGeneration,
  rowPrefix.dropped,
  rowPrefix.writer,
  rowPrefix.evidence,
  rowPrefix.lastMatch,
  rowPrefix.proof,
];

/** @throws STORE_FORMAT_NEWER; what an opening and a mending throw. */
export async function openShardStore(
  dir: string,
  shard: number,
  parts: MendParts,
): Promise<ShardStore> {
  const place = { dir, ...parts };
  const found = await readFacts(place);
  const facts = typeof found === "string" ? undefined : found;
  const path = joinPath(dir, "store");
  const options = { proof: facts?.proof, verifyBytesMax };
  const { kv, damage } = await openMended(path, options, parts);
  try {
    const storedIndex = (await readCheckpoint(kv)).index;
    const copiedIndex = facts === undefined ? 0 : indexOf(facts, path);
    const isNewer = copiedIndex > storedIndex;
    const isWhole = damage === undefined || damage.isWhole;
    const fromCopy = isNewer || (!isWhole && copiedIndex > 0);
    if (facts !== undefined && fromCopy) await restoreFacts(kv, facts);
    const hasLost = isNewer || (damage !== undefined && !(isWhole && facts !== undefined));
    if (hasLost) await dropUncertain(kv);
    const isLacking = (): Promise<boolean> | boolean =>
      storedIndex > 0 && lacksGenerations(kv, place);
    const isTorn = facts === undefined && (!isWhole || (await isLacking()));
    const isRemnant = await dropRemnant(kv, isTorn);
    const isEvidenceLost = hasLost || isRemnant;
    const copied = facts === undefined ? undefined : { index: copiedIndex, rows: facts.rows };
    const store = await ShardStore.open(kv, shard, place, copied);
    if (damage !== undefined || isNewer || isRemnant) {
      store.markMended();
      parts.logger.error("store.shard_store_mended", {
        ...{ shard, path, reason: damage?.reason ?? (isRemnant ? remnantReason : olderReason) },
        ...{ checkpoint: store.checkpoint.index, fromCopy, isEvidenceLost },
        ...(isEvidenceLost && { advice: evidenceAdvice }),
      });
    } else if (!store.isCopied) {
      if (found === "missing") parts.logger.warn("store.copy_missing", { shard, path: dir });
      await store.writeCopy();
    }
    return store;
  } catch (error) {
    await kv.close();
    throw error;
  }
}

/** Of the checkpoint that a copy has. */
function indexOf({ rows }: ShardFacts, path: string): number {
  const row = rows.get(checkpointKey.toString("latin1"));
  return row === undefined ? 0 : decodeCheckpoint(row, path).index;
}

async function readCheckpoint(kv: DurableKv): Promise<CheckpointRecord> {
  const row = await kv.get(checkpointKey);
  try {
    return row === undefined ? firstCheckpoint : decodeCheckpoint(row, kv.path);
  } catch (error) {
    if (!isCodedError(error, "STORE_SLAB_CORRUPT")) throw error;
    return firstCheckpoint;
  }
}

/** One batch: a crash leaves the old rows or the new ones. */
async function restoreFacts(kv: DurableKv, facts: ShardFacts): Promise<void> {
  const old = await keysOf(kv, factPrefixes);
  await kv.write(
    (batch) => {
      for (const key of old) batch.delete(key);
      for (const [key, value] of facts.rows) batch.put(Buffer.from(key, "latin1"), value);
    },
    { sync: true },
  );
}

/** There is a slab's folder of which the rows should say something. */
async function lacksGenerations(kv: DurableKv, { dir, disk }: MendPlace): Promise<boolean> {
  const next = await kv.get(nextNumberKey);
  const nextNumber = next === undefined ? 1 : new ByteReader(next).u32();
  for (const { name, isDirectory } of await disk.list(dir)) {
    const number = isDirectory ? parseFolderName(name)?.number : undefined;
    // A rotation that came to nothing leaves one.
    if (number === undefined || number >= nextNumber) continue;
    const row = (await kv.get(generationKey(number))) ?? (await kv.get(droppedKey(number)));
    if (row === undefined) return true;
  }
  return false;
}

async function dropUncertain(kv: DurableKv): Promise<void> {
  await deleteRows(kv, await keysOf(kv, [rowPrefix.evidence, rowPrefix.lastMatch]));
}

/** True when there were rows that nothing vouches for: their checkpoint is gone, or some of them. */
async function dropRemnant(kv: DurableKv, isTorn: boolean): Promise<boolean> {
  if (!isTorn && (await kv.get(checkpointKey)) !== undefined) return false;
  const keys = await keysOf(kv, [rowPrefix.checkpoint, ...checkpointPrefixes]);
  // The proof of a map holds for every later state of it.
  const remnant = keys.filter((key) => !key.equals(mapProofKey));
  await deleteRows(kv, remnant);
  return remnant.length > 0;
}

async function deleteRows(kv: DurableKv, keys: readonly Buffer[]): Promise<void> {
  if (keys.length === 0) return;
  await kv.write(
    (batch) => {
      for (const key of keys) batch.delete(key);
    },
    { sync: true },
  );
}

async function keysOf(kv: DurableKv, prefixes: readonly number[]): Promise<Buffer[]> {
  const keys: Buffer[] = [];
  for (const first of prefixes) {
    const prefix = Buffer.from([first]);
    await kv.scan({ gte: prefix, lt: prefixEnd(prefix) }, (key) => {
      keys.push(key);
    });
  }
  return keys;
}
