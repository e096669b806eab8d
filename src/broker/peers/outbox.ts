// Messages on their way to one other node, in batches.
//
// Keeps: a message is copied by the call that adds it; messages leave in the order in which they came;
// what waits is bounded: above the soft mark QoS 0 is dropped and publishers are not read, at the brim
// everything is dropped, and all that is dropped is counted.

import { ByteWriter, type Cancel, type Clock } from "../../base/index.ts";
import type { Ttv } from "../../store/index.ts";
import type { BrokerCounters } from "../counters.ts";
import { type Addressees, writeAddressees, writeMessage } from "./peer-codec.ts";

export type OutboxSettings = {
  /** A batch is closed when it has so much. */
  readonly batchBytes: number;
  readonly waitingBytesSoft: number;
  readonly waitingBytesMax: number;
  /** Wait before a node that took nothing is tried again. */
  readonly retryMs: number;
};

export const defaultOutboxSettings: OutboxSettings = {
  batchBytes: 64 * 1024,
  waitingBytesSoft: 8 * 1024 * 1024,
  // What clients have been read up to the soft mark still comes.
  waitingBytesMax: 32 * 1024 * 1024,
  retryMs: 20,
};

export type OutboxParts = {
  readonly send: (batch: Buffer) => boolean;
  /** The node is reached. */
  readonly isReached: () => boolean;
  readonly clock: Clock;
  readonly counters: BrokerCounters;
  readonly settings: OutboxSettings;
  /** `isCrowded` may have changed. */
  readonly changed: () => void;
};

type Last = { message: Ttv; isStored: boolean; isForAll: boolean; groups: string[] };

export class Outbox {
  readonly #parts: OutboxParts;
  #writer = new ByteWriter();
  #count = 0;
  /** Written, and its addressees not yet. */
  #last: Last | undefined;
  #batches: Array<{ readonly bytes: Buffer; readonly count: number }> = [];
  #waitingBytes = 0;
  #retry: Cancel | undefined;

  constructor(parts: OutboxParts) {
    this.#parts = parts;
  }

  get isCrowded(): boolean {
    return this.#waitingBytes > this.#parts.settings.waitingBytesSoft;
  }

  get isEmpty(): boolean {
    return this.#count === 0 && this.#batches.length === 0;
  }

  /** `group`: for one member of it; else for all who are subscribed. */
  add(message: Ttv, isStored: boolean, group: string | undefined): void {
    const { counters, settings } = this.#parts;
    const last = this.#last;
    if (last?.message === message) {
      if (group === undefined) last.isForAll = true;
      else last.groups.push(group);
      return;
    }
    const isOver = this.#waitingBytes + message.frame.length > settings.waitingBytesMax;
    if (this.#waitingBytes > 0 && (isOver || (message.qos === 0 && this.isCrowded))) {
      if (message.qos === 0) counters.routedQos0Dropped++;
      else counters.routedDropped++;
      return;
    }
    this.#finishLast();
    if (this.#writer.length >= settings.batchBytes) this.#closeBatch();
    writeMessage(this.#writer, message);
    const groups = group === undefined ? [] : [group];
    this.#last = { message, isStored, isForAll: group === undefined, groups };
    this.#count++;
  }

  /** Sends all that is taken. */
  flush(): void {
    if (this.#retry !== undefined) return;
    this.#finishLast();
    if (this.#count > 0) this.#closeBatch();
    const { send, isReached, counters, clock, settings, changed } = this.#parts;
    const wasCrowded = this.isCrowded;
    let sent = 0;
    for (const { bytes, count } of this.#batches) {
      if (!send(bytes)) break;
      counters.routedSent += count;
      this.#waitingBytes -= bytes.length;
      sent++;
    }
    this.#batches.splice(0, sent);
    if (this.#batches.length > 0) {
      if (!isReached()) return this.clear();
      this.#retry = clock.schedule(settings.retryMs, () => {
        this.#retry = undefined;
        this.flush();
      });
    }
    if (wasCrowded !== this.isCrowded) changed();
  }

  /** The node is not reached any more. */
  clear(): void {
    this.#retry?.();
    this.#retry = undefined;
    const left = this.#batches.reduce((sum, { count }) => sum + count, this.#count);
    this.#parts.counters.routedLost += left;
    this.#writer = new ByteWriter();
    this.#count = 0;
    this.#last = undefined;
    this.#batches = [];
    const wasCrowded = this.isCrowded;
    this.#waitingBytes = 0;
    if (wasCrowded) this.#parts.changed();
  }

  #finishLast(): void {
    if (this.#last !== undefined) writeAddressees(this.#writer, this.#last satisfies Addressees);
    this.#last = undefined;
  }

  #closeBatch(): void {
    const wasCrowded = this.isCrowded;
    const bytes = this.#writer.finish();
    this.#batches.push({ bytes, count: this.#count });
    this.#waitingBytes += bytes.length;
    this.#writer = new ByteWriter();
    this.#count = 0;
    if (wasCrowded !== this.isCrowded) this.#parts.changed();
  }
}
