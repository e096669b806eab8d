// Whom this host knows: which number stands for which disk of which site, and where it listens.
//
// Keeps: a number is bound to one disk for ever, and tombstones stay, so that neither a wiped disk
// nor a removed member comes back under its old number; the table is durable before it is used.
// Who votes in which group is not here: that stands in the groups' logs.

import {
  ByteReader,
  ByteWriter,
  type Disk,
  joinPath,
  type ListenAddress,
} from "../../base/index.ts";
import type { NodeId } from "../core/types.ts";
import { raftErrors } from "../errors.ts";
import { readUuid, type Uuid } from "./identity.ts";
import { readTwin, writeTwin } from "./twin-file.ts";

export type Member = {
  readonly node: NodeId;
  readonly siteId: Uuid;
  readonly diskId: Uuid;
  /** For people, and what a certificate must name under mTLS. */
  readonly name: string;
  readonly address: ListenAddress;
  /** It left for good: nothing of it is taken any more. */
  readonly removed: boolean;
};

/** Tombstones included; far above `membersMax` of a group. */
const tableMax = 4096;
const tableKind = { magic: "FLAGRMEM", version: 1 };

export class MemberTable {
  readonly #disk: Disk;
  readonly #path: string;
  #members: ReadonlyMap<NodeId, Member>;
  #isFormed: boolean;
  #saving: Promise<void> = Promise.resolve();

  private constructor(disk: Disk, path: string, members: readonly Member[], isFormed: boolean) {
    this.#disk = disk;
    this.#path = path;
    this.#members = new Map(members.map((member) => [member.node, member]));
    this.#isFormed = isFormed;
  }

  /** @throws RAFT_DIR_DAMAGED, RAFT_DIR_NEWER. */
  static async open(disk: Disk, dir: string): Promise<MemberTable> {
    const path = joinPath(dir, "members");
    const payload = await readTwin(disk, path, tableKind);
    const members = payload === undefined ? [] : decodeMembers(new ByteReader(payload));
    return new MemberTable(disk, path, members, payload !== undefined);
  }

  /** This disk is a member of a cluster, and never forms another. */
  get isFormed(): boolean {
    return this.#isFormed;
  }

  get(node: NodeId): Member | undefined {
    return this.#members.get(node);
  }

  all(): Member[] {
    return [...this.#members.values()];
  }

  /** Whether frames of this disk, or of any disk of the site, are taken. */
  knows(siteId: Uuid, diskId: Uuid | undefined): boolean {
    return this.all().some((member) => {
      const isDisk = diskId === undefined || member.diskId === diskId;
      return member.siteId === siteId && isDisk && !member.removed;
    });
  }

  /**
   * Adds members or gives them new addresses; durable when this resolves.
   * @throws RAFT_MEMBER_CONFLICT when a number stands for another disk or was removed.
   */
  admit(members: readonly Member[]): Promise<void> {
    return this.#change((table) => {
      for (const member of members) {
        const known = table.get(member.node);
        const isOther = known !== undefined && known.diskId !== member.diskId;
        if (isOther || (known?.removed && !member.removed)) {
          const { node, diskId: given } = member;
          throw raftErrors.memberConflict({ node, known: known?.diskId, given });
        }
        table.set(member.node, member);
      }
      if (table.size > tableMax) throw raftErrors.limit({ what: "members", limit: tableMax });
    });
  }

  /** The number is never used again. */
  remove(node: NodeId): Promise<void> {
    return this.#change((table) => {
      const known = table.get(node);
      if (known !== undefined) table.set(node, { ...known, removed: true });
    });
  }

  #change(edit: (table: Map<NodeId, Member>) => void): Promise<void> {
    const run = async (): Promise<void> => {
      const table = new Map(this.#members);
      edit(table);
      const writer = new ByteWriter();
      encodeMembers(writer, [...table.values()]);
      await writeTwin(this.#disk, this.#path, tableKind, writer.finish());
      this.#members = table;
      this.#isFormed = true;
    };
    const saved = this.#saving.then(run);
    // The next change begins whether this one came through or not; its caller is told.
    this.#saving = saved.catch(() => undefined);
    return saved;
  }
}

export function encodeMembers(writer: ByteWriter, members: readonly Member[]): void {
  writer.varint(members.length);
  for (const member of [...members].sort((one, other) => one.node - other.node)) {
    writer.varint(member.node).raw(Buffer.from(member.siteId, "hex"));
    writer.raw(Buffer.from(member.diskId, "hex")).string(member.name);
    const { address } = member;
    if ("path" in address) writer.u8(1).string(address.path);
    else writer.u8(0).string(address.host).u16(address.port);
    writer.u8(Number(member.removed));
  }
}

/** REQUIRES: bytes that a checksum vouches for. Throws BYTES_TRUNCATED, RAFT_LIMIT_REACHED. */
export function decodeMembers(reader: ByteReader): Member[] {
  const count = reader.varint();
  if (count > tableMax) throw raftErrors.limit({ what: "members", limit: tableMax });
  return Array.from({ length: count }, () => {
    const node = reader.varint();
    const [siteId, diskId, name] = [readUuid(reader), readUuid(reader), reader.string()];
    const isPath = reader.u8() === 1;
    const place = reader.string();
    const address = isPath ? { path: place } : { host: place, port: reader.u16() };
    return { node, siteId, diskId, name, address, removed: reader.u8() === 1 };
  });
}
