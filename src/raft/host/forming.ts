// How the first members of a cluster find each other: explicit, once, and all or none.
//
// Each says, again and again, which sites it expects and which disk it has seen of each. A disk is
// a member when every site expected has shown the same whole list. So nobody forms a cluster alone
// that others should be in, a list that differs anywhere stops it, and who comes late is taken in by
// one that is a member already; a new disk under the site of a member is refused for good.

import {
  ByteReader,
  ByteWriter,
  type Cancel,
  type Clock,
  type Disk,
  isCodedError,
  type ListenAddress,
  type Logger,
} from "../../base/index.ts";
import type { NodeId } from "../core/types.ts";
import { raftErrors } from "../errors.ts";
import { encodeFrame, openFrame } from "./frames.ts";
import { type Identity, readIdentity, type Uuid } from "./identity.ts";
import { decodeMembers, encodeMembers, type Member, MemberTable } from "./members.ts";
import type { Transport } from "./ports.ts";

/** Of a member before its disk was seen. */
export const unknownDisk: Uuid = "0".repeat(32);

export type Expected = {
  readonly node: NodeId;
  readonly siteId: Uuid;
  readonly name: string;
  readonly address: ListenAddress;
};

export type FormComponents = {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly transport: Transport;
};

const sayMs = 200;
const frameBytesMax = 1024 * 1024;

/** What hosts tell each other about the list. */
export type FormWord = { readonly isMember: boolean; readonly members: readonly Member[] };

export function encodeForm(word: FormWord): Buffer {
  const writer = new ByteWriter().u8(Number(word.isMember));
  encodeMembers(writer, word.members);
  return writer.finish();
}

export function decodeForm(body: Buffer): FormWord | undefined {
  try {
    const reader = new ByteReader(body);
    const isMember = reader.u8() === 1;
    const members = decodeMembers(reader);
    return reader.remaining === 0 ? { isMember, members } : undefined;
  } catch (error) {
    if (isCodedError(error)) return undefined;
    throw error;
  }
}

/**
 * Makes the formatted directory a member of the cluster of `expected`, durably, and closes the
 * transport; open the host afterwards, with a new one. At once for a directory that is a member
 * already. Waits for all others; the caller decides how long, by `stop`.
 * @throws RAFT_IDENTITY_REFUSED, RAFT_MEMBER_CONFLICT for a list that differs, RAFT_HOST_CLOSED
 *   after `stop`, and as `openRaftHost`.
 */
export async function formCluster(
  components: FormComponents,
  dir: string,
  expected: readonly Expected[],
  stop: AbortSignal,
): Promise<Member[]> {
  const { disk, transport } = components;
  const identity = await readIdentity(disk, dir);
  const table = await MemberTable.open(disk, dir);
  if (table.isFormed) {
    await transport.close();
    return table.all();
  }
  try {
    const members = await new Forming(components, identity, expected).run(stop);
    await table.admit(members);
    return members;
  } finally {
    await transport.close();
  }
}

class Forming {
  readonly #components: FormComponents;
  readonly #identity: Identity;
  readonly #expected: readonly Expected[];
  readonly #disks = new Map<Uuid, Uuid>();
  readonly #words = new Map<Uuid, FormWord>();
  #settle: ((result: readonly Member[] | Error) => void) | undefined;
  #cancel: Cancel | undefined;

  constructor(components: FormComponents, identity: Identity, expected: readonly Expected[]) {
    this.#components = components;
    this.#identity = identity;
    this.#expected = expected;
    this.#disks.set(identity.siteId, identity.diskId);
  }

