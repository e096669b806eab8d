// How the data directory of a node that ran by itself becomes the first replica of a cluster, in place:
// no message is copied (docs/decisions/094-first-replica.md).
//
// Keeps: all that is written before the switch is in a folder that nobody reads, and is made anew by
// the next try; the switch is one rename. Before it the directory is what it was, behind it a member of
// a cluster of one. Each shard goes on behind its last entry, with the slabs and stores that are there.

import { Closer, type Disk, joinPath, type ListenAddress } from "../base/index.ts";
import { openLog } from "../log/index.ts";
import {
  beginReplicas,
  drawUuid,
  formatRaftDir,
  type Identity,
  MemberTable,
  type ReplicaReport,
  readIdentity,
  surveyReplicas,
} from "../raft/index.ts";
import { openStore, type ShardInfo, storeSettingsDefault } from "../store/index.ts";
import type { ClusterNodeComponents, ClusterNodeSettings } from "./cluster-node.ts";
import { noFence } from "./core/claims.ts";
import type { Roster } from "./core/roster.ts";
import { encodeRoster, rosterVersion } from "./core/roster-codec.ts";
import { clusterErrors } from "./errors.ts";
import { isName, raftDirOf } from "./founding.ts";
import { isMemberDir } from "./joining.ts";
import { rosterGroup } from "./roster-machine.ts";
import { encodeMark } from "./snapshot-mark.ts";

export type FirstReplicaSettings = Pick<ClusterNodeSettings, "dir" | "name" | "log" | "store"> & {
  /** The name of the cluster. */
  readonly cluster: string;
  /** Where nodes that join will reach this one. */
  readonly address: ListenAddress;
};

export type FirstReplicaComponents = Pick<
  ClusterNodeComponents,
  "disk" | "kv" | "clock" | "random" | "logger"
> & {
  /** Runs before the switch, and may be repeated. */
  readonly beforeSwitch?: () => Promise<void>;
};

export type FirstReplica = {
  readonly identity: Identity;
  /** False: it was one already, and now certainly is. */
  readonly isNew: boolean;
};

/** The number of the node in its cluster. */
const node = 1;
const settlesMax = 5;

/**
 * REQUIRES: the directory is locked by the caller, and no node has it open.
 * @throws CLUSTER_INIT_REFUSED, CLUSTER_FOUNDING_INVALID, and what log and store refuse to open with.
 */
export async function becomeFirstReplica(
  settings: FirstReplicaSettings,
  components: FirstReplicaComponents,
): Promise<FirstReplica> {
  const { dir, cluster, name } = settings;
  const { disk, beforeSwitch } = components;
  const wrong = [cluster, name].find((each) => !isName(each));
  if (wrong !== undefined) {
    const reason = `${JSON.stringify(wrong)} is not 1 to 64 of a-z, 0-9, . and -`;
    throw clusterErrors.foundingInvalid({ cluster, reason });
  }
  const raftDir = raftDirOf(dir);
  if (await isMemberDir(disk, dir)) {
    await checkSame(disk, settings);
    // Of a try whose last step was not made durable.
    await disk.syncDir(dir);
    return { identity: await readIdentity(disk, raftDir), isNew: false };
  }
  if (await disk.exists(raftDir)) throw clusterErrors.dirInUse({ dir, found: "raft" });

  const shards = await settleShards(settings, components);
  const beside = joinPath(dir, "raft.new");
  await disk.removeDir(beside);
  const identity = await prepareBeside(beside, shards, settings, components);
  await checkBeside(beside, shards, settings, components);
  await beforeSwitch?.();
  await disk.rename(beside, raftDir);
  await disk.syncDir(dir);
  return { identity, isNew: true };
}

/** A directory that is a member already may be of another cluster, which is told. */
async function checkSame(disk: Disk, { dir, name }: FirstReplicaSettings): Promise<void> {
  const { diskId } = await readIdentity(disk, raftDirOf(dir));
  const members = (await MemberTable.open(disk, raftDirOf(dir))).all();
  const own = members.find((member) => member.diskId === diskId);
  if (own?.name === name) return;
  const reason = `it is the member ${own?.name ?? "that was removed"} of a cluster already`;
  throw clusterErrors.initRefused({ dir, reason });
}

