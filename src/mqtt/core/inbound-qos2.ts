// QoS 2 ids of messages received and not yet released, for sessions that live in memory. (Durable
// sessions keep theirs as evidence beside the messages.)

import type { ReasonCode } from "../codec/reasons.ts";
import { reason } from "../codec/reasons.ts";

export class InboundQos2 {
  readonly #idsMax: number;
  readonly #ids = new Set<number>();

  /** Bounded although Receive Maximum bounds it too: a 3.1.1 client has none. */
  constructor(idsMax = 0xffff) {
    this.#idsMax = idsMax;
  }

  get size(): number {
    return this.#ids.size;
  }

  has(packetId: number): boolean {
    return this.#ids.has(packetId);
  }

  /** `repeat`: answer PUBREC, deliver nothing. `full`: refuse the message. DUP decides nothing. */
  receive(packetId: number): "new" | "repeat" | "full" {
    if (this.#ids.has(packetId)) return "repeat";
    if (this.#ids.size >= this.#idsMax) return "full";
    this.#ids.add(packetId);
    return "new";
  }

  /** The session is gone. */
  clear(): void {
    this.#ids.clear();
  }

  /** PUBREL came, or the message was refused: the reason for PUBCOMP. */
  release(packetId: number): ReasonCode {
    return this.#ids.delete(packetId) ? reason.success : reason.packetIdentifierNotFound;
  }
}
