// Forced recovery: a group whose majority is lost for good goes on with one replica that is left.
// Offline, on a directory that no host has open, and only on a typed confirmation, since entries
// that were acknowledged may be gone with the others.
//
// Keeps: the epoch is raised, durably, before the configuration is changed, so that nobody of the
// epoch before can be led by, or vote for, what goes on here; all others are told so when they
// speak, and watchers see by the epoch that times may have been lost. Entries that are not known
// to be committed are kept: whatever was acknowledged and is here is among them.

import { type Disk, isCodedError, joinPath } from "../../base/index.ts";
import type { WriteAheadLog } from "../../log/index.ts";
import { encodeEntryPayload } from "../codec.ts";
import { createConfiguration, isVoter } from "../core/membership.ts";
import type { CommandEntry, Configuration, NodeId } from "../core/types.ts";
import { raftErrors } from "../errors.ts";
import { createDiskSnapshots } from "./disk-snapshots.ts";
import { bootGroup, type GroupBoot, type GroupStores, readPieces } from "./group-boot.ts";
import { metaPath, readIdentity } from "./identity.ts";
import { MetaFile } from "./meta-file.ts";
import { defaultHostSettings, type StateMachine } from "./ports.ts";

/** A stopped node: the directory of its host and its log, open. */
export type RecoveryPlace = {
  readonly disk: Disk;
  readonly dir: string;
  readonly log: WriteAheadLog;
};

/** What one replica still holds. */
export type ReplicaReport = {
  readonly group: number;
  readonly node: NodeId;
  readonly siteId: string;
  readonly epoch: number;
  /** Term of the last entry, and its index: which replica holds the most. */
  readonly lastTerm: number;
  readonly lastIndex: number;
  /** Known here to be committed; what is above may never have been acknowledged. */
  readonly commit: number;
  /** Highest term this replica has seen. */
  readonly term: number;
  readonly configuration: Configuration;
  /** Moment of the last command, if the program that wrote it can tell. */
  readonly lastTime: string | undefined;
  /** Why it cannot be recovered from; undefined when it is whole. */
  readonly damage: string | undefined;
};

/** Reads the moment of a command. */
export type TimeOf = (entry: CommandEntry) => Date | undefined;

/** A replica and how far it is behind the one that holds the most. */
export type RankedReplica = { readonly report: ReplicaReport; readonly gapEntries: number };

/**
 * What every replica of a stopped node holds. A replica found damaged is marked as in repair, as at
 * any start.
 * @throws RAFT_DIR_MISSING, RAFT_DIR_DAMAGED, RAFT_DIR_NEWER, RAFT_META_LOST.
 */
export function surveyReplicas(place: RecoveryPlace, timeOf?: TimeOf): Promise<ReplicaReport[]> {
  return withStores(place, async (stores) => {
    const { siteId } = await readIdentity(place.disk, place.dir);
    const reports: ReplicaReport[] = [];
    for (const group of stores.metas.groups()) {
      try {
        const boot = await bootGroup(group, stores, createReader());
        reports.push(reportOf(boot, siteId, timeOf));
      } catch (error) {
        // Its making was cut off: it holds nothing.
        if (!isCodedError(error, "RAFT_GROUP_UNKNOWN")) throw error;
      }
    }
    return reports;
  });
}

/** The one to recover from first. REQUIRES: reports of one group. */
export function rankReplicas(reports: readonly ReplicaReport[]): RankedReplica[] {
  const ranked = [...reports].sort(
    (one, other) =>
      Number(one.damage !== undefined) - Number(other.damage !== undefined) ||
      other.epoch - one.epoch ||
      other.lastTerm - one.lastTerm ||
      other.lastIndex - one.lastIndex,
  );
  const most = Math.max(0, ...reports.map(({ lastIndex }) => lastIndex));
  return ranked.map((report) => ({ report, gapEntries: most - report.lastIndex }));
}

/** One line a replica, the best first, for people. */
export function formatReplicas(reports: readonly ReplicaReport[]): string[] {
  return rankReplicas(reports).map(({ report, gapEntries }) => {
    const { group, node, epoch, lastTerm, lastIndex, commit, term, configuration } = report;
    const facts = [
      `group ${group} node ${node}`,
      `epoch ${epoch}`,
      `last ${lastTerm}/${lastIndex} (term/index)`,
      `written ${report.lastTime ?? "unknown"}`,
      `${gapEntries} behind`,
      `${lastIndex - commit} not known to be committed`,
      `term ${term}`,
      `voters ${configuration.voters.join(",")}`,
    ];
    if (report.damage !== undefined) facts.push(`DAMAGED: ${report.damage}`);
    return facts.join("; ");
  });
}

/** What must be typed, word for word, to recover a group from this replica. */
export function recoveryConfirmation({ group, node, lastTerm, lastIndex, epoch }: ReplicaReport) {
  return `recover group ${group} from node ${node} at ${lastTerm}/${lastIndex} as epoch ${epoch + 1}`;
}