  async run(stop: AbortSignal): Promise<Member[]> {
    const { transport } = this.#components;
    const { siteId: site } = this.#identity;
    if (!this.#expected.some(({ siteId }) => siteId === site)) {
      throw raftErrors.declined({ group: "all", reason: `site ${site} is not expected itself` });
    }
    const settled = new Promise<readonly Member[]>((resolve, reject) => {
      this.#settle = (result) => (result instanceof Error ? reject(result) : resolve(result));
    });
    stop.addEventListener("abort", () => this.#settle?.(raftErrors.hostClosed({})));
    if (stop.aborted) this.#settle?.(raftErrors.hostClosed({}));
    await transport.start({ onFrame: (frame) => this.#onFrame(frame), onDown: () => undefined });
    transport.setPeers(this.#list().filter(({ siteId }) => siteId !== site));
    this.#say();
    this.#judge();
    try {
      return [...(await settled)];
    } finally {
      // The others may still wait for our last word.
      this.#tell();
      this.#cancel?.();
    }
  }

  #list(): Member[] {
    return this.#expected.map(({ node, siteId, name, address }) => {
      const diskId = this.#disks.get(siteId) ?? unknownDisk;
      return { node, siteId, diskId, name, address, removed: false };
    });
  }

  #say(): void {
    this.#tell();
    this.#cancel = this.#components.clock.schedule(sayMs, () => this.#say());
  }

  #tell(): void {
    const body = encodeForm({ isMember: false, members: this.#list() });
    const frame = encodeFrame(this.#identity, "form", body);
    for (const { siteId } of this.#expected) {
      if (siteId !== this.#identity.siteId) this.#components.transport.send(siteId, frame);
    }
  }

  #onFrame(bytes: Buffer): void {
    const { clusterId } = this.#identity;
    const knows = (siteId: Uuid): boolean =>
      this.#expected.some((expected) => expected.siteId === siteId);
    const frame = openFrame(bytes, { clusterId, frameBytesMax, knows });
    if (typeof frame === "string" || frame.kind !== "form") return;
    const word = decodeForm(frame.body);
    if (word === undefined) return;
    if (word.isMember) {
      this.#takeIn(word);
      return;
    }
    const differs = differenceOf(this.#list(), word.members);
    if (differs !== undefined) {
      const fields = { site: frame.siteId, reason: differs };
      this.#components.logger.error("raft.list_differs", fields);
      return;
    }
    this.#disks.set(frame.siteId, frame.diskId);
    this.#words.set(frame.siteId, word);
    this.#judge();
  }

  // A member answers: either its list has this very disk, or this disk is nobody.
  #takeIn({ members }: FormWord): void {
    const { siteId, diskId } = this.#identity;
    const own = members.find((member) => member.siteId === siteId);
    if (own?.diskId === diskId) this.#settle?.(this.#withOwnAddresses(members));
    else {
      const known = own?.diskId ?? "none";
      this.#settle?.(raftErrors.identityRefused({ site: siteId, known, own: diskId }));
    }
  }

  // Hosts may reach each other in different ways.
  #withOwnAddresses(members: readonly Member[]): Member[] {
    return members.map((member) => {
      const known = this.#expected.find(({ node }) => node === member.node);
      return known === undefined ? member : { ...member, address: known.address };
    });
  }

  #judge(): void {
    const list = this.#list();
    const isAgreed = list.every(({ siteId }) => {
      if (siteId === this.#identity.siteId) return true;
      const theirs = this.#words.get(siteId)?.members ?? [];
      return list.every(({ node, diskId }) =>
        theirs.some((member) => member.node === node && member.diskId === diskId),
      );
    });
    if (isAgreed) this.#settle?.(list);
  }
}

/** A sentence when the two do not expect the same sites under the same numbers. */
function differenceOf(ours: readonly Member[], theirs: readonly Member[]): string | undefined {
  if (ours.length !== theirs.length) {
    return `it expects ${theirs.length} members, we ${ours.length}`;
  }
  for (const { node, siteId } of ours) {
    const other = theirs.find((member) => member.node === node);
    if (other?.siteId !== siteId) return `node ${node} is another site there`;
  }
  return undefined;
}
