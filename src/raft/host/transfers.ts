// Snapshots between hosts: an offer, then chunks as the receiver asks for them.
//
// Keeps: a chunk is sent only on the receiver's credit and taken only as the next one with the right
// checksum, so a transfer goes on after a broken connection or a restart where it ended; the core
// hears of a snapshot when all of it is here; transfers are few at a time, the others are asked for
// again by their cores. A chunk shows the sender's core that the peer makes progress.

import { isCodedError, type Logger, toError } from "../../base/index.ts";
import { decodeMessage, encodeMessage } from "../codec.ts";
import type { Message, NodeId, SnapshotMessage } from "../core/types.ts";
import type { HostCounters } from "./counters.ts";
import {
  type Chunk,
  encodeChunk,
  encodeOffer,
  encodeWant,
  type FrameKind,
  type GroupAddress,
  type Offer,
  type Want,
} from "./frames.ts";
import type { Group } from "./group.ts";
import { decodeManifest, encodeManifest, type SnapshotManifest } from "./manifest.ts";
import type { HostSettings, SnapshotReader, SnapshotReceiver, SnapshotStore } from "./ports.ts";

export type TransferHost = {
  readonly settings: HostSettings;
  readonly counters: HostCounters;
  readonly logger: Logger;
  readonly snapshots: SnapshotStore;
  readonly sendTo: (node: NodeId, kind: FrameKind, body: Uint8Array) => boolean;
  readonly failHost: (error: Error) => void;
};

type Sending = {
  readonly group: Group;
  readonly to: NodeId;
  readonly reader: SnapshotReader;
  next: number;
  until: number;
  isBusy: boolean;
  idleTicks: number;
};

type Receiving = {
  readonly group: Group;
  readonly message: SnapshotMessage;
  readonly receiver: SnapshotReceiver;
  /** Came in order, not yet stored; at most as many as there are credits. */
  readonly queue: Chunk[];
  isBusy: boolean;
  idleTicks: number;
};

/** Whether the node is the one whose frame this is. */
type Owns = (node: NodeId) => boolean;

export class SnapshotTransfers {
  readonly #host: TransferHost;
  readonly #sending = new Map<string, Sending>();
  readonly #opening = new Set<string>();
  readonly #receiving = new Map<number, Receiving>();
  readonly #preparing = new Set<number>();
  /** All is here, and their machines get ready for it. */
  readonly #handing = new Set<number>();

  constructor(host: TransferHost) {
    this.#host = host;
  }

  get count(): number {
    return this.#sending.size + this.#receiving.size;
  }

