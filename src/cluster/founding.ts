// How a data directory becomes a member of a cluster: as one of its first members, named in the
// configuration of all of them.
//
// Keeps: the ids of cluster and site are made once, of the names that the first members were given,
// and stand in the directory from then on; names and addresses of the configuration may change later.
// The id of the disk is drawn, so an empty disk under an old name is somebody else.

import { createHash } from "node:crypto";
import { type Disk, joinPath, type ListenAddress, type Random } from "../base/index.ts";
import {
  type Expected,
  formatRaftDir,
  type Identity,
  readIdentity,
  type Uuid,
} from "../raft/index.ts";
import { clusterErrors } from "./errors.ts";

/** What all first members say alike. */
export type Founding = {
  readonly cluster: string;
  readonly members: readonly FoundingMember[];
};

export type FoundingMember = {
  readonly name: string;
  /** Where the one that reads this list reaches it. */
  readonly address: ListenAddress;
};

/** A Raft group of more members commits no faster and is no safer. */
export const foundersMax = 7;

export function raftDirOf(dir: string): string {
  return joinPath(dir, "raft");
}

/**
 * The first members by their numbers: the order of the list does not count.
 * @throws CLUSTER_FOUNDING_INVALID.
 */
export function expectedOf(founding: Founding): Expected[] {
  const names = namesOf(founding);
  const clusterId = clusterIdOf(founding);
  return names.map((name, at) => {
    const member = founding.members.find((each) => each.name === name) as FoundingMember;
    return { node: at + 1, siteId: siteIdOf(clusterId, name), name, address: member.address };
  });
}

/** Other names, or another one among them, are another cluster. */
export function clusterIdOf(founding: Founding): Uuid {
  return idOf(JSON.stringify(["cluster", founding.cluster, ...namesOf(founding)]));
}

/**
 * The identity of the directory; one without any becomes the first member `name`.
 * @throws CLUSTER_FOUNDING_INVALID, RAFT_IDENTITY_FOREIGN, RAFT_DIR_DAMAGED, RAFT_DIR_NEWER.
 */
export async function identityOf(
  disk: Disk,
  place: { readonly dir: string; readonly name: string; readonly random: Random },
  founding: Founding,
): Promise<Identity> {
  const dir = raftDirOf(place.dir);
  const own = expectedOf(founding).find(({ name }) => name === place.name);
  if (own === undefined) {
    const reason = `${place.name} is not among its first members`;
    throw clusterErrors.foundingInvalid({ cluster: founding.cluster, reason });
  }
  const clusterId = clusterIdOf(founding);
  const isNew = !(await disk.exists(dir)) || (await disk.list(dir)).length === 0;
  if (!isNew) return readIdentity(disk, dir, { clusterId, siteId: own.siteId });
  return formatRaftDir(disk, dir, { clusterId, siteId: own.siteId, random: place.random });
}

function siteIdOf(clusterId: Uuid, name: string): Uuid {
  return idOf(JSON.stringify(["site", clusterId, name]));
}

function namesOf({ cluster, members }: Founding): string[] {
  const fault = foundingFault(cluster, members);
  if (fault !== undefined) throw clusterErrors.foundingInvalid({ cluster, reason: fault });
  return members.map(({ name }) => name).sort();
}

function foundingFault(cluster: string, members: readonly FoundingMember[]): string | undefined {
  const names = members.map(({ name }) => name);
  const wrong = [cluster, ...names].find((name) => !isName(name));
  if (wrong !== undefined) return `${JSON.stringify(wrong)} is not 1 to 64 of a-z, 0-9, . and -`;
  if (new Set(names).size !== names.length) return "two of its first members have one name";
  if (names.length === 0 || names.length > foundersMax) {
    return `its first members are 1 to ${foundersMax}`;
  }
  return undefined;
}

export function isName(text: string): boolean {
  return /^[a-z0-9][a-z0-9.-]{0,63}$/.test(text);
}

function idOf(text: string): Uuid {
  return createHash("sha256").update(text).digest("hex").slice(0, 32);
}
