// Who this data directory is: cluster, site and disk. The disk's id is drawn when the directory is
// formatted and never again, so an empty disk under an old name is somebody else.
//
// Keeps: an identity is written once, before anything else; nothing is formatted over data; a
// directory that is foreign, newer or damaged is refused. Leaves to members.ts who the others are.

import { ByteReader, ByteWriter, type Disk, joinPath, type Random } from "../../base/index.ts";
import { raftErrors } from "../errors.ts";
import { readTwin, writeTwin } from "./twin-file.ts";

/** 16 bytes as 32 hexadecimal digits. */
export type Uuid = string;

export type Identity = {
  readonly clusterId: Uuid;
  /** Durable name of a member, whatever host and address it has. */
  readonly siteId: Uuid;
  /** Of this very disk. */
  readonly diskId: Uuid;
};

export const uuidBytes = 16;
const metaName = "meta";
const identityKind = { magic: "FLAGRIDY", version: 1 };

export function drawUuid(random: Random): Uuid {
  return random.bytes(uuidBytes).toString("hex");
}

/** @throws RAFT_ID_INVALID. */
export function parseUuid(text: string, what: string): Uuid {
  const digits = text.replaceAll("-", "").toLowerCase();
  if (!/^[0-9a-f]{32}$/.test(digits)) throw raftErrors.idInvalid({ what, text });
  return digits;
}

export function identityPath(dir: string): string {
  return joinPath(dir, "identity");
}

export function metaPath(dir: string): string {
  return joinPath(dir, metaName);
}

/** What a formatting that was cut off may leave: the first file, empty, and the second unfinished. */
const unfinishedName = "identity.a.new";

/**
 * The name of something that a member kept in the directory; undefined when it was never formatted,
 * or when its first formatting was cut off, before anything was promised.
 */
export async function findRaftData(disk: Disk, dir: string): Promise<string | undefined> {
  if (!(await disk.exists(dir))) return undefined;
  for (const { name } of await disk.list(dir)) {
    if (name === unfinishedName) continue;
    if (name !== metaName || !(await isEmpty(disk, metaPath(dir)))) return name;
  }
  return undefined;
}

async function isEmpty(disk: Disk, path: string): Promise<boolean> {
  const file = await disk.open(path, "read");
  try {
    return (await file.sizeBytes()) === 0;
  } finally {
    await file.close();
  }
}

/**
 * Makes an empty directory the disk of a site; goes on where a formatting was cut off.
 * @throws RAFT_DIR_NOT_EMPTY, and what the disk says.
 */
export async function formatRaftDir(
  disk: Disk,
  dir: string,
  given: { readonly clusterId: Uuid; readonly siteId: Uuid; readonly random: Random },
): Promise<Identity> {
  await disk.makeDir(dir);
  const found = await findRaftData(disk, dir);
  if (found !== undefined) throw raftErrors.dirInUse({ dir, found });
  const clusterId = parseUuid(given.clusterId, "cluster");
  const siteId = parseUuid(given.siteId, "site");
  const identity = { clusterId, siteId, diskId: drawUuid(given.random) };
  const writer = new ByteWriter();
  for (const id of [clusterId, siteId, identity.diskId]) writer.raw(Buffer.from(id, "hex"));
  // An empty one: from now on a missing file is a lost one.
  if (!(await disk.exists(metaPath(dir)))) await (await disk.open(metaPath(dir), "create")).close();
  await disk.syncDir(dir);
  await writeTwin(disk, identityPath(dir), identityKind, writer.finish());
  return identity;
}

/**
 * @throws RAFT_DIR_MISSING, RAFT_DIR_WIPED, RAFT_DIR_DAMAGED, RAFT_DIR_NEWER,
 *   RAFT_IDENTITY_FOREIGN.
 */
export async function readIdentity(
  disk: Disk,
  dir: string,
  expected: { readonly clusterId?: Uuid; readonly siteId?: Uuid } = {},
): Promise<Identity> {
  const path = identityPath(dir);
  const payload = await readTwin(disk, path, identityKind);
  if (payload === undefined) {
    // Absence is no proof: what else lies here was somebody's.
    const found = await findRaftData(disk, dir);
    throw found === undefined
      ? raftErrors.dirMissing({ dir })
      : raftErrors.dirWiped({ dir, found });
  }
  const reader = new ByteReader(payload);
  const [clusterId, siteId, diskId] = [readUuid(reader), readUuid(reader), readUuid(reader)];
  const facts = [
    ["cluster", clusterId, expected.clusterId],
    ["site", siteId, expected.siteId],
  ] as const;
  for (const [what, found, wanted] of facts) {
    if (wanted !== undefined && wanted !== found) {
      throw raftErrors.identityForeign({ dir, what, found, wanted });
    }
  }
  return { clusterId, siteId, diskId };
}

export function readUuid(reader: ByteReader): Uuid {
  return reader.raw(uuidBytes).toString("hex");
}
