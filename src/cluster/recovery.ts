// A member whose cluster lost its majority for good: what it holds, and how it goes on alone.
//
// Keeps: nothing is changed before the operator has typed what will be; all replicas of the member go
// on or none is begun with; whoever is cut off in between repeats it. Each group gets a new epoch, so
// that nobody of before is led by what goes on here. What was acked and is on lost disks alone is lost.

import { type Disk, joinPath } from "../base/index.ts";
import { openLog } from "../log/index.ts";
import {
  type CommandEntry,
  forceRecovery,
  isVoter,
  MemberTable,
  type ReplicaReport,
  readIdentity,
  recoveryConfirmation,
  surveyReplicas,
} from "../raft/index.ts";
import type { ClusterNodeComponents, ClusterNodeSettings } from "./cluster-node.ts";
import { decodeShardCommand } from "./core/claims.ts";
import { clusterErrors } from "./errors.ts";
import { raftDirOf } from "./founding.ts";
import { isMemberDir } from "./joining.ts";
import { rosterGroup } from "./roster-machine.ts";

export type RecoverySettings = Pick<ClusterNodeSettings, "dir" | "log"> & {
  /** The name of the cluster, for the words to type. */
  readonly cluster: string;
};

export type RecoveryComponents = Pick<
  ClusterNodeComponents,
  "disk" | "clock" | "random" | "logger"
>;

/** What a stopped member holds. */
export type MemberSurvey = {
  readonly cluster: string;
  readonly node: number;
  readonly name: string;
  /** By group; group 0 is the roster. */
  readonly replicas: readonly ReplicaReport[];
  /** What must be typed, word for word, to go on with this member alone. */
  readonly confirmation: string;
  /** Why it cannot go on alone; undefined when it can. */
  readonly fault: string | undefined;
};

/**
 * REQUIRES: the directory is locked by the caller, and no node has it open.
 * @throws CLUSTER_NOT_MEMBER, and what log and Raft directory refuse to open with.
 */
export function surveyMember(
  settings: RecoverySettings,
  components: RecoveryComponents,
): Promise<MemberSurvey> {
  return withLog(settings, components, (place) => survey(settings, place));
}

/**
 * Makes this member the only voter of all its groups. May be repeated when it was cut off.
 * @throws CLUSTER_RECOVERY_REFUSED, and as `surveyMember`.
 */
export function recoverMember(
  settings: RecoverySettings,
  typed: string,
  components: RecoveryComponents,
): Promise<MemberSurvey> {
  return withLog(settings, components, async (place) => {
    const { confirmation, fault, replicas, node } = await survey(settings, place);
    const refuse = (reason: string): Error =>
      clusterErrors.recoveryRefused({ dir: settings.dir, reason });
    if (fault !== undefined) throw refuse(fault);
    if (typed !== confirmation) throw refuse(`it takes the words "${confirmation}"`);
    for (const report of replicas) {
      if (isAlone(report, node)) continue;
      await forceRecovery(place, report.group, recoveryConfirmation(report));
    }
    return survey(settings, place);
  });
}

type Place = Parameters<typeof surveyReplicas>[0];

async function withLog<T>(
  { dir, log: settings }: RecoverySettings,
  components: RecoveryComponents,
  run: (place: Place) => Promise<T>,
): Promise<T> {
  const { disk } = components;
  if (!(await isMemberDir(disk, dir))) throw clusterErrors.notMember({ dir });
  let failure: Error | undefined;
  const onFailure = (error: Error): void => {
    failure ??= error;
  };
  const log = await openLog(settings, { ...components, onFailure }, joinPath(dir, "log"));
  try {
    const result = await run({ disk, dir: raftDirOf(dir), log });
    if (failure !== undefined) throw failure;
    return result;
  } finally {
    await log.close();
  }
}

async function survey({ dir, cluster }: RecoverySettings, place: Place): Promise<MemberSurvey> {
  const { node, name } = await selfOf(place.disk, dir);
  const surveyed = await surveyReplicas(place, timeOf);
  // What the roster's entries say has no time.
  const replicas = surveyed.map((each) =>
    each.group === rosterGroup ? { ...each, lastTime: undefined } : each,
  );
  const last = replicas.find(({ group }) => group === rosterGroup);
  const epoch =
    1 + Math.max(0, ...replicas.map((each) => each.epoch - (isAlone(each, node) ? 1 : 0)));
  const at = `${last?.lastTerm ?? 0}/${last?.lastIndex ?? 0}`;
  const confirmation = `recover ${cluster} from node ${node} at ${at} as epoch ${epoch}`;
  return { cluster, node, name, replicas, confirmation, fault: faultOf(replicas, node) };
}

async function selfOf(disk: Disk, dir: string): Promise<{ node: number; name: string }> {
  const { diskId } = await readIdentity(disk, raftDirOf(dir));
  const members = (await MemberTable.open(disk, raftDirOf(dir))).all();
  const own = members.find((member) => member.diskId === diskId);
  if (own === undefined || own.removed) throw clusterErrors.notMember({ dir });
  return own;
}

function faultOf(replicas: readonly ReplicaReport[], node: number): string | undefined {
  if (!replicas.some(({ group }) => group === rosterGroup))
    return "it has no replica of the roster";
  const damaged = replicas.find(({ damage }) => damage !== undefined);
  if (damaged !== undefined) return `its replica of group ${damaged.group} is damaged`;
  const learner = replicas.find(({ configuration }) => !isVoter(configuration, node));
  if (learner !== undefined) return `its replica of group ${learner.group} was still being copied`;
  if (!replicas.every((each) => isAlone(each, node))) return undefined;
  return "it is the only voter of all its groups: start it";
}

function isAlone({ configuration }: ReplicaReport, node: number): boolean {
  return configuration.voters.length === 1 && configuration.voters[0] === node;
}

/** Of a shard: when the first item of the entry was decided. */
function timeOf({ data }: CommandEntry): Date | undefined {
  const command = decodeShardCommand(data);
  if (command?.kind !== "batch" || command.payload.length < 8) return undefined;
  const { payload } = command;
  const timeUs = Buffer.from(payload.buffer, payload.byteOffset, 8).readBigUInt64BE();
  const date = new Date(Number(timeUs / 1000n));
  return Number.isNaN(date.getTime()) ? undefined : date;
}
