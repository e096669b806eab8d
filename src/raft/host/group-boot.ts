// How a group wakes up: term and vote from the meta file, the state from the machine's own disk or
// from its snapshot, the rest from the shared log. What was synced and cannot be read any more
// puts the group into repair, and that is durable before anything is sent.
//
// Keeps: a replica whose term and vote are lost does not start; one that lost entries or its
// snapshot starts with a new incarnation, gives no vote, and fetches what is missing.

import { isCodedError } from "../../base/index.ts";
import type { LogGap, WriteAheadLog } from "../../log/index.ts";
import { decodeEntryPayload } from "../codec.ts";
import type { Entry, RaftBoot, SnapshotMeta } from "../core/types.ts";
import { raftErrors } from "../errors.ts";
import { cutKind } from "./disk-queue.ts";
import { positionAfter } from "./machine-run.ts";
import type { SnapshotHead } from "./manifest.ts";
import type { GroupMeta, MetaFile } from "./meta-file.ts";
import type { SnapshotReader, SnapshotStore, StateMachine } from "./ports.ts";

export type GroupStores = {
  readonly log: WriteAheadLog;
  readonly metas: MetaFile;
  readonly metaPath: string;
  readonly snapshots: SnapshotStore;
};

export type GroupBoot = {
  readonly meta: GroupMeta;
  readonly raft: RaftBoot;
  /** The snapshot that the log goes on from. */
  readonly base: SnapshotMeta;
  /** What is in the machine now: its index is `raft.applied`. */
  readonly position: SnapshotMeta;
  /** Why the group needs repair; undefined when it is whole. */
  readonly damage: string | undefined;
};

/** What a group begins with, and what one that lost its snapshot goes back to. */
export const emptySnapshot: SnapshotMeta = {
  index: 0,
  term: 0,
  configuration: { voters: [], learners: [] },
  configurationIndex: 0,
};

/** @throws RAFT_GROUP_UNKNOWN, RAFT_META_LOST, RAFT_VERSION_UNKNOWN, or what the machine says. */
export async function bootGroup(
  group: number,
  stores: GroupStores,
  machine: StateMachine,
): Promise<GroupBoot> {
  const { log, metas, snapshots } = stores;
  const snapshot = await openSnapshot(group, snapshots);
  const found = metas.get(group);
  if (found === undefined) {
    const isKnown = snapshot !== undefined || log.range(group) !== undefined;
    if (isKnown) throw raftErrors.metaLost({ group, path: stores.metaPath });
    throw raftErrors.groupUnknown({ group });
  }
  if (snapshot === undefined && isPristine(found, log)) throw raftErrors.groupUnknown({ group });
  const installed = await installBase(snapshot, machine);
  const { meta: base } = installed;
  let damage = installed.damage;
  let entries: Entry[] = [];
  if (damage === undefined) {
    log.release(group, base.index);
    const read = await readEntries(log, group, base);
    entries = read.entries;
    damage =
      read.damage ??
      gapAbove(log.gapsOf(group), base.index) ??
      lossWithoutTrace(found, log, entries.at(-1)?.index ?? base.index);
  }
  const meta = damage === undefined ? found : await markRepairing(metas, found);
  const lastIndex = entries.at(-1)?.index ?? base.index;
  const applied = Math.max(base.index, Math.min(machine.durableIndex, lastIndex));
  const raft = {
    hardState: meta.hardState,
    snapshot: base,
    entries,
    applied,
    repairing: meta.repairing,
  };
  const held = entries.filter(({ index }) => index <= applied);
  return { meta, raft, base, position: held.reduce(positionAfter, base), damage };
}

/** Made, and cut off before its first snapshot: it never answered anybody. */
export function isPristine(meta: GroupMeta, log: WriteAheadLog): boolean {
  const { term, vote } = meta.hardState;
  return term === 0 && vote === 0 && log.range(meta.group) === undefined;
}

/** The snapshot that counts, to be closed. */
export async function openSnapshot(
  group: number,
  snapshots: SnapshotStore,
): Promise<SnapshotReader | "damaged" | undefined> {
  try {
    return await snapshots.latest(group);
  } catch (error) {
    if (isCodedError(error, "RAFT_SNAPSHOT_DAMAGED")) return "damaged";
    throw error;
  }
}

type Installed = { readonly meta: SnapshotMeta; readonly damage: string | undefined };

async function installBase(
  snapshot: SnapshotReader | "damaged" | undefined,
  machine: StateMachine,
): Promise<Installed> {
  const lost = { meta: emptySnapshot, damage: "its snapshot is lost" };
  if (snapshot === undefined || snapshot === "damaged") return lost;
  const { manifest } = snapshot;
  try {
    if (manifest.meta.index > machine.durableIndex) {
      checkMachineVersion(manifest, machine);
      await machine.install(manifest, readPieces(snapshot));
    }
    return { meta: manifest.meta, damage: undefined };
  } catch (error) {
    if (isCodedError(error, "RAFT_SNAPSHOT_DAMAGED")) return lost;
    throw error;
  } finally {
    await snapshot.close();
  }
}

/** @throws RAFT_VERSION_UNKNOWN. */
export function checkMachineVersion({ machineVersion }: SnapshotHead, machine: StateMachine): void {
  if (machineVersion <= machine.version) return;
  const known = machine.version;
  throw raftErrors.versionUnknown({ what: "snapshot", version: machineVersion, known });
}

export async function* readPieces(reader: SnapshotReader): AsyncGenerator<Buffer, void, void> {
  for (let chunk = 0; chunk < reader.manifest.chunks.length; chunk++) {
    yield await reader.read(chunk);
  }
}

type ReadEntries = { readonly entries: Entry[]; readonly damage: string | undefined };

async function readEntries(
  log: WriteAheadLog,
  group: number,
  base: SnapshotMeta,
): Promise<ReadEntries> {
  const entries: Entry[] = [];
  let damage: string | undefined;
  let lastTerm = base.term;
  try {
    await log.read(group, base.index + 1, (record) => {
      if (record.kind === cutKind || damage !== undefined) return;
      const { index, term } = record;
      const due = base.index + entries.length + 1;
      if (index !== due || term < lastTerm) {
        damage = `the log goes on at ${index}, ${due} was due`;
        return;
      }
      lastTerm = term;
      const payload = Uint8Array.from(record.payload);
      entries.push(decodeEntryPayload(index, term, { ...record, payload }));
    });
  } catch (error) {
    const isDamage =
      isCodedError(error, "LOG_RECORD_UNREADABLE") || isCodedError(error, "RAFT_ENTRY_CORRUPT");
    if (!isDamage) throw error;
    damage = error.message;
  }
  return { entries, damage };
}

function gapAbove(gaps: readonly LogGap[], index: number): string | undefined {
  const gap = gaps.find(({ toIndex }) => toIndex === undefined || toIndex > index);
  return gap && `the log lost records ${gap.fromIndex} to ${gap.toIndex ?? "its end"}`;
}

/** What the log itself cannot tell: it is gone as a whole, or ends below what was committed here. */
function lossWithoutTrace(
  meta: GroupMeta,
  log: WriteAheadLog,
  lastIndex: number,
): string | undefined {
  const { commit } = meta.hardState;
  if (commit > lastIndex) return `the log ends at ${lastIndex}, ${commit} was committed here`;
  return log.isNew && !isPristine(meta, log) ? "the log is gone" : undefined;
}

async function markRepairing(metas: MetaFile, found: GroupMeta): Promise<GroupMeta> {
  const meta = { ...found, repairing: true, incarnation: found.incarnation + 1 };
  await metas.saved(meta);
  return meta;
}
