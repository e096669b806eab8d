// Sending to one client: window, packet ids, QoS 1 and 2 exchanges, resends in order. Sans-IO: time
// comes in with the calls, what is to be sent goes out through `Outlet` at once, because whether a
// connection took a message decides what happens next.
//
// Invariants
// - Messages leave in the order they were taken; nothing new before the last resend.
// - A QoS 2 message is sent only once its record is durable (`bound`), and PUBREL only once the
//   release is (`releaseBound`); in memory-only use both hold at once.
// - A message is sent again only by a new `Outbound`, that is on a new connection (4.4.0-1).
// What must be durable, and when the cursor moves, is the owner's business.

import { assert } from "../../base/index.ts";
import type { Ttv, TtvRun } from "../../store/index.ts";
import type { Delivery, MessageRun } from "../api.ts";
import { type Choice, isExpired } from "./choose.ts";
import type { Dealt } from "./dealt.ts";
import { type CollectedChanges, type InFlight, InFlightTable } from "./in-flight.ts";
import { keepMessage } from "./kept-message.ts";
import { type Origin, PlainInFlight, sentEntry } from "./plain-in-flight.ts";
import type { InFlightSource } from "./records.ts";
import { Window } from "./window.ts";

export type SendResult = "sent" | "too_large" | "full";

export type OutboundEvent =
  | "delivered"
  | "resent"
  | "expiredDropped"
  | "tooLargeDropped"
  | "bodyGone";

export interface Outlet {
  publish(message: Ttv, delivery: Delivery): SendResult;
  /** See `SessionLink.publishRun`. */
  publishRun(run: MessageRun | TtvRun, count: number, packetIds: Uint16Array): boolean;
  pubrel(packetId: number, reasonCode: number): void;
  /** Records have changed. `urgent`: something waits to be sent until they are durable. */
  changed(urgent: boolean): void;
  count(event: OutboundEvent, times?: number): void;
}

export type IdSource = {
  take(inUse: (packetId: number) => boolean): number | undefined;
  /** See `PacketIds.takeRow`. */
  takeRow?(count: number, inUse: (packetId: number) => boolean): number | undefined;
  readonly next: number;
  rewind(position: number): void;
};

export type OutboundOptions = {
  readonly outlet: Outlet;
  readonly ids: IdSource;
  readonly countMax: number;
  readonly bytesMax: number;
  /** False: nothing is kept, so nothing has to be durable before it is sent. */
  readonly durable: boolean;
};

/** A message that may be sent, and how. */
export type Outgoing = {
  readonly message: Ttv;
  readonly choice: Choice;
  readonly source: InFlightSource;
  /** It may have been sent before under another id. */
  readonly dup: boolean;
  /** The shared group that deals it, at QoS 1 and 2. */
  readonly dealt?: Dealt;
};

type QueuedQos0 = { readonly kind: "qos0"; readonly message: Ttv; readonly delivery: Delivery };
type Queued = QueuedQos0 | InFlight;

/** Packet ids of a run that is being sent: scratch of one call. */
const rowIds = new Uint16Array(1024);

/** Result codes of the ack calls: a protocol error of the client, or nothing to complain of. */
const protocolError = 0x82;
const idNotFound = 0x92;
const refusedFrom = 0x80;

export class Outbound {
  readonly table = new InFlightTable();
  readonly #outlet: Outlet;
  readonly #ids: IdSource;
  readonly #durable: boolean;
  readonly #window: Window;
  readonly #bytesMax: number;
  /** Sent at QoS 1 and without a record: of a session that keeps nothing, or since the last write. */
  readonly #plain = new PlainInFlight();
  readonly #inUse = (packetId: number): boolean =>
    this.table.has(packetId) || this.#plain.has(packetId);
  #queue: Queued[] = [];
  #queuedQos0Bytes = 0;
  #resendsLeft = 0;
  /** Messages whose groups have not said yet that they may be bound. */
  readonly #unassigned = new Map<Dealt, InFlight>();
  /** PUBRELs that wait for their record, in the order of the PUBRECs (4.6.0-4). */
  #releases: InFlight[] = [];

  constructor(options: OutboundOptions) {
    this.#outlet = options.outlet;
    this.#ids = options.ids;
    this.#durable = options.durable;
    this.#bytesMax = options.bytesMax;
    this.#window = new Window(options.countMax, options.bytesMax);
  }

