// A client that sends what it is told and writes down what it gets, on the simulated network: no
// acks, no rules of its own. Packets in short: `publish a/b hello q1 #7 dup retain`.

import type { ByteConnection, Network } from "../../src/base/index.ts";
import {
  type ConnectPacket,
  type DecodeContext,
  decodeContextDefault,
  decodePacket,
  encodePacket,
  type Packet,
  PacketFramer,
  type Properties,
  type Qos,
  type SubscriptionOptions,
} from "../../src/mqtt/index.ts";

export type ConnectFields = Partial<Omit<ConnectPacket, "type">>;

export type PublishFields = {
  readonly qos?: Qos;
  readonly id?: number;
  readonly retain?: boolean;
  readonly dup?: boolean;
  readonly properties?: Properties;
};

export class RawMqtt {
  readonly lines: string[] = [];
  readonly packets: Packet[] = [];
  isClosed = false;
  /** Answers PUBLISH and PUBREL as a good client does. */
  autoAck = false;
  onPacket: (packet: Packet) => void = () => undefined;
  onClosed: () => void = () => undefined;
  #transport: ByteConnection | undefined;
  #level: 3 | 4 | 5 = 5;
  #framer: PacketFramer;

  private constructor() {
    this.#framer = new PacketFramer(1 << 28, {
      onFrame: (bytes, start, bodyStart, end) => {
        this.#take(decodePacket(bytes, start, bodyStart, end, this.#context()));
        return true;
      },
      onHeader: () => undefined,
      onFault: (error) => {
        throw error;
      },
    });
  }

  static async open(network: Network, port: number, host = "127.0.0.1"): Promise<RawMqtt> {
    const client = new RawMqtt();
    client.#transport = await network.connect({ host, port }, () => ({
      onData: (bytes) => client.#framer.push(bytes),
      onDrain: () => undefined,
      onClose: () => {
        client.isClosed = true;
        client.onClosed();
      },
    }));
    return client;
  }

  /** Lines since the last call. */
  take(): string[] {
    return this.lines.splice(0);
  }

  get transport(): ByteConnection {
    return this.#transport!;
  }

  bytes(bytes: Uint8Array): this {
    this.transport.write(bytes);
    return this;
  }

  say(...packets: Packet[]): this {
    return this.bytes(Buffer.concat(packets.map((packet) => this.encode(packet))));
  }

  encode(packet: Packet): Buffer {
    if (packet.type === "connect") this.#level = packet.level;
    return encodePacket(packet, this.#level === 5 ? 5 : 4);
  }

  connect(clientId: string, fields: ConnectFields = {}): this {
    return this.say(connecting(clientId, fields));
  }

  subscribe(filter: string, options: Partial<SubscriptionOptions> = {}, packetId = 1): this {
    return this.say(subscribing([filter], options, packetId));
  }

  publish(topic: string, payload: string, fields: PublishFields = {}): this {
    return this.say(publishing(topic, payload, fields));
  }

  ack(type: "puback" | "pubrec" | "pubrel" | "pubcomp", packetId: number, reasonCode = 0): this {
    return this.say({ type, packetId, reasonCode, properties: {} });
  }

  disconnect(reasonCode = 0, properties: Properties = {}): this {
    return this.say({ type: "disconnect", reasonCode, properties });
  }

  /** The link breaks without a word. */
  drop(): void {
    this.transport.destroy();
  }

  #context(): DecodeContext {
    const version = this.#level === 5 ? 5 : 4;
    return { ...decodeContextDefault, sender: "server", version, userPropertiesMax: 10_000 };
  }

  #take(packet: Packet): void {
    this.packets.push(packet);
    this.lines.push(lineOf(packet));
    this.onPacket(packet);
    if (!this.autoAck) return;
    if (packet.type === "publish" && packet.qos > 0) {
      this.ack(packet.qos === 1 ? "puback" : "pubrec", packet.packetId);
    } else if (packet.type === "pubrel") {
      this.ack("pubcomp", packet.packetId);
    }
  }
}

export function connecting(clientId: string, fields: ConnectFields = {}): ConnectPacket {
  return {
    type: "connect",
    level: 5,
    bridge: false,
    clientId,
    cleanStart: false,
    keepAliveS: 0,
    properties: {},
    ...fields,
  };
}

export function subscribing(
  filters: readonly string[],
  options: Partial<SubscriptionOptions> = {},
  packetId = 1,
  properties: Properties = {},
): Packet {
  const all = { qos: 1, noLocal: false, retainAsPublished: false, retainHandling: 0 } as const;
  return {
    type: "subscribe",
    packetId,
    filters: filters.map((filter) => ({ filter, options: { ...all, ...options } })),
    properties,
  };
}

export function publishing(topic: string, payload: string, fields: PublishFields = {}): Packet {
  const { qos = 1, id = qos === 0 ? 0 : 1, retain = false, dup = false, properties = {} } = fields;
  const shape = { type: "publish", topic, qos, retain, dup, packetId: id, properties } as const;
  return { ...shape, payload: Buffer.from(payload) };
}

function lineOf(packet: Packet): string {
  switch (packet.type) {
    case "connack":
      return `connack ${code(packet.reasonCode)}${packet.sessionPresent ? " present" : ""}`;
    case "publish": {
      const { topic, payload, qos, packetId, dup, retain } = packet;
      const id = qos === 0 ? "" : ` #${packetId}`;
      const text = payload.length > 40 ? `(${payload.length})` : payload.toString();
      return `publish ${topic} ${text} q${qos}${id}${dup ? " dup" : ""}${retain ? " retain" : ""}`;
    }
    case "suback":
    case "unsuback":
      return `${packet.type} #${packet.packetId} ${packet.reasonCodes.map(code).join(" ")}`.trim();
    case "puback":
    case "pubrec":
    case "pubrel":
    case "pubcomp": {
      const failed = packet.reasonCode === 0 ? "" : ` ${code(packet.reasonCode)}`;
      return `${packet.type} #${packet.packetId}${failed}`;
    }
    case "disconnect":
      return `disconnect ${code(packet.reasonCode)}`;
    default:
      return packet.type;
  }
}

function code(reasonCode: number): string {
  return `0x${reasonCode.toString(16).padStart(2, "0")}`;
}
