// A client on the simulated network that says what the test tells it and writes down what it gets.

import type { ByteConnection } from "../../src/base/index.ts";
import {
  type ConnectPacket,
  decodeContextDefault,
  decodePacket,
  encodePacket,
  type Packet,
  PacketFramer,
  type PublishPacket,
  type SubscribePacket,
} from "../../src/mqtt/index.ts";
import { type BrokerMachine, brokerHost, brokerPort } from "./broker-machine.ts";

/** A machine whose broker is dialled. */
export type Dialled = Pick<BrokerMachine, "clock" | "network"> & {
  readonly host?: string;
  readonly port?: number;
};

export class SimClient {
  readonly received: Packet[] = [];
  readonly #machine: Dialled;
  readonly #transport: ByteConnection;

  private constructor(machine: Dialled, transport: ByteConnection) {
    this.#machine = machine;
    this.#transport = transport;
  }

  /** Resolves with the connection once CONNACK has come. */
  static async connect(
    machine: Dialled,
    clientId: string,
    more: Partial<ConnectPacket> = {},
  ): Promise<SimClient> {
    const client = await SimClient.begin(machine, clientId, more);
    await client.has("connack");
    return client;
  }

  /** CONNECT is on its way. */
  static async begin(
    machine: Dialled,
    clientId: string,
    more: Partial<ConnectPacket> = {},
  ): Promise<SimClient> {
    const client = await machine.clock.complete(SimClient.#dial(machine, clientId));
    client.say({
      type: "connect",
      level: 5,
      bridge: false,
      clientId,
      cleanStart: false,
      keepAliveS: 0,
      properties: { sessionExpiryS: 3600 },
      ...more,
    });
    return client;
  }

  static #dial(machine: Dialled, clientId: string): Promise<SimClient> {
    const { host = brokerHost, port = brokerPort } = machine;
    return new Promise((resolve, reject) => {
      machine.network
        .host(clientId)
        .connect({ host, port }, (transport) => {
          const client = new SimClient(machine, transport);
          const framer = new PacketFramer(1 << 28, {
            onFrame: (bytes, start, bodyStart, end) => {
              const context = { ...decodeContextDefault, sender: "server", version: 5 } as const;
              client.#got(decodePacket(bytes, start, bodyStart, end, context));
              return true;
            },
            onHeader: () => undefined,
            onFault: (error) => reject(error),
          });
          resolve(client);
          return {
            onData: (bytes) => framer.push(bytes),
            onDrain: () => undefined,
            onClose: () => undefined,
          };
        })
        .catch(reject);
    });
  }

  /** Says a packet and waits for its answer, which is taken from what was received. */
  async ask(packet: Packet, type: Packet["type"]): Promise<Packet> {
    const before = this.received.length;
    this.say(packet);
    const isIt = (each: Packet): boolean => each.type === type;
    await this.#machine.clock.runUntil(() => this.received.slice(before).some(isIt));
    return this.received.slice(before).find(isIt) as Packet;
  }

  say(packet: Packet): void {
    this.#transport.write(encodePacket(packet, 5));
  }

  /** Waits for a packet of this type. */
  has(type: Packet["type"]): Promise<void> {
    return this.#machine.clock.runUntil(() => this.received.some((packet) => packet.type === type));
  }

  /** Payloads of the messages received on a topic. */
  payloads(topic: string): string[] {
    return this.received.flatMap((packet) =>
      packet.type === "publish" && packet.topic === topic ? [packet.payload.toString()] : [],
    );
  }

  /** Goes without a word. */
  drop(): void {
    this.#transport.destroy();
  }

  #got(packet: Packet): void {
    this.received.push(packet);
    if (packet.type !== "publish" || packet.qos === 0) return;
    const { packetId } = packet;
    const type = packet.qos === 1 ? "puback" : "pubrec";
    this.say({ type, packetId, reasonCode: 0, properties: {} });
  }
}

export function subscribePacket(
  filter: string,
  qos: 0 | 1 | 2,
  more: Partial<SubscribePacket["filters"][number]["options"]> = {},
): SubscribePacket {
  const plain = { noLocal: false, retainAsPublished: false, retainHandling: 0 } as const;
  return {
    type: "subscribe",
    packetId: 1,
    filters: [{ filter, options: { qos, ...plain, ...more } }],
    properties: {},
  };
}

export function publishPacket(
  topic: string,
  payload: string,
  qos: 0 | 1 | 2,
  more: Partial<PublishPacket> = {},
): PublishPacket {
  const content = { topic, payload: Buffer.from(payload), properties: {} };
  const packetId = qos === 0 ? 0 : 1;
  return { type: "publish", dup: false, qos, retain: false, packetId, ...content, ...more };
}