/** Opens the store as the local node does, and leaves nothing of its shards in the log alone. */
async function settleShards(
  { dir, log: logSettings, store: storeSettings }: FirstReplicaSettings,
  { disk, kv, clock, random, logger }: FirstReplicaComponents,
): Promise<readonly ShardInfo[]> {
  const closer = new Closer();
  let failure: Error | undefined;
  const onFailure = (error: Error): void => {
    failure ??= error;
  };
  try {
    const parts = { disk, clock, random, logger, onFailure };
    const log = closer.own(await openLog(logSettings, parts, joinPath(dir, "log")));
    const store = closer.own(
      await openStore(
        {
          ...storeSettingsDefault,
          ...storeSettings,
          dir: joinPath(dir, "db"),
          quarantineDir: joinPath(dir, "quarantine"),
        },
        { disk, kv, log, clock, logger, onFailure },
      ),
    );
    await store.start();
    // What runs out meanwhile may end generations, which is an entry.
    for (let count = 0; count < settlesMax; count++) {
      await store.checkpoint();
      const shards = store.operator.shards();
      if (failure === undefined && shards.every(isSettled)) return shards;
    }
    const unsettled = store.operator.shards().find((shard) => !isSettled(shard));
    const reason = failure?.message ?? `shard ${unsettled?.number} cannot be checkpointed`;
    throw clusterErrors.initRefused({ dir, reason });
  } finally {
    await closer.close();
  }
}

function isSettled({ appliedIndex, checkpointIndex, failure }: ShardInfo): boolean {
  return failure === undefined && appliedIndex === checkpointIndex;
}

async function prepareBeside(
  beside: string,
  shards: readonly ShardInfo[],
  settings: FirstReplicaSettings,
  { disk, random }: FirstReplicaComponents,
): Promise<Identity> {
  const { cluster, name, address } = settings;
  const [clusterId, siteId] = [drawUuid(random), drawUuid(random)];
  const identity = await formatRaftDir(disk, beside, { clusterId, siteId, random });
  const { diskId } = identity;
  const site = { node, siteId, diskId, name, address };
  await (await MemberTable.open(disk, beside)).admit([{ ...site, removed: false }]);
  const roster: Roster = {
    cluster,
    replicas: 1,
    sites: new Map([[node, { ...site, addressNumber: 1, zone: "", state: "active" }]]),
    placements: new Map(),
  };
  await beginReplicas(disk, beside, node, [
    {
      ...{ group: rosterGroup, index: 1, machineVersion: rosterVersion },
      pieces: [encodeRoster(roster)],
    },
    ...shards.map(({ number: group, checkpointIndex: index }) => ({
      ...{ group, index, machineVersion: 1 },
      pieces: index === 0 ? [] : [encodeMark(noFence)],
    })),
  ]);
  return identity;
}

/** All is as a start of the cluster's node will find it, the log included. */
async function checkBeside(
  beside: string,
  shards: readonly ShardInfo[],
  { dir, log: logSettings }: FirstReplicaSettings,
  { disk, clock, random, logger }: FirstReplicaComponents,
): Promise<void> {
  const parts = { disk, clock, random, logger };
  const log = await openLog(logSettings, parts, joinPath(dir, "log"));
  let reports: ReplicaReport[];
  try {
    reports = await surveyReplicas({ disk, dir: beside, log });
  } finally {
    await log.close();
  }
  for (const { number, checkpointIndex } of shards) {
    const report = reports.find(({ group }) => group === number);
    if (report?.damage !== undefined) {
      const reason = `the log of shard ${number} is damaged (${report.damage})`;
      throw clusterErrors.initRefused({ dir, reason });
    }
    if (report?.lastIndex === checkpointIndex) continue;
    const reason = `shard ${number} went on while it was looked at`;
    throw clusterErrors.initRefused({ dir, reason });
  }
}