  /** The core of `group` has a snapshot for a peer. */
  offer(group: Group, message: SnapshotMessage): void {
    const key = `${group.id}.${message.to}`;
    const known = this.#sending.get(key);
    if (known !== undefined && known.reader.manifest.meta.index >= message.snapshot.index) {
      this.#sendOffer(known, message);
      return;
    }
    if (this.#opening.has(key)) return;
    if (this.#sending.size >= this.#host.settings.snapshotTransfersMax && known === undefined) {
      this.#host.counters.snapshotsFailed++;
      return;
    }
    this.#opening.add(key);
    this.#guard(this.#open(group, message, key), () => this.#opening.delete(key));
  }

  /** What a receiver of ours asks for. */
  onWant(group: Group, want: Want): void {
    const sending = this.#sending.get(`${group.id}.${want.node}`);
    if (sending === undefined || !isOf(sending.reader.manifest, want)) return;
    sending.idleTicks = 0;
    group.noteSnapshotProgress(sending.to);
    if (want.next >= sending.reader.manifest.chunks.length) {
      this.#host.counters.snapshotsSent++;
      this.#endSending(sending);
      return;
    }
    if (want.until === 0) {
      this.#endSending(sending);
      return;
    }
    sending.next = Math.max(sending.next, want.next);
    // Asked for again: it was lost on the way.
    if (want.next < sending.next && want.until <= sending.until) sending.next = want.next;
    sending.until = Math.max(want.until, want.next);
    this.#pushChunks(sending);
  }

  onOffer(group: Group, offer: Offer, owns: Owns): void {
    const opened = openOffer(offer);
    if (opened === undefined) {
      this.#host.counters.refusedBody++;
      return;
    }
    const { message, manifest } = opened;
    if (message.to !== group.node || !owns(message.from)) {
      this.#host.counters.lettersMisaddressed++;
      return;
    }
    if (!group.isOfThisLife(message.from, offer.incarnation)) return;
    const known = this.#receiving.get(group.id);
    if (known !== undefined && isOf(known.receiver.manifest, positionOf(manifest))) {
      this.#ask(known);
      return;
    }
    if (message.snapshot.index <= group.commit) {
      group.answerOffer(message);
      return;
    }
    if (!group.wantsSnapshot(message.snapshot.index)) return;
    if (this.#preparing.has(group.id) || this.#handing.has(group.id)) return;
    if (known?.isBusy) return;
    const isFull = this.#receiving.size >= this.#host.settings.snapshotTransfersMax;
    if (isFull && known === undefined) {
      this.#host.counters.snapshotsFailed++;
      this.#sendWant(group, message.from, { manifest, next: 0, until: 0 });
      return;
    }
    this.#preparing.add(group.id);
    this.#guard(this.#prepare(group, message, manifest), () => this.#preparing.delete(group.id));
  }

  onChunk(group: Group, chunk: Chunk, owns: Owns): void {
    const receiving = this.#receiving.get(group.id);
    if (receiving === undefined || !isOf(receiving.receiver.manifest, chunk)) return;
    if (!owns(receiving.message.from)) {
      this.#host.counters.lettersMisaddressed++;
      return;
    }
    receiving.idleTicks = 0;
    const { receiver, queue } = receiving;
    const isNext = chunk.number === receiver.next + queue.length + Number(receiving.isBusy);
    // What is out of order was lost before: it is asked for again at a tick.
    if (!isNext || queue.length >= this.#host.settings.snapshotCredits) return;
    queue.push(chunk);
    if (receiving.isBusy) return;
    receiving.isBusy = true;
    this.#guard(this.#store(receiving), () => {
      receiving.isBusy = false;
    });
  }

  /** Lets go of transfers that do not move, and asks again for what did not come. */
  tick(): void {
    const idleMax = this.#host.settings.raft.snapshotTicks;
    for (const sending of this.#sending.values()) {
      if (++sending.idleTicks <= 2 * idleMax) continue;
      this.#host.counters.snapshotsFailed++;
      this.#endSending(sending);
    }
    for (const receiving of this.#receiving.values()) {
      receiving.idleTicks++;
      if (receiving.idleTicks % 4 === 0 && !receiving.isBusy) this.#ask(receiving);
      if (receiving.idleTicks <= 2 * idleMax || receiving.isBusy) continue;
      this.#host.counters.snapshotsFailed++;
      this.#receiving.delete(receiving.group.id);
      this.#guard(receiving.receiver.close());
    }
  }

  async close(): Promise<void> {
    const open = [...this.#sending.values()].map(({ reader }) => reader.close());
    const incoming = [...this.#receiving.values()].map(({ receiver }) => receiver.close());
    this.#sending.clear();
    this.#receiving.clear();
    await Promise.all([...open, ...incoming]);
  }

  async #open(group: Group, message: SnapshotMessage, key: string): Promise<void> {
    const reader = await this.#host.snapshots.latest(group.id);
    if (reader === undefined) return;
    const before = this.#sending.get(key);
    if (before !== undefined) this.#endSending(before);
    const { to } = message;
    const sending = { group, to, reader, next: 0, until: 0, isBusy: false, idleTicks: 0 };
    this.#sending.set(key, sending);
    this.#sendOffer(sending, message);
  }

  #sendOffer({ group, to, reader }: Sending, message: SnapshotMessage): void {
    const { manifest } = reader;
    // The store may be a step ahead of the core: position and data must be of one snapshot.
    const exact = { ...message, snapshot: manifest.meta };
    const parts = { message: encodeMessage(exact), manifest: encodeManifest(manifest) };
    this.#host.sendTo(to, "offer", encodeOffer({ ...addressOf(group), ...parts }));
  }

  #pushChunks(sending: Sending): void {
    if (sending.isBusy) return;
    sending.isBusy = true;
    this.#guard(this.#sendChunks(sending), () => {
      sending.isBusy = false;
    });
  }

  async #sendChunks(sending: Sending): Promise<void> {
    const { group, to, reader } = sending;
    const { index, term } = reader.manifest.meta;
    const key = `${group.id}.${to}`;
    while (sending.next < Math.min(sending.until, reader.manifest.chunks.length)) {
      const number = sending.next;
      const data = await reader.read(number);
      if (this.#sending.get(key) !== sending) return;
      // It was asked for another one while this was read.
      if (sending.next !== number) continue;
      const body = encodeChunk({ ...addressOf(group), index, term, number, data });
      if (!this.#host.sendTo(to, "chunk", body)) return;
      sending.next++;
    }
  }

  #endSending(sending: Sending): void {
    this.#sending.delete(`${sending.group.id}.${sending.to}`);
    this.#guard(sending.reader.close());
  }

  async #prepare(
    group: Group,
    message: SnapshotMessage,
    manifest: SnapshotManifest,
  ): Promise<void> {
    const known = this.#receiving.get(group.id);
    if (known !== undefined) {
      this.#receiving.delete(group.id);
      await known.receiver.close();
    }
    const receiver = await this.#host.snapshots.receive(manifest);
    if (receiver.next > 0) this.#host.counters.snapshotsResumed++;
    const receiving = { group, message, receiver, queue: [], isBusy: false, idleTicks: 0 };
    this.#receiving.set(group.id, receiving);
    if (receiver.next >= manifest.chunks.length) this.#complete(receiving);
    else this.#ask(receiving);
  }

  async #store(receiving: Receiving): Promise<void> {
    const { receiver, queue, group } = receiving;
    for (let chunk = queue.shift(); chunk !== undefined; chunk = queue.shift()) {
      const isTaken = await receiver.add(chunk.number, chunk.data);
      if (this.#receiving.get(group.id) !== receiving) return;
      if (!isTaken) queue.length = 0;
      if (receiver.next >= receiver.manifest.chunks.length) {
        this.#complete(receiving);
        return;
      }
      this.#ask(receiving);
    }
  }

  #complete(receiving: Receiving): void {
    const { group } = receiving;
    this.#receiving.delete(group.id);
    this.#ask(receiving);
    this.#handing.add(group.id);
    this.#guard(this.#hand(receiving), () => this.#handing.delete(group.id));
  }

  async #hand({ group, message, receiver }: Receiving): Promise<void> {
    try {
      await group.machine.prepare?.(receiver.manifest, message.from);
    } catch (error) {
      await receiver.close();
      throw error;
    }
    if (group.wantsSnapshot(message.snapshot.index)) group.receiveSnapshot(message, receiver);
    else await receiver.close();
  }

  #ask({ group, message, receiver }: Receiving): void {
    const { manifest, next } = receiver;
    const until = next + this.#host.settings.snapshotCredits;
    this.#sendWant(group, message.from, { manifest, next, until });
  }

  #sendWant(
    group: Group,
    to: NodeId,
    part: { readonly manifest: SnapshotManifest; readonly next: number; readonly until: number },
  ): void {
    const { next, until } = part;
    const { index, term } = part.manifest.meta;
    const want = { ...addressOf(group), node: group.node, index, term, next, until };
    this.#host.sendTo(to, "want", encodeWant(want));
  }

  // Whatever fails here is tried again by the core that asked; only the disk ends the node.
  #guard(work: Promise<void>, done: () => void = () => undefined): void {
    work.catch((error: unknown) => this.#note(toError(error))).finally(done);
  }

  #note(error: Error): void {
    this.#host.counters.snapshotsFailed++;
    this.#host.logger.warn("raft.transfer_failed", { reason: error.message });
    const code = "code" in error ? error.code : undefined;
    if (code === "DISK_IO_FAILED") this.#host.failHost(error);
  }
}

