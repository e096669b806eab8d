// The roster as the machine of a Raft group of its own, in memory: snapshots hold all of it.
//
// Keeps: a site is known to this node's host, durably, before anybody can name it as the member of a
// group; one that left is taken for nobody from the entry on that says so.

import type { ListenAddress } from "../base/index.ts";
import type { CommandEntry, RaftHost, SnapshotHead, StateMachine } from "../raft/index.ts";
import { isChannelNote } from "./core/channel-codec.ts";
import { applyCommand, emptyRoster, type Roster, type RosterAnswer } from "./core/roster.ts";
import { decodeCommand, decodeRoster, encodeRoster, rosterVersion } from "./core/roster-codec.ts";
import { clusterErrors } from "./errors.ts";

/** The number of the group: shards of the store begin at 1. */
export const rosterGroup = 0;

/** The table of members of this node's host. */
export type MemberPort = Pick<RaftHost, "members" | "admit" | "forget">;

export class RosterMachine implements StateMachine {
  readonly version = rosterVersion;
  readonly durableIndex = 0;
  roster: Roster = emptyRoster;
  /** Takes what other nodes say about the roster. */
  onTold: ((from: number, data: Uint8Array) => void) | undefined;
  /** Takes what else they say: every member is one of this group. */
  onChannel: ((from: number, data: Uint8Array) => void) | undefined;
  #members: MemberPort | undefined;

  /** Once, before the group is opened. */
  attach(members: MemberPort): void {
    this.#members = members;
  }

  async apply(entries: readonly CommandEntry[]): Promise<readonly RosterAnswer[]> {
    const answers: RosterAnswer[] = [];
    for (const { index, data } of entries) {
      const command = decodeCommand(data);
      if (command === undefined) throw clusterErrors.rosterCorrupt({ index });
      const { roster, answer } = applyCommand(this.roster, command);
      if (roster !== this.roster) await this.#take(roster);
      answers.push(answer);
    }
    return answers;
  }

  capture(): Iterable<Uint8Array> {
    return [encodeRoster(this.roster)];
  }

  async install({ meta }: SnapshotHead, pieces: AsyncIterable<Uint8Array>): Promise<void> {
    const parts: Uint8Array[] = [];
    for await (const piece of pieces) parts.push(Uint8Array.from(piece));
    const bytes = Buffer.concat(parts);
    // The snapshot with which a group begins is empty.
    const roster = bytes.length === 0 ? emptyRoster : decodeRoster(bytes);
    if (roster === undefined) throw clusterErrors.rosterCorrupt({ index: meta.index });
    await this.#take(roster);
  }

  told(from: number, data: Uint8Array): void {
    if (isChannelNote(data)) this.onChannel?.(from, data);
    else this.onTold?.(from, data);
  }

  async #take(roster: Roster): Promise<void> {
    const members = this.#members;
    if (members === undefined) throw new Error("the roster's group was opened before its host");
    const known = new Map(members.members().map((member) => [member.node, member]));
    for (const {
      node,
      siteId,
      diskId,
      name,
      address,
      addressNumber,
      state,
    } of roster.sites.values()) {
      const member = known.get(node);
      const hasLeft = state === "left";
      if (hasLeft && member?.removed === false) await members.forget(node);
      if (hasLeft || member?.removed) continue;
      // First members know each other's addresses from their configurations.
      const isOwn = member !== undefined && addressNumber === 0;
      const isKnown = member !== undefined && sameAddress(member.address, address);
      if (isOwn || isKnown) continue;
      await members.admit([{ node, siteId, diskId, name, address, removed: false }]);
    }
    this.roster = roster;
  }
}

function sameAddress(one: ListenAddress, other: ListenAddress): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
