// How an empty directory becomes the disk of a site that joins a cluster: it gets its ids, a member
// takes the site into the roster, and the members that it names are kept. Each step may be repeated.

import { type Disk, joinPath, type Random } from "../base/index.ts";
import {
  drawUuid,
  formatRaftDir,
  type Identity,
  type Member,
  MemberTable,
  readIdentity,
  type Uuid,
} from "../raft/index.ts";
import type { Roster } from "./core/roster.ts";
import { clusterErrors } from "./errors.ts";
import { raftDirOf } from "./founding.ts";

/**
 * The identity with which the directory asks to join.
 * @throws CLUSTER_DIR_IN_USE for one that holds data of a node, RAFT_IDENTITY_FOREIGN.
 */
export async function prepareSite(
  disk: Disk,
  place: { readonly dir: string; readonly clusterId: Uuid; readonly random: Random },
): Promise<Identity> {
  const { dir, clusterId, random } = place;
  const raftDir = raftDirOf(dir);
  const isPrepared = (await disk.exists(raftDir)) && (await disk.list(raftDir)).length > 0;
  if (isPrepared) return readIdentity(disk, raftDir, { clusterId });
  await checkEmpty(disk, dir);
  return formatRaftDir(disk, raftDir, { clusterId, siteId: drawUuid(random), random });
}

/** Nothing is dropped to join, or to form. @throws CLUSTER_DIR_IN_USE. */
export async function checkEmpty(disk: Disk, dir: string): Promise<void> {
  for (const name of ["log", "db"]) {
    if (await disk.exists(joinPath(dir, name))) throw clusterErrors.dirInUse({ dir, found: name });
  }
}

/** Whether the directory is a member of a cluster, and opens without any list. */
export async function isMemberDir(disk: Disk, dir: string): Promise<boolean> {
  const raftDir = raftDirOf(dir);
  return (await disk.exists(raftDir)) && (await MemberTable.open(disk, raftDir)).isFormed;
}

/**
 * Keeps, durably, whom the cluster named when it took this site in.
 * REQUIRES: this disk is among them.
 */
export async function becomeMember(
  disk: Disk,
  dir: string,
  members: readonly Member[],
): Promise<void> {
  const table = await MemberTable.open(disk, raftDirOf(dir));
  await table.admit(members);
}

/** All sites of the roster, for one that joins. */
export function membersOf({ sites }: Roster): Member[] {
  return [...sites.values()].map(({ node, siteId, diskId, name, address, state }) => {
    return { node, siteId, diskId, name, address, removed: state === "left" };
  });
}
