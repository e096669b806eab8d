// The server side of one client on the simulated network, by hand: it decodes what the client sends,
// keeps it for the test, and answers what the test says. CONNECT is accepted unless told otherwise.

import type { ByteConnection, ConnectionHandlers, Network } from "../../src/base/index.ts";
import {
  type ConnackPacket,
  decodeContextDefault,
  decodePacket,
  encodePacket,
  type MqttVersion,
  type Packet,
  PacketFramer,
} from "../../src/mqtt/index.ts";

export class PaperServer {
  /** Everything the clients sent, in order. */
  readonly packets: Packet[] = [];
  connack: Partial<ConnackPacket> | undefined = {};
  /** Called with every packet after CONNECT. */
  answer: (packet: Packet) => readonly Packet[] = () => [];
  closedCount = 0;
  #connection: ByteConnection | undefined;
  #version: MqttVersion = 5;

  async listen(network: Network, port = 1883): Promise<void> {
    await network.listen({ host: "127.0.0.1", port }, (connection) => this.#accept(connection));
  }

  types(): string[] {
    return this.packets.map(({ type }) => type);
  }

  ofType<T extends Packet["type"]>(type: T): Array<Extract<Packet, { type: T }>> {
    return this.packets.filter((packet) => packet.type === type) as never;
  }

  send(packet: Packet): void {
    this.#connection?.write(encodePacket(packet, this.#version));
  }

  drop(): void {
    this.#connection?.destroy();
  }

  #accept(connection: ByteConnection): ConnectionHandlers {
    this.#connection = connection;
    const framer = new PacketFramer(0x0fff_ffff, {
      onFrame: (bytes, start, bodyStart, end) => {
        const context = { ...decodeContextDefault, version: this.#version, sender: "client" };
        this.#take(decodePacket(bytes, start, bodyStart, end, context as never));
        return true;
      },
      onHeader: () => undefined,
      onFault: (error) => {
        throw error;
      },
    });
    return {
      onData: (bytes) => framer.push(bytes),
      onDrain: () => undefined,
      onClose: () => {
        this.closedCount++;
      },
    };
  }

  #take(packet: Packet): void {
    this.packets.push(packet);
    if (packet.type === "connect") {
      this.#version = packet.level === 5 ? 5 : 4;
      if (this.connack === undefined) return;
      const accepted = { sessionPresent: false, reasonCode: 0, properties: {} };
      this.send({ type: "connack", ...accepted, ...this.connack });
      return;
    }
    for (const answer of this.answer(packet)) this.send(answer);
    if (packet.type === "disconnect") this.#connection?.end();
  }
}
