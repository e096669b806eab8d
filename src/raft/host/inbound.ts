// What arrives at a host, from the whole frame to the group it is for.
//
// Keeps: cluster, site and disk of the sender, and the epoch of the group, are checked before anything
// is handed on; a part of a frame counts only for nodes that the sending disk is; what does not fit
// is counted, and nothing that arrives is thrown. A sender that was removed, or speaks in an epoch
// gone by, is told so.

import type { NodeId } from "../core/types.ts";
import type { HostCounters } from "./counters.ts";
import { encodeForm } from "./forming.ts";
import {
  decodeChunk,
  decodeLetters,
  decodeNote,
  decodeNotice,
  decodeOffer,
  decodeWant,
  encodeNotice,
  type Frame,
  type FrameKind,
  type FrameRefusal,
  type GroupAddress,
  type Notice,
  openFrame,
} from "./frames.ts";
import type { Group } from "./group.ts";
import type { Uuid } from "./identity.ts";
import type { MemberTable } from "./members.ts";
import type { SnapshotTransfers } from "./transfers.ts";

export type InboundParts = {
  readonly clusterId: Uuid;
  readonly frameBytesMax: number;
  readonly counters: HostCounters;
  readonly members: MemberTable;
  readonly groups: ReadonlyMap<number, Group>;
  readonly transfers: SnapshotTransfers;
  readonly sendTo: (node: NodeId, kind: FrameKind, body: Uint8Array) => boolean;
  readonly reply: (site: Uuid, kind: FrameKind, body: Uint8Array) => void;
  readonly onRemoved: (group: number) => void;
};

export class Inbound {
  readonly #parts: InboundParts;
  readonly #counters: HostCounters;

  constructor(parts: InboundParts) {
    this.#parts = parts;
    this.#counters = parts.counters;
  }

  /** A whole frame, of whomever. Nothing in it makes this throw. */
  onFrame(bytes: Buffer): void {
    const { members, clusterId, frameBytesMax } = this.#parts;
    const frame = openFrame(bytes, {
      clusterId,
      frameBytesMax,
      // Who forms a cluster may have a disk that nobody knows yet; it is told what it is.
      knows: (siteId, diskId, kind) => members.knows(siteId, kind === "form" ? undefined : diskId),
    });
    if (typeof frame === "string") {
      this.#counters[refusalCounters[frame]]++;
      return;
    }
    this.#counters.framesReceived++;
    this.#handle(frame);
  }

  #handle(frame: Frame): void {
    switch (frame.kind) {
      case "messages":
        this.#onLetters(frame);
        break;
      case "offer":
        this.#forGroup(frame, decodeOffer(frame.body), (group, offer) =>
          this.#parts.transfers.onOffer(group, offer, (node) => this.#owns(frame, node)),
        );
        break;
      case "want":
        this.#forGroup(frame, decodeWant(frame.body), (group, want) => {
          if (this.#owns(frame, want.node)) this.#parts.transfers.onWant(group, want);
          else this.#counters.lettersMisaddressed++;
        });
        break;
      case "chunk":
        this.#forGroup(frame, decodeChunk(frame.body), (group, chunk) =>
          this.#parts.transfers.onChunk(group, chunk, (node) => this.#owns(frame, node)),
        );
        break;
      case "notice":
        this.#onNotice(decodeNotice(frame.body));
        break;
      case "note":
        this.#forGroup(frame, decodeNote(frame.body), (group, { node, data }) => {
          if (this.#owns(frame, node)) group.machine.told?.(node, data);
          else this.#counters.lettersMisaddressed++;
        });
        break;
      case "form":
        this.#answerForm(frame);
        break;
      default:
        this.#counters.refusedKind++;
    }
  }

  // A notice of a later epoch is the one message of another epoch that counts.
  #onNotice(notice: Notice | undefined): void {
    if (notice === undefined) {
      this.#counters.refusedBody++;
      return;
    }
    const group = this.#parts.groups.get(notice.group);
    if (group === undefined || notice.node !== group.node) {
      this.#counters.lettersMisaddressed++;
      return;
    }
    const isNewer = notice.epoch > group.epoch;
    const counts = notice.what === "epoch" ? isNewer : notice.epoch === group.epoch;
    if (!counts) {
      this.#counters.lettersWrongEpoch++;
      return;
    }
    const why = isNewer ? `the group is of epoch ${notice.epoch} now` : "the leader said so";
    if (group.noteRemoved(why)) this.#parts.onRemoved(group.id);
  }

  #answerForm({ siteId }: Frame): void {
    const body = encodeForm({ isMember: true, members: this.#parts.members.all() });
    this.#parts.reply(siteId, "form", body);
  }

  #onLetters(frame: Frame): void {
    const letters = decodeLetters(frame.body);
    if (letters === undefined) {
      this.#counters.refusedBody++;
      return;
    }
    for (const letter of letters) {
      this.#forGroup(frame, letter, (group, { incarnation, message }) => {
        group.receive(message, { incarnation, owns: (node) => this.#takes(frame, group, node) });
      });
    }
  }

  #forGroup<T extends GroupAddress>(
    frame: Frame,
    part: T | undefined,
    handle: (group: Group, part: T) => void,
  ): void {
    if (part === undefined) {
      this.#counters.refusedBody++;
      return;
    }
    const group = this.#parts.groups.get(part.group);
    if (group === undefined) {
      this.#counters.lettersUnknownGroup++;
      return;
    }
    if (part.epoch !== group.epoch) {
      this.#counters.lettersWrongEpoch++;
      if (part.epoch < group.epoch) this.#tellEpoch(frame, group);
      return;
    }
    handle(group, part);
  }

  // It was away while the group was recovered by force: what it holds counts no more.
  #tellEpoch(frame: Frame, group: Group): void {
    for (const { node, diskId, removed } of this.#parts.members.all()) {
      if (diskId !== frame.diskId || removed) continue;
      if (this.#tell(group, node, "epoch")) this.#counters.epochsTold++;
    }
  }

  #tell(group: Group, node: NodeId, what: Notice["what"]): boolean {
    const { id, epoch, incarnation } = group;
    const notice = encodeNotice({ group: id, epoch, incarnation, node, what });
    return this.#parts.sendTo(node, "notice", notice);
  }

  #owns(frame: Frame, node: NodeId): boolean {
    const member = this.#parts.members.get(node);
    return member !== undefined && member.diskId === frame.diskId && !member.removed;
  }

  // A member that was removed while it was away is told, by a leader that knows it for sure.
  #takes(frame: Frame, group: Group, node: NodeId): boolean {
    if (!this.#owns(frame, node)) return false;
    if (!group.hasRemoved(node)) return true;
    if (this.#tell(group, node, "removed")) this.#counters.removalsTold++;
    return true;
  }
}

const refusalCounters: Readonly<Record<FrameRefusal, keyof HostCounters>> = {
  length: "refusedLength",
  magic: "refusedMagic",
  version: "refusedVersion",
  cluster: "refusedCluster",
  sender: "refusedSender",
  crc: "refusedCrc",
  kind: "refusedKind",
  body: "refusedBody",
};