  /** Messages wait to be sent: nothing new may overtake them. */
  get blocked(): boolean {
    return this.#queue.length > 0;
  }

  /** Messages of an earlier connection are still to be sent. */
  get resuming(): boolean {
    return this.#resendsLeft > 0;
  }

  /** A slot is free for a message of this size. */
  admits(sizeBytes: number): boolean {
    return this.#window.admits(sizeBytes);
  }

  /** Takes over what an earlier connection left, in send order. Call before `open`. */
  restore(entry: InFlight): void {
    this.table.restore(entry);
  }

  /** Owed PUBRELs leave at once; owed messages wait for their bodies and for slots. */
  open(): void {
    for (const entry of this.table.values()) {
      if (entry.stage === "released") {
        this.#enterWindow(entry);
        this.#outlet.pubrel(entry.packetId, 0);
      } else {
        this.#queue.push(entry);
        this.#resendsLeft++;
      }
    }
  }

  /** Entries whose bodies are needed next, at most as many as there are free slots. */
  bodiesWanted(countMax: number): InFlight[] {
    const wanted: InFlight[] = [];
    const limit = Math.min(countMax, this.#window.free);
    let bytes = 0;
    for (const item of this.#queue) {
      if (wanted.length >= limit || bytes > this.#bytesMax) break;
      if (isQos0(item) || !this.#isCurrent(item)) continue;
      bytes += item.sizeBytes;
      if (item.message === undefined) wanted.push(item);
    }
    return wanted;
  }

  /** The body of an entry, or word that it is gone. */
  provide(entry: InFlight, message: Ttv | undefined): void {
    if (!this.#isCurrent(entry)) return;
    if (message !== undefined) {
      entry.message = message;
      return;
    }
    this.#outlet.count("bodyGone");
    if (entry.qos === 2 && entry.dup) {
      // The client may hold it and complete it: the id stays taken, without a slot.
      entry.stage = "orphaned";
    } else {
      this.#finish(entry);
    }
  }

  /** Sends or queues a new message. "wait": no room now; nothing was changed. */
  dispatch(outgoing: Outgoing): "taken" | "wait" {
    return outgoing.choice.qos === 0
      ? this.#dispatchQos0(outgoing)
      : this.#dispatchAcked(outgoing, outgoing.choice.qos);
  }

  /**
   * Sends what it can of a run at its QoS, from the first message on, and returns how many that were.
   * The others are to be dispatched one by one. REQUIRES: the session keeps nothing.
   */
  dispatchRun(run: MessageRun): number {
    assert(!this.#durable, "what is owed stands somewhere");
    if (this.blocked) return 0;
    if (run.qos === 0) {
      if (!this.#outlet.publishRun(run, run.count, rowIds)) return 0;
      this.#outlet.count("delivered", run.count);
      return run.count;
    }
    const count = this.#sendRow(run);
    for (let index = 0; index < count; index++) {
      const sizeBytes = run.frameBytes(index);
      this.#plain.add(rowIds[index] as number, sizeBytes);
      this.#window.take(sizeBytes);
    }
    return count;
  }

  /** The same for what is owed, at QoS 1. REQUIRES: the session keeps what it owes. */
  dispatchOwed(run: TtvRun): number {
    assert(this.#durable, "nothing is owed");
    const count = this.blocked ? 0 : this.#sendRow(run);
    for (let index = 0; index < count; index++) {
      const sizeBytes = run.frameBytes(index);
      this.#addOwed(rowIds[index] as number, sizeBytes, run.ref, run.timeUs(index));
      this.#window.take(sizeBytes);
    }
    if (count > 0) this.#outlet.changed(false);
    return count;
  }

  /** Sends what finds room of a run under ids that follow each other, which are in `rowIds` then. */
  #sendRow(run: MessageRun | TtvRun): number {
    const count = Math.min(this.#window.admitsOf(run), rowIds.length);
    const position = this.#ids.next;
    const first = count === 0 ? undefined : this.#ids.takeRow?.(count, this.#inUse);
    if (first === undefined) return 0;
    for (let index = 0; index < count; index++) rowIds[index] = first + index;
    if (!this.#outlet.publishRun(run, count, rowIds)) {
      this.#ids.rewind(position);
      return 0;
    }
    this.#outlet.count("delivered", count);
    return count;
  }

  /** Sends what can be sent of what waits. */
  pump(nowUs: number): void {
    let done = 0;
    while (done < this.#queue.length && this.#sendQueued(this.#queue[done] as Queued, nowUs)) {
      done++;
    }
    if (done === 0) return;
    this.#queue.splice(0, done);
    this.#resendsLeft = Math.max(0, this.#resendsLeft - done);
  }

  puback(packetId: number): number | undefined {
    const plainBytes = this.#plain.remove(packetId);
    if (plainBytes !== undefined) {
      this.#window.release(plainBytes);
      return undefined;
    }
    const entry = this.table.get(packetId);
    // An id of before a crash is not known any more; its message is sent again under another.
    if (entry === undefined) return undefined;
    if (entry.qos !== 1) return protocolError;
    this.#finish(entry);
    return undefined;
  }

  /** The id at which it stopped for a protocol error. */
  pubacks(packetIds: Uint16Array, count: number): number | undefined {
    for (let index = 0; index < count; index++) {
      const packetId = packetIds[index] as number;
      if (this.puback(packetId) !== undefined) return packetId;
    }
    return undefined;
  }

  pubrec(packetId: number, reasonCode: number): number | undefined {
    if (this.#plain.has(packetId)) return protocolError;
    const entry = this.table.get(packetId);
    if (entry === undefined) {
      if (reasonCode < refusedFrom) this.#outlet.pubrel(packetId, idNotFound);
      return undefined;
    }
    if (entry.qos !== 2) return protocolError;
    if (entry.stage === "released") {
      if (entry.releaseBound) this.#outlet.pubrel(packetId, 0);
      return undefined;
    }
    if (reasonCode >= refusedFrom) {
      this.#finish(entry);
      return undefined;
    }
    entry.stage = "released";
    entry.message = undefined;
    this.#enterWindow(entry);
    if (!this.#durable) {
      entry.releaseBound = true;
      this.#outlet.pubrel(packetId, 0);
      return undefined;
    }
    this.#releases.push(entry);
    this.table.changed(entry);
    this.#outlet.changed(true);
    return undefined;
  }

  pubcomp(packetId: number): number | undefined {
    if (this.#plain.has(packetId)) return protocolError;
    const entry = this.table.get(packetId);
    if (entry === undefined) return undefined;
    if (entry.qos !== 2 || !entry.releaseBound) return protocolError;
    this.#finish(entry);
    return undefined;
  }

  /** Messages at QoS 1 and 2 that are not finished. */
  get inFlightCount(): number {
    return this.table.size + this.#plain.size;
  }

  get hasChanges(): boolean {
    return this.table.hasChanges || (this.#durable && this.#plain.size > 0);
  }

  /** What has to be written, for one write. */
  collect(): CollectedChanges {
    this.#keepPlain();
    return this.table.collect();
  }

  /** As `collect`, with every record exact about what was sent. */
  collectExact(): CollectedChanges {
    this.#keepPlain();
    return this.table.collectExact();
  }

  /** What is owed and still in flight gets its entry, and so a record. */
  #keepPlain(): void {
    if (!this.#durable) return;
    for (const owed of this.#plain.takeOwed()) this.table.add(sentEntry(owed));
  }

  /** The changes are durable: bindings and releases among them take effect. */
  committed(changes: CollectedChanges): void {
    for (const { entry, record } of changes.puts) {
      entry.bound = true;
      if (record.released) entry.releaseBound = true;
    }
    this.tellGroups(changes);
    let sent = 0;
    for (const entry of this.#releases) {
      if (this.#isCurrent(entry)) {
        if (!entry.releaseBound) break;
        this.#outlet.pubrel(entry.packetId, 0);
      }
      sent++;
    }
    this.#releases.splice(0, sent);
  }

  /** The records are durable: what was dealt at QoS 2 is this client's from now on. */
  tellGroups(changes: CollectedChanges): void {
    for (const { entry } of changes.puts) {
      const { dealt } = entry;
      if (dealt === undefined) continue;
      entry.dealt = undefined;
      entry.awaitsGroup = true;
      dealt.bound(() => {
        if (this.table.forgotten(entry)) this.#outlet.changed(false);
      });
    }
  }

  /** Its group has it durably that this client holds it: it may be bound, or sent. */
  assigned(dealt: Dealt): void {
    const entry = this.#unassigned.get(dealt);
    this.#unassigned.delete(dealt);
    if (entry === undefined || !this.#isCurrent(entry)) return;
    if (!this.#durable) {
      entry.bound = true;
      return;
    }
    entry.kept = true;
    this.table.changed(entry);
    this.#outlet.changed(true);
  }

  /** The connection has ended: what shared groups have dealt and nobody else holds goes back. */
  takeBack(): void {
    this.#unassigned.clear();
    for (const entry of [...this.table.values()]) {
      const { dealt } = entry;
      if (dealt === undefined) continue;
      if (entry.stored) {
        dealt.unsure();
        continue;
      }
      this.table.remove(entry);
      const sent = entry.stage !== "waiting";
      // Half delivered at QoS 2 it must reach nobody else (4.8.2).
      if (entry.qos === 2 && sent) dealt.done();
      else dealt.back(sent || entry.dup);
    }
  }

  #dispatchQos0(outgoing: Outgoing): "taken" | "wait" {
    const { message, choice } = outgoing;
    const { retain, identifiers } = choice;
    const delivery = {
      qos: 0,
      dup: false,
      retain,
      packetId: 0,
      subscriptionIds: identifiers,
    } as const;
    if (this.blocked) {
      const size = message.frame.length;
      const admitted =
        this.#queuedQos0Bytes === 0 || this.#queuedQos0Bytes + size <= this.#bytesMax;
      if (!admitted) return "wait";
      this.#queuedQos0Bytes += size;
      this.#queue.push({ kind: "qos0", message: keepMessage(message), delivery });
      return "taken";
    }
    const result = this.#outlet.publish(message, delivery);
    if (result === "full") return "wait";
    this.#outlet.count(result === "sent" ? "delivered" : "tooLargeDropped");
    return "taken";
  }

  #dispatchAcked(outgoing: Outgoing, qos: 1 | 2): "taken" | "wait" {
    const sizeBytes = outgoing.message.frame.length;
    if (!this.#window.admits(sizeBytes)) return "wait";
    const position = this.#ids.next;
    const packetId = this.#ids.take(this.#inUse);
    if (packetId === undefined) return "wait";
    const { dealt } = outgoing;
    if (qos === 1 && !this.blocked && isPlain(outgoing, this.#durable)) {
      return this.#sendPlain(outgoing, packetId, position);
    }
    const entry = this.#newEntry(outgoing, packetId, qos);
    if (qos === 2 && dealt?.waitsForGroup) this.#unassigned.set(dealt, entry);
    this.#enterWindow(entry);
    if (this.blocked || !this.#mayLeave(entry)) {
      entry.message = keepMessage(outgoing.message);
      this.table.add(entry);
      this.#queue.push(entry);
      this.#outlet.changed(qos === 2 && entry.kept);
      return "taken";
    }
    // Known before it is sent: the ack may come while the call is still under way.
    this.table.add(entry);
    const result = this.#send(entry, outgoing.message);
    if (result === "full") {
      this.table.remove(entry);
      this.#leaveWindow(entry);
      this.#ids.rewind(position);
      return "wait";
    }
    this.#outlet.changed(false);
    return "taken";
  }

  #addOwed(packetId: number, sizeBytes: number, origin: Origin, timeUs: number): void {
    const sendNumber = this.table.takeSendNumber();
    this.#plain.addOwed(packetId, sizeBytes, sendNumber, origin, timeUs);
  }

  /**
   * At QoS 1: no entry, since nothing is sent again on this connection. What is owed and still in
   * flight when records are collected becomes one then.
   */
  #sendPlain(outgoing: Outgoing, packetId: number, position: number): "taken" | "wait" {
    const { message, choice, dup, source } = outgoing;
    const sizeBytes = message.frame.length;
    // Known before it is sent: the ack may come while the call is still under way.
    if (!this.#durable) this.#plain.add(packetId, sizeBytes);
    else if (source.kind === "log") {
      this.#addOwed(packetId, sizeBytes, source.ref, source.ref.timeUs);
    }
    this.#window.take(sizeBytes);
    const { retain, identifiers: subscriptionIds } = choice;
    const delivery = { qos: 1, dup, retain, packetId, subscriptionIds } as const;
    const result = this.#outlet.publish(message, delivery);
    if (result === "sent") {
      this.#outlet.count(dup ? "resent" : "delivered");
      if (this.#durable) this.#outlet.changed(false);
      return "taken";
    }
    if (this.#plain.remove(packetId) !== undefined) this.#window.release(sizeBytes);
    if (result === "too_large") {
      this.#outlet.count("tooLargeDropped");
      return "taken";
    }
    this.#ids.rewind(position);
    return "wait";
  }

  #newEntry(outgoing: Outgoing, packetId: number, qos: 1 | 2): InFlight {
    return {
      sendNumber: this.table.takeSendNumber(),
      packetId,
      qos,
      retain: outgoing.choice.retain,
      identifiers: outgoing.choice.identifiers,
      source: outgoing.source,
      sizeBytes: outgoing.message.frame.length,
      stage: "waiting",
      dup: outgoing.dup,
      inWindow: false,
      message: undefined,
      stored: false,
      storedSent: false,
      bound: !this.#durable && outgoing.dealt?.waitsForGroup !== true,
      releaseBound: false,
      kept: outgoing.dealt === undefined,
      dealt: outgoing.dealt,
      awaitsGroup: false,
    };
  }

  /** True: the item is dealt with. */
  #sendQueued(item: Queued, nowUs: number): boolean {
    if (isQos0(item)) return this.#sendQueuedQos0(item, nowUs);
    if (!this.#isCurrent(item) || item.stage !== "waiting") return true;
    const message = item.message;
    if (message === undefined) return false;
    if (!item.inWindow && !this.#window.admits(item.sizeBytes)) return false;
    if (!this.#mayLeave(item)) return false;
    // QoS 2 that may have been sent once has to be completed, whatever its expiry.
    if (isExpired(message, nowUs) && !(item.qos === 2 && item.dup)) {
      this.#outlet.count("expiredDropped");
      this.#finish(item);
      return true;
    }
    this.#enterWindow(item);
    return this.#send(item, message) !== "full";
  }

  #sendQueuedQos0(item: QueuedQos0, nowUs: number): boolean {
    if (isExpired(item.message, nowUs)) {
      this.#outlet.count("expiredDropped");
    } else {
      const result = this.#outlet.publish(item.message, item.delivery);
      if (result === "full") return false;
      this.#outlet.count(result === "sent" ? "delivered" : "tooLargeDropped");
    }
    this.#queuedQos0Bytes -= item.message.frame.length;
    return true;
  }

  #send(entry: InFlight, message: Ttv): SendResult {
    const { qos, retain, dup, packetId, identifiers } = entry;
    entry.stage = "sent";
    const result = this.#outlet.publish(message, {
      qos,
      dup,
      retain,
      packetId,
      subscriptionIds: identifiers,
    });
    if (result === "full") {
      entry.stage = "waiting";
      return result;
    }
    entry.message = undefined;
    if (result === "too_large") {
      this.#outlet.count("tooLargeDropped");
      if (this.#isCurrent(entry)) this.#finish(entry);
    } else {
      this.#outlet.count(dup ? "resent" : "delivered");
    }
    return result;
  }

  #mayLeave(entry: InFlight): boolean {
    return entry.qos === 1 || entry.bound;
  }

  #isCurrent(entry: InFlight): boolean {
    return this.table.get(entry.packetId) === entry;
  }

  #finish(entry: InFlight): void {
    this.table.remove(entry);
    this.#leaveWindow(entry);
    if (entry.stored) this.#outlet.changed(false);
    const { dealt } = entry;
    entry.dealt = undefined;
    dealt?.done();
  }

  #enterWindow(entry: InFlight): void {
    if (entry.inWindow) return;
    entry.inWindow = true;
    this.#window.take(entry.sizeBytes);
  }

  #leaveWindow(entry: InFlight): void {
    if (!entry.inWindow) return;
    entry.inWindow = false;
    this.#window.release(entry.sizeBytes);
  }
}

function isQos0(item: Queued): item is QueuedQos0 {
  return "kind" in item;
}

/** Nothing but its place has to be known of it once it is sent. */
function isPlain({ source, choice, dealt, dup }: Outgoing, durable: boolean): boolean {
  if (dealt !== undefined) return false;
  if (!durable) return true;
  if (source.kind !== "log" || source.group !== undefined || dup || choice.retain) return false;
  return choice.identifiers.length === 0;
}
