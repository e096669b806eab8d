// A scripted conversation with a ServerConnection: packets or hex go in, events and packets come
// out. The owner is played by the test; by default it accepts at once and finishes nothing.

import {
  ChunkPool,
  type ConnectAnswer,
  type ConnectionEnd,
  type ConnectPacket,
  canonicalFrame,
  decodePacket,
  encodePacket,
  type MqttVersion,
  OutputBuffer,
  type Packet,
  PacketFramer,
  type Properties,
  ServerConnection,
  type ServerConnectionSettings,
  type ServerEvents,
  type StoredFrame,
  serverConnectionSettingsDefault,
} from "../../../src/mqtt/index.ts";
import { hex, server4, server5 } from "./support.ts";

export const connect5: ConnectPacket = {
  type: "connect",
  level: 5,
  bridge: false,
  clientId: "c",
  cleanStart: true,
  keepAliveS: 0,
  properties: {},
};
export const connect4: ConnectPacket = { ...connect5, level: 4 };

export function withProperties(properties: Properties): ConnectPacket {
  return { ...connect5, properties };
}

export type Plot = {
  readonly settings?: Partial<ServerConnectionSettings>;
  /** What the owner does on CONNECT; "later": nothing. */
  readonly onConnect?: ConnectAnswer | "later";
  readonly events?: Partial<ServerEvents>;
};

export class Conversation {
  nowMs = 1000;
  readonly events: string[] = [];
  /** Tokens owed, in order of arrival. */
  readonly tokens: number[] = [];
  readonly stored: StoredFrame[] = [];
  readonly connection: ServerConnection;
  end: ConnectionEnd | undefined;
  readonly #output: OutputBuffer;
  #version: MqttVersion = 5;

  constructor(plot: Plot = {}) {
    const { onConnect = { sessionPresent: false } } = plot;
    this.#output = new OutputBuffer(new ChunkPool(), () => undefined);
    const events: ServerEvents = {
      onConnect: (packet) => {
        this.events.push(`connect ${packet.clientId}`);
        if (onConnect !== "later") this.connection.acceptConnect(onConnect, this.nowMs);
      },
      onPublish: (publish, token) => {
        this.events.push(`publish ${publish.topic} ${publish.payload} q${publish.qos}`);
        this.stored.push(canonicalFrame(publish));
        if (token > 0) this.tokens.push(token);
      },
      onPuback: (id, code) => this.events.push(`puback ${id} ${code}`),
      onPubrec: (id, code) => this.events.push(`pubrec ${id} ${code}`),
      onPubrel: (id, code, token) => {
        this.events.push(`pubrel ${id} ${code}`);
        this.tokens.push(token);
      },
      onPubcomp: (id, code) => this.events.push(`pubcomp ${id} ${code}`),
      onSubscribe: (request) =>
        this.events.push(`subscribe ${request.filters.map((item) => item.text).join(" ")}`),
      onUnsubscribe: (request) =>
        this.events.push(`unsubscribe ${request.filters.map((item) => item.text).join(" ")}`),
      onAuth: (packet) => this.events.push(`auth ${packet.reasonCode}`),
      onEnd: (end) => {
        this.events.push(`end ${end.cause}`);
        this.end = end;
      },
      ...plot.events,
    };
    const settings = { ...serverConnectionSettingsDefault, ...plot.settings };
    this.connection = new ServerConnection(settings, events, this.#output, this.nowMs);
  }

  /** The client sends packets (in the version of the last CONNECT) or bytes, in one read. */
  say(...items: Array<Packet | string>): this {
    const parts = items.map((item) => {
      if (typeof item === "string") return hex(item);
      if (item.type === "connect") this.#version = item.level === 5 ? 5 : 4;
      return encodePacket(item, this.#version);
    });
    this.connection.receive(Buffer.concat(parts), this.nowMs);
    return this;
  }

  /** The same, byte by byte. */
  trickle(bytes: Buffer): this {
    for (const byte of bytes) this.connection.receive(Buffer.from([byte]), this.nowMs);
    return this;
  }

  wait(ms: number): this {
    this.nowMs += ms;
    this.connection.tick(this.nowMs);
    return this;
  }

  /** Bytes the client has got since the last look, in hex. */
  heardHex(): string {
    const parts: Buffer[] = [];
    this.#output.drain((bytes) => parts.push(Buffer.from(bytes)));
    return Buffer.concat(parts).toString("hex");
  }

  /** Packets the client has got since the last look. */
  heard(version: MqttVersion = this.#version): Packet[] {
    const packets: Packet[] = [];
    const framer = new PacketFramer(1 << 28, {
      onFrame: (bytes, start, bodyStart, end) => {
        const context = version === 5 ? server5 : server4;
        packets.push(decodePacket(bytes, start, bodyStart, end, context));
        return true;
      },
      onHeader: () => undefined,
      onFault: (error) => {
        throw error;
      },
    });
    framer.push(hex(this.heardHex()));
    return packets;
  }

  /** The last answer in short: `disconnect 0x82`. */
  heardShort(version: MqttVersion = this.#version): string[] {
    return this.heard(version).map((packet) => {
      const code = "reasonCode" in packet ? ` 0x${packet.reasonCode.toString(16)}` : "";
      const id = "packetId" in packet ? ` ${packet.packetId}` : "";
      return `${packet.type}${id}${code}`;
    });
  }
}

/** Connected, and the CONNACK taken away. */
export function connected(packet: ConnectPacket = connect5, plot: Plot = {}): Conversation {
  const talk = new Conversation(plot).say(packet);
  talk.heardHex();
  talk.events.length = 0;
  return talk;
}

export function publishing(
  qos: 0 | 1 | 2,
  packetId: number,
  topic = "t",
  properties: Properties = {},
): Packet {
  const payload = Buffer.from("x");
  return { type: "publish", topic, payload, qos, dup: false, retain: false, packetId, properties };
}

export function pubrel(packetId: number): Packet {
  return { type: "pubrel", packetId, reasonCode: 0, properties: {} };
}
