// Which start of a directory speaks. A directory that was copied, or restored from a copy, has the
// identity of the original and has forgotten what that promised since.
//
// Keeps: a start is counted, and its mark drawn, durably before anything is said in it; who heard of a
// start takes neither an earlier one of that disk nor another one of the same number. Counted in
// place, so that a full volume keeps no node from starting. Peers keep what they heard in memory: a
// copy is not seen by peers that have all started anew since.

import {
  type ByteConnection,
  crc32,
  type Disk,
  type DiskFile,
  isCodedError,
  joinPath,
  type Random,
  syncFully,
  writeFully,
} from "../../base/index.ts";
import { raftErrors } from "../errors.ts";
import { drawUuid, type Uuid, uuidBytes } from "./identity.ts";

export type Life = {
  /** How often the directory was started. */
  readonly start: number;
  /** Drawn at the start. */
  readonly mark: Uuid;
};

const slotBytes = 512;
const magic = 0x464c_5253; // "FLRS"
const version = 1;
const markAt = 16;
const crcAt = slotBytes - 4;

/**
 * Counts a start of the directory. Undefined when there is no space to count the first one.
 * @throws RAFT_DIR_DAMAGED, RAFT_DIR_NEWER, or what the disk says.
 */
export async function beginLife(
  disk: Disk,
  dir: string,
  random: Random,
): Promise<Life | undefined> {
  const path = joinPath(dir, "starts");
  const isNew = !(await disk.exists(path));
  try {
    const file = await disk.open(path, isNew ? "create" : "write");
    try {
      const life = { start: (await readStart(file, path)) + 1, mark: drawUuid(random) };
      // One after the other: of two slots one is always whole, whatever a power cut tears.
      for (const at of [0, slotBytes]) {
        await writeFully(file, encodeStart(life, at), at);
        await syncFully(file);
      }
      // A first start may have been cut off between its name and this.
      if (life.start === 1) await disk.syncDir(dir);
      return life;
    } finally {
      await file.close();
    }
  } catch (error) {
    if (!isCodedError(error, "DISK_FULL")) throw error;
    return undefined;
  }
}

/** The highest that either slot holds; 0 when none was ever counted. */
async function readStart(file: DiskFile, path: string): Promise<number> {
  const sizeBytes = await file.sizeBytes();
  const starts: number[] = [];
  for (const at of [0, slotBytes]) {
    const start = await readSlot(file, at, path);
    if (start !== undefined) starts.push(start);
  }
  // The first write of all fills one slot after the other.
  if (starts.length === 0 && sizeBytes >= 2 * slotBytes) throw raftErrors.dirDamaged({ path });
  return Math.max(0, ...starts);
}

async function readSlot(file: DiskFile, at: number, path: string): Promise<number | undefined> {
  const bytes = Buffer.alloc(slotBytes);
  try {
    await file.read(bytes, at);
  } catch (error) {
    // An unreadable sector: its twin decides.
    if (isCodedError(error, "DISK_IO_FAILED")) return undefined;
    throw error;
  }
  if (bytes.readUInt32BE(0) !== magic) return undefined;
  if (crc32(bytes.subarray(0, crcAt), at) !== bytes.readUInt32BE(crcAt)) return undefined;
  const found = bytes.readUInt16BE(4);
  if (found > version) throw raftErrors.dirNewer({ path, version: found, known: version });
  return Number(bytes.readBigUInt64BE(8));
}

export function encodeStart({ start, mark }: Life, at: number): Buffer {
  const bytes = Buffer.alloc(slotBytes);
  bytes.writeUInt32BE(magic, 0);
  bytes.writeUInt16BE(version, 4);
  bytes.writeBigUInt64BE(BigInt(start), 8);
  bytes.write(mark, markAt, uuidBytes, "hex");
  bytes.writeUInt32BE(crc32(bytes.subarray(0, crcAt), at), crcAt);
  return bytes;
}

type Speaker = {
  /** Unknown for one of a release that counts no starts. */
  readonly life: Life | undefined;
  readonly connection: ByteConnection | undefined;
};

/** Who speaks for the disks of members, as far as is known here. */
export class Speakers {
  readonly #speakers = new Map<Uuid, Speaker>();

  /** Why this life of a member's disk is not taken; undefined if it may speak. */
  refusalOf(site: Uuid, life: Life | undefined): string | undefined {
    const known = this.#speakers.get(site)?.life;
    if (known === undefined || life === undefined) return undefined;
    if (life.start > known.start || life.mark === known.mark) return undefined;
    const starts = `start ${life.start}, and ${known.start} was here`;
    return `an older copy of a disk (${starts}): remove that member, and join with an empty directory`;
  }

  /**
   * It speaks on this connection from here on; the one before is closed.
   * REQUIRES: `refusalOf` has no word against it.
   */
  take(site: Uuid, life: Life | undefined, connection: ByteConnection): void {
    const before = this.#speakers.get(site);
    this.#speakers.set(site, { life: life ?? before?.life, connection });
    before?.connection?.destroy();
  }

  /** It answered when it was dialled. */
  note(site: Uuid, life: Life | undefined): void {
    const before = this.#speakers.get(site);
    this.#speakers.set(site, { life: life ?? before?.life, connection: before?.connection });
  }

  /** Whether a member speaks on the connection. */
  has(connection: ByteConnection): boolean {
    return [...this.#speakers.values()].some((speaker) => speaker.connection === connection);
  }

  closed(connection: ByteConnection): void {
    for (const [site, speaker] of this.#speakers) {
      if (speaker.connection !== connection) continue;
      this.#speakers.set(site, { life: speaker.life, connection: undefined });
    }
  }

  /** Forgets whoever is no member any more. */
  keep(sites: { has(site: Uuid): boolean }): void {
    for (const site of this.#speakers.keys()) if (!sites.has(site)) this.#speakers.delete(site);
  }
}
