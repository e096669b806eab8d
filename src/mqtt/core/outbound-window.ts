// QoS 1 and 2 messages sent to a client and not finished: id -> stage, in the order of sending.
// Used by sessions in memory and, filled from their records, by durable ones.
//
// A QoS 1 message waits for PUBACK; a QoS 2 message for PUBREC, then, released, for PUBCOMP. An ack
// for another stage is a protocol error; for an id that is not here it may be late, and is told as
// `unknown`. All of them count against the client's Receive Maximum until they are finished.

import { assert } from "../../base/index.ts";
import type { ReasonCode } from "../codec/reasons.ts";

export type OutboundStage = "sent1" | "sent2" | "released";

export type OutboundEntry<T> = {
  readonly packetId: number;
  readonly stage: OutboundStage;
  readonly sizeBytes: number;
  readonly value: T;
};

/** What an ack did. `release`: answer PUBREL. `done`: the id is free. */
export type AckOutcome = "done" | "release" | "unknown" | "protocol_error";

export type WindowLimits = {
  /** The lower of the client's Receive Maximum and our own inflightMax. */
  readonly countMax: number;
  /** One message is always admitted, whatever its size. */
  readonly bytesMax: number;
};

const failureMin = 0x80;

export class OutboundWindow<T> {
  #limits: WindowLimits;
  #bytes = 0;
  // A Map keeps the order of sending, also when an entry changes its stage.
  readonly #entries = new Map<number, OutboundEntry<T>>();

  constructor(limits: WindowLimits) {
    this.#limits = limits;
  }

  get size(): number {
    return this.#entries.size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** A resumed session has the limits of its new connection. */
  setLimits(limits: WindowLimits): void {
    this.#limits = limits;
  }

  hasRoom(sizeBytes: number): boolean {
    const count = this.#entries.size;
    if (count >= this.#limits.countMax) return false;
    return count === 0 || this.#bytes + sizeBytes <= this.#limits.bytesMax;
  }

  has(packetId: number): boolean {
    return this.#entries.has(packetId);
  }

  get(packetId: number): OutboundEntry<T> | undefined {
    return this.#entries.get(packetId);
  }

  /** Unfinished messages in the order they were sent: the order of resending. */
  entries(): IterableIterator<OutboundEntry<T>> {
    return this.#entries.values();
  }

  /** Also fills a window from records. REQUIRES: the id is not in use; room is the caller's. */
  add(entry: OutboundEntry<T>): void {
    assert(!this.#entries.has(entry.packetId), "packet id in use");
    this.#entries.set(entry.packetId, entry);
    this.#bytes += entry.sizeBytes;
  }

  /** Success or not, PUBACK ends a QoS 1 message (4.4.0-2). */
  puback(packetId: number): AckOutcome {
    const entry = this.#entries.get(packetId);
    if (entry === undefined) return "unknown";
    if (entry.stage !== "sent1") return "protocol_error";
    return this.#finish(entry);
  }

  /**
   * `unknown` is to be answered by PUBREL 0x92. A repeated PUBREC is answered like the first; one
   * that refuses ends the message.
   */
  pubrec(packetId: number, reasonCode: ReasonCode): AckOutcome {
    const entry = this.#entries.get(packetId);
    if (entry === undefined) return "unknown";
    if (entry.stage === "sent1") return "protocol_error";
    if (reasonCode >= failureMin && entry.stage === "sent2") return this.#finish(entry);
    this.#entries.set(packetId, { ...entry, stage: "released" });
    return "release";
  }

  /** Success or "not found", PUBCOMP ends a released message. */
  pubcomp(packetId: number): AckOutcome {
    const entry = this.#entries.get(packetId);
    if (entry === undefined) return "unknown";
    if (entry.stage !== "released") return "protocol_error";
    return this.#finish(entry);
  }

  /** Takes out a message that will not be finished: expired before it was sent again, dropped. */
  drop(packetId: number): boolean {
    const entry = this.#entries.get(packetId);
    if (entry === undefined) return false;
    this.#finish(entry);
    return true;
  }

  #finish(entry: OutboundEntry<T>): "done" {
    this.#entries.delete(entry.packetId);
    this.#bytes -= entry.sizeBytes;
    return "done";
  }
}
