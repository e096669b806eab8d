// Terms and votes of all groups: one file, two slots a group, each a sector of its own
// (docs/formats/raft.md). A change is written to the first slot and synced, then to the second and
// synced, and only then done: so of two slots one is always whole and right, whether a power cut
// tore a write or a sector rotted.
//
// Keeps: saves of a group are done in order; saves of many groups share their syncs; the first error
// is final. A slot's checksum is seeded with its place: a misdirected write does not pass.

import {
  crc32,
  type Disk,
  type DiskFile,
  isCodedError,
  syncFully,
  toError,
  writeFully,
} from "../../base/index.ts";
import type { HardState, NodeId } from "../core/types.ts";
import { raftErrors } from "../errors.ts";

export type GroupMeta = {
  readonly group: number;
  /** The number under which this disk is a replica of the group. */
  readonly node: NodeId;
  /** Raised by a forced recovery. */
  readonly epoch: number;
  /** Of the log here; raised when synced entries are lost. */
  readonly incarnation: number;
  readonly hardState: HardState;
  readonly configurationIndex: number;
  /** Synced entries were lost and are not known to be back. */
  readonly repairing: boolean;
  /** The group went on without this replica, which was told so. */
  readonly removed: boolean;
};

export type SaveDone = (error: Error | undefined) => void;
type Save = { meta: GroupMeta; readonly dones: SaveDone[] };

export const slotBytes = 512;
const placeBytes = 2 * slotBytes;
const magic = 0x464c_524d; // "FLRM"
const version = 1;
const crcAt = slotBytes - 4;
const placesMax = 65_536;
const repairingFlag = 1;
const removedFlag = 2;

export class MetaFile {
  readonly #file: DiskFile;
  readonly #metas = new Map<number, GroupMeta>();
  readonly #places = new Map<number, number>();
  readonly #sequences = new Map<number, number>();
  #placeCount = 0;
  /** Places of which no slot can be read: somebody's term and vote are lost. */
  damagedPlaces = 0;
  /** Slots written again at open from their twins. */
  mendedSlots = 0;
  #failure: Error | undefined;
  #pending = new Map<number, Save>();
  #running: Promise<void> | undefined;

  private constructor(file: DiskFile) {
    this.#file = file;
  }

  /** @throws RAFT_META_LOST when the file is gone, RAFT_DIR_NEWER, or what the disk says. */
  static async open(disk: Disk, path: string): Promise<MetaFile> {
    let file: DiskFile;
    try {
      file = await disk.open(path, "write");
    } catch (error) {
      if (!isCodedError(error, "DISK_NOT_FOUND")) throw error;
      throw raftErrors.metaLost({ group: "any", path }, error);
    }
    const metas = new MetaFile(file);
    try {
      await metas.#load(path);
    } catch (error) {
      await file.close();
      throw error;
    }
    return metas;
  }

  get failure(): Error | undefined {
    return this.#failure;
  }

  get(group: number): GroupMeta | undefined {
    return this.#metas.get(group);
  }

