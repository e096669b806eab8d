// What a client keeps between connections of one session: unfinished messages both ways and its
// packet ids. In memory; it ends with the process.

import type { PublishPacket } from "../codec/packets.ts";
import { InboundQos2 } from "./inbound-qos2.ts";
import { OutboundWindow } from "./outbound-window.ts";
import { PacketIds } from "./packet-ids.ts";

export class ClientSession {
  readonly ids = new PacketIds();
  /** Messages sent and not finished, without their DUP. */
  readonly window = new OutboundWindow<PublishPacket>({
    countMax: 0xffff,
    bytesMax: Number.POSITIVE_INFINITY,
  });
  readonly received = new InboundQos2();
  /** Ids of SUBSCRIBE and UNSUBSCRIBE on their way; they end with the connection. */
  readonly requests = new Set<number>();

  /** The server has no session: what belongs to the old one is void. */
  reset(): void {
    for (const entry of [...this.window.entries()]) this.window.drop(entry.packetId);
    this.received.clear();
    this.requests.clear();
  }

  /** An id for a message or a request; undefined when all are in use. */
  takeId(): number | undefined {
    const { window, requests } = this;
    return this.ids.take({
      size: window.size + requests.size,
      has: (packetId) => window.has(packetId) || requests.has(packetId),
    });
  }
}
