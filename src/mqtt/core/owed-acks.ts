// What a client is owed for its PUBLISHes and PUBRELs: acks in the order of arrival, and with each that
// leaves the slot of our Receive Maximum that it frees.

import type { Properties } from "../codec/properties.ts";
import type { ReasonCode } from "../codec/reasons.ts";
import { type AckEmitter, AckQueue, type AckToken } from "./ack-queue.ts";
import { ackFirst } from "./packet-sender.ts";
import { ReceiveQuota } from "./receive-quota.ts";

const failureMin = 0x80;
/** Stands in the queue for a PUBCOMP that frees a slot. */
const pubcompThatFrees = ackFirst.pubcomp | 1;

export class OwedAcks {
  readonly quota: ReceiveQuota;
  readonly #queue: AckQueue;
  readonly #send: AckEmitter;

  constructor(receiveMaximum: number, send: AckEmitter) {
    this.quota = new ReceiveQuota(receiveMaximum);
    this.#send = send;
    this.#queue = new AckQueue((first, packetId, reasonCode, properties) =>
      this.#leave(first, packetId, reasonCode, properties),
    );
  }

  get count(): number {
    return this.#queue.length;
  }

  /** REQUIRES: the quota has taken it, if it counts at all. */
  ofPublish(qos: 1 | 2, packetId: number): AckToken {
    return this.#queue.push(qos === 1 ? ackFirst.puback : ackFirst.pubrec, packetId);
  }

  ofPubrel(packetId: number): AckToken {
    const frees = this.quota.beginRelease(packetId);
    return this.#queue.push(frees ? pubcompThatFrees : ackFirst.pubcomp, packetId);
  }

  /** REQUIRES: not finished before. */
  complete(token: AckToken, reasonCode: ReasonCode, properties: Properties): void {
    this.#queue.complete(token, reasonCode, properties);
  }

  #leave(first: number, packetId: number, reasonCode: ReasonCode, properties: Properties): void {
    // Counted before it is written: the client may use its quota as soon as it has the ack.
    if (first === ackFirst.puback) this.quota.releaseQos1();
    else if (first === pubcompThatFrees) this.quota.endRelease();
    else if (first === ackFirst.pubrec && reasonCode >= failureMin) {
      this.quota.releaseQos2(packetId);
    }
    const sent = first === pubcompThatFrees ? ackFirst.pubcomp : first;
    this.#send(sent, packetId, reasonCode, properties);
  }
}