  groups(): number[] {
    return [...this.#metas.keys()];
  }

  /** `done` runs once, after both slots are durable or with the error that ended the file. */
  save(meta: GroupMeta, done: SaveDone): void {
    if (this.#failure !== undefined) {
      done(this.#failure);
      return;
    }
    const waiting = this.#pending.get(meta.group);
    if (waiting === undefined) this.#pending.set(meta.group, { meta, dones: [done] });
    else {
      waiting.meta = meta;
      waiting.dones.push(done);
    }
    this.#running ??= this.#run();
  }

  saved(meta: GroupMeta): Promise<void> {
    return new Promise((resolve, reject) => {
      this.save(meta, (error) => (error === undefined ? resolve() : reject(error)));
    });
  }

  async close(): Promise<void> {
    await this.#running;
    await this.#file.close();
  }

  async #run(): Promise<void> {
    while (this.#pending.size > 0) {
      const batch = this.#pending;
      this.#pending = new Map();
      let error = this.#failure;
      if (error === undefined) {
        try {
          await this.#write([...batch.values()]);
        } catch (cause) {
          error = toError(cause);
          // Space is needed for a new group only, and nothing was promised on it.
          if (!isCodedError(cause, "DISK_FULL")) this.#failure = error;
        }
      }
      for (const { meta, dones } of batch.values()) {
        if (error === undefined) this.#metas.set(meta.group, meta);
        for (const done of dones) done(error);
      }
    }
    this.#running = undefined;
  }

  async #write(batch: readonly Save[]): Promise<void> {
    const slots = batch.map(({ meta }) => {
      const place = this.#placeOf(meta.group);
      const sequence = (this.#sequences.get(meta.group) ?? 0) + 1;
      this.#sequences.set(meta.group, sequence);
      return { meta, sequence, offset: place * placeBytes };
    });
    for (const second of [0, slotBytes]) {
      for (const { meta, sequence, offset } of slots) {
        const at = offset + second;
        await writeFully(this.#file, encodeSlot(meta, sequence, at), at);
      }
      await syncFully(this.#file);
    }
  }

  #placeOf(group: number): number {
    let place = this.#places.get(group);
    if (place === undefined) {
      place = this.#placeCount;
      if (place >= placesMax) throw raftErrors.limit({ what: "groups", limit: placesMax });
      this.#placeCount++;
      this.#places.set(group, place);
    }
    return place;
  }

  async #load(path: string): Promise<void> {
    const sizeBytes = await this.#file.sizeBytes();
    this.#placeCount = Math.ceil(sizeBytes / placeBytes);
    for (let place = 0; place < this.#placeCount; place++) await this.#loadPlace(path, place);
    if (this.mendedSlots > 0) await syncFully(this.#file);
  }

  async #loadPlace(path: string, place: number): Promise<void> {
    const offset = place * placeBytes;
    const found = [];
    for (const at of [offset, offset + slotBytes]) {
      const slot = decodeSlot(await this.#readSlot(at), at);
      if (slot?.version !== undefined && slot.version > version) {
        throw raftErrors.dirNewer({ path, version: slot.version, known: version });
      }
      found.push(slot);
    }
    const [first, second] = found;
    // A new group whose first write was cut off: nobody was told of it.
    if (first?.isBlank && second?.isBlank) return;
    const newest = newerOf(first?.slot, second?.slot);
    if (newest === undefined) {
      // The first write of all tears one slot only; the other is still blank.
      if (!(first?.isBlank || second?.isBlank)) this.damagedPlaces++;
      return;
    }
    const { meta, sequence } = newest;
    this.#metas.set(meta.group, meta);
    this.#places.set(meta.group, place);
    this.#sequences.set(meta.group, sequence);
    for (const [which, other] of found.entries()) {
      if (other?.slot?.sequence === sequence) continue;
      const at = offset + which * slotBytes;
      await writeFully(this.#file, encodeSlot(meta, sequence, at), at);
      this.mendedSlots++;
    }
  }

  async #readSlot(at: number): Promise<Buffer | undefined> {
    const bytes = Buffer.alloc(slotBytes);
    try {
      await this.#file.read(bytes, at);
      return bytes;
    } catch (error) {
      // An unreadable sector: its twin decides.
      if (isCodedError(error, "DISK_IO_FAILED")) return undefined;
      throw error;
    }
  }
}

type Slot = { readonly meta: GroupMeta; readonly sequence: number };
type FoundSlot = {
  readonly isBlank: boolean;
  readonly version?: number;
  readonly slot?: Slot;
};

function newerOf(one: Slot | undefined, other: Slot | undefined): Slot | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return one.sequence >= other.sequence ? one : other;
}

export function encodeSlot(meta: GroupMeta, sequence: number, offset: number): Buffer {
  const bytes = Buffer.alloc(slotBytes);
  bytes.writeUInt32BE(magic, 0);
  bytes.writeUInt16BE(version, 4);
  bytes[6] = (meta.repairing ? repairingFlag : 0) | (meta.removed ? removedFlag : 0);
  bytes.writeUInt32BE(meta.group, 8);
  bytes.writeUInt32BE(meta.epoch, 12);
  bytes.writeUInt32BE(meta.incarnation, 16);
  const { term, vote, commit } = meta.hardState;
  const numbers = [sequence, meta.node, term, vote, commit, meta.configurationIndex];
  for (const [place, value] of numbers.entries()) {
    bytes.writeBigUInt64BE(BigInt(value), 20 + place * 8);
  }
  bytes.writeUInt32BE(crc32(bytes.subarray(0, crcAt), offset), crcAt);
  return bytes;
}

function decodeSlot(bytes: Buffer | undefined, offset: number): FoundSlot | undefined {
  if (bytes === undefined) return undefined;
  if (bytes.every((byte) => byte === 0)) return { isBlank: true };
  const crc = crc32(bytes.subarray(0, crcAt), offset);
  if (bytes.readUInt32BE(0) !== magic || crc !== bytes.readUInt32BE(crcAt)) return undefined;
  const found = bytes.readUInt16BE(4);
  if (found > version) return { isBlank: false, version: found };
  const number = (place: number): number => Number(bytes.readBigUInt64BE(20 + place * 8));
  const flags = bytes[6] as number;
  const meta: GroupMeta = {
    group: bytes.readUInt32BE(8),
    node: number(1),
    epoch: bytes.readUInt32BE(12),
    incarnation: bytes.readUInt32BE(16),
    hardState: { term: number(2), vote: number(3), commit: number(4) },
    configurationIndex: number(5),
    repairing: (flags & repairingFlag) !== 0,
    removed: (flags & removedFlag) !== 0,
  };
  return { isBlank: false, version: found, slot: { meta, sequence: number(0) } };
}