/**
 * Makes this replica the only voter of its group, in the next epoch. The host may be opened
 * afterwards; others join as learners with empty directories under new numbers.
 * Can be repeated when it was cut off. @throws RAFT_RECOVERY_REFUSED, and as `surveyReplicas`.
 */
export function forceRecovery(
  place: RecoveryPlace,
  group: number,
  typed: string,
): Promise<ReplicaReport> {
  return withStores(place, async (stores) => {
    const { siteId } = await readIdentity(place.disk, place.dir);
    const boot = await bootGroup(group, stores, createReader());
    const report = reportOf(boot, siteId, undefined);
    checkRecoverable(report, typed);
    await rewriteSnapshot(stores, group, report.epoch + 1);
    const term = Math.max(report.term, report.lastTerm) + 1;
    const hardState = { term, vote: report.node, commit: boot.raft.hardState.commit };
    const index = report.lastIndex + 1;
    const marks = { removed: false, configurationIndex: index };
    await stores.metas.saved({ ...boot.meta, hardState, ...marks, epoch: report.epoch + 1 });
    await appendSoleVoter(stores.log, { report, index, term });
    const after = await bootGroup(group, stores, createReader());
    return reportOf(after, siteId, undefined);
  });
}

function checkRecoverable(report: ReplicaReport, typed: string): void {
  const { group, node, damage, configuration } = report;
  const refuse = (reason: string): never => {
    throw raftErrors.recoveryRefused({ group, reason });
  };
  if (damage !== undefined) refuse(`this replica is damaged (${damage})`);
  if (!isVoter(configuration, node)) refuse(`node ${node} is no voter`);
  if (configuration.voters.length === 1) refuse("its only voter is here: nothing is to be forced");
  const wanted = recoveryConfirmation(report);
  if (typed !== wanted) refuse(`it takes the words "${wanted}"`);
}

// Offers of a snapshot name the epoch it was stored with.
async function rewriteSnapshot(stores: GroupStores, group: number, epoch: number): Promise<void> {
  const reader = await stores.snapshots.latest(group);
  if (reader === undefined) return;
  const { chunks: _chunks, ...head } = reader.manifest;
  try {
    await stores.snapshots.write({ ...head, epoch }, readPieces(reader));
  } finally {
    await reader.close();
  }
}

async function appendSoleVoter(
  log: WriteAheadLog,
  place: { readonly report: ReplicaReport; readonly index: number; readonly term: number },
): Promise<void> {
  const { report, index, term } = place;
  const { group, node, epoch, configuration } = report;
  const gone = configuration.voters.find((voter) => voter !== node) as NodeId;
  const payload = encodeEntryPayload({
    kind: "membership",
    index,
    term,
    change: { op: "remove", node: gone },
    configuration: createConfiguration([node]),
  });
  await new Promise<void>((resolve, reject) => {
    log.append({ shard: group, epoch: epoch + 1, index, term, ...payload }, (error) => {
      if (error === undefined) resolve();
      else reject(error);
    });
  });
}

function reportOf(boot: GroupBoot, siteId: string, timeOf: TimeOf | undefined): ReplicaReport {
  const { meta, raft, base } = boot;
  const last = raft.entries.at(-1) ?? base;
  const change = raft.entries.findLast((entry) => entry.kind === "membership");
  const command = raft.entries.findLast((entry) => entry.kind === "command");
  return {
    group: meta.group,
    node: meta.node,
    siteId,
    epoch: meta.epoch,
    lastTerm: last.term,
    lastIndex: last.index,
    commit: Math.max(base.index, Math.min(meta.hardState.commit, last.index)),
    term: meta.hardState.term,
    configuration: change?.configuration ?? base.configuration,
    lastTime: command && timeOf?.(command)?.toISOString(),
    damage: boot.damage ?? (meta.repairing ? "it was in repair" : undefined),
  };
}

async function withStores<T>(
  { disk, dir, log }: RecoveryPlace,
  run: (stores: GroupStores) => Promise<T>,
): Promise<T> {
  const metas = await MetaFile.open(disk, metaPath(dir));
  const chunkBytes = defaultHostSettings.snapshotChunkBytes;
  const snapshots = createDiskSnapshots(disk, joinPath(dir, "snapshots"), { chunkBytes });
  try {
    return await run({ log, metas, snapshots, metaPath: metaPath(dir) });
  } finally {
    await metas.close();
  }
}

/** Reads any snapshot to its end, so that damage shows, and keeps nothing. */
function createReader(): StateMachine {
  return {
    version: Number.MAX_SAFE_INTEGER,
    durableIndex: 0,
    apply: (entries) => entries.map(() => undefined),
    capture: () => [],
    install: async (_head, pieces) => {
      for await (const _piece of pieces);
    },
  };
}