type Position = { readonly epoch: number; readonly index: number; readonly term: number };

function positionOf(manifest: SnapshotManifest): Position {
  const { index, term } = manifest.meta;
  return { epoch: manifest.epoch, index, term };
}

function isOf({ epoch, meta }: SnapshotManifest, position: Position): boolean {
  return meta.index === position.index && meta.term === position.term && epoch === position.epoch;
}

function addressOf({ id: group, epoch, incarnation }: Group): GroupAddress {
  return { group, epoch, incarnation };
}

type OpenedOffer = { readonly message: SnapshotMessage; readonly manifest: SnapshotManifest };

// Damaged, or of a newer release: undefined, which its caller counts.
function openOffer(offer: Offer): OpenedOffer | undefined {
  let message: Message;
  let manifest: SnapshotManifest | undefined;
  try {
    message = decodeMessage(offer.message);
    manifest = decodeManifest(Buffer.from(offer.manifest));
  } catch (error) {
    if (isCodedError(error)) return undefined;
    throw error;
  }
  if (message.type !== "snapshot" || manifest === undefined) return undefined;
  const { index, term } = message.snapshot;
  const isWhole =
    manifest.group === offer.group &&
    manifest.epoch === offer.epoch &&
    manifest.meta.index === index &&
    manifest.meta.term === term;
  return isWhole ? { message, manifest } : undefined;
}
