// State that a replica has copied and not yet switched to, and the note of it beside the shard's
// stores, so that a copy that was cut off goes on where it ended.
//
// Keeps: what is staged lies in folders that no row names; the rows of the shard store switch to it, in
// one synced batch; a folder is an orphan unless a row or the note names it; the note goes as soon as
// the shard's checkpoint is not below what it was for.

import type { ByteReader } from "../../base/index.ts";
import type { KvEntry } from "../../kv/index.ts";
import { beginCopy, type CopyPlace, readCopy, removeCopy, writeCopy } from "../copy-file.ts";
import { storeErrors } from "../errors.ts";
import { type CheckpointRecord, checkpointKey, decodeCheckpoint } from "../shard-store.ts";
import type { SlabName } from "../slab/slab-name.ts";
import type { SlabProofs } from "../slab/slab-parts.ts";

export type StagedState = {
  /** Of the shard store, as they will be: all but the checkpoint's. Asked for before `leave`. */
  rows(): Promise<readonly KvEntry[]>;
  /** What was kept and what was copied, for the log. */
  readonly counts: Readonly<Record<string, number>>;
  /** Closes what is to be replaced. From here on readers wait. */
  leave(): Promise<void>;
  /** The rows are switched: opens what they name. What it resolves with puts it in place. */
  enter(): Promise<() => void>;
  /** It is in place: what was replaced goes. */
  settle(): Promise<void>;
  /** Instead of all that: it came to nothing. */
  abandon(): Promise<void>;
};

export type StagedSlab = SlabName & {
  readonly fromUs: number;
  /** 0 while it was current at its source. */
  readonly toUs: number;
  /** Whose pages they are. */
  readonly origin: string;
  /** Of a sealed one that is complete. */
  readonly proofs: SlabProofs | undefined;
  /** Key of the last block that is synced. */
  readonly after: Uint8Array;
};

export type StagingNote = {
  /** Checkpoint of what is being copied. */
  readonly index: number;
  readonly slabs: readonly StagedSlab[];
};

const noteName = "staged";

export async function readNote(place: CopyPlace): Promise<StagingNote | undefined> {
  const note = await readCopy(place, noteName, decodeNote);
  return typeof note === "string" ? undefined : note;
}

/** False when it could not be written: then a restart begins anew. */
export function writeNote(place: CopyPlace, { index, slabs }: StagingNote): Promise<boolean> {
  const body = beginCopy().u64(index).varint(slabs.length);
  for (const { number, pack, fromUs, toUs, origin, proofs, after } of slabs) {
    body.u32(number).varint(pack).u64(fromUs).u64(toUs).string(origin).bytes(after);
    body.u8(proofs === undefined ? 0 : 1);
    if (proofs !== undefined) body.bytes(proofs.blocks).bytes(proofs.index);
  }
  return writeCopy(place, noteName, body);
}

export function removeNote(place: CopyPlace): Promise<void> {
  return removeCopy(place, noteName);
}

/** Folders that stay though no row names them. Ends what the shard has outgrown. */
export async function stagedFolders(
  place: CopyPlace,
  checkpointIndex: number,
): Promise<readonly SlabName[]> {
  const note = await readNote(place);
  if (note === undefined) return [];
  if (note.index > checkpointIndex) return note.slabs;
  await removeNote(place);
  return [];
}

/** @throws STORE_COPY_GONE: the other replica has no checkpoint yet. */
export function checkpointOf(facts: readonly KvEntry[]): CheckpointRecord {
  const row = facts.find(([key]) => checkpointKey.equals(key));
  if (row === undefined) throw storeErrors.copyGone({ what: "a checkpoint" });
  return decodeCheckpoint(row[1], "another replica");
}

function decodeNote(reader: ByteReader): StagingNote {
  const index = reader.u64();
  const slabs: StagedSlab[] = [];
  for (let left = reader.varint(); left > 0; left--) {
    slabs.push({
      ...{ number: reader.u32(), pack: reader.varint() },
      ...{ fromUs: reader.u64(), toUs: reader.u64(), origin: reader.string() },
      after: Buffer.from(reader.bytes()),
      proofs: reader.u8() === 0 ? undefined : readProofs(reader),
    });
  }
  return { index, slabs };
}

function readProofs(reader: ByteReader): SlabProofs {
  return { blocks: Buffer.from(reader.bytes()), index: Buffer.from(reader.bytes()) };
}
