import { describe, expect, test } from "vitest";
import {
  ChunkPool,
  ClientConnection,
  type ClientEnd,
  type ClientEvents,
  ClientSession,
  type ConnectPacket,
  clientSettingsDefault,
  createFrame,
  decodePacket,
  encodePacket,
  OutboundWindow,
  OutputBuffer,
  type Packet,
  PacketFramer,
  type PublishPacket,
  type ServerConnection,
} from "../../../src/mqtt/index.ts";
import { Conversation, connect4, connect5, publishing } from "./conversation.ts";
import { client4, client5 } from "./support.ts";

/** A client whose server is played by the test. */
class Talk {
  nowMs = 0;
  readonly events: string[] = [];
  readonly received: PublishPacket[] = [];
  readonly client: ClientConnection;
  end: ClientEnd | undefined;
  readonly #output = new OutputBuffer(new ChunkPool(), () => undefined);
  readonly #version: 4 | 5;

  constructor(connect: ConnectPacket = connect5, session = new ClientSession()) {
    this.#version = connect.level === 5 ? 5 : 4;
    const events: ClientEvents = {
      onConnack: () => this.events.push("connack"),
      onPublish: (packet) => {
        this.events.push(`publish ${packet.topic} q${packet.qos}`);
        this.received.push(packet);
      },
      onPublished: (id, code) => this.events.push(`published ${id} ${code}`),
      onSuback: (packet) => this.events.push(`suback ${packet.packetId}`),
      onUnsuback: (packet) => this.events.push(`unsuback ${packet.packetId}`),
      onAuth: () => this.events.push("auth"),
      onEnd: (end) => {
        this.events.push(`end ${end.cause}`);
        this.end = end;
      },
    };
    const parts = { settings: clientSettingsDefault, session, events, output: this.#output };
    this.client = new ClientConnection(parts, connect, this.nowMs);
  }

  server(...packets: Packet[]): this {
    const bytes = packets.map((packet) => encodePacket(packet, this.#version));
    this.client.receive(Buffer.concat(bytes), this.nowMs);
    return this;
  }

  accept(sessionPresent = false, properties = {}): this {
    this.server({ type: "connack", sessionPresent, reasonCode: 0, properties });
    this.said();
    return this;
  }

  wait(ms: number): this {
    this.nowMs += ms;
    this.client.tick(this.nowMs);
    return this;
  }

  bytes(): Buffer {
    const parts: Buffer[] = [];
    this.#output.drain((bytes) => parts.push(Buffer.from(bytes)));
    return Buffer.concat(parts);
  }

  said(): Packet[] {
    const packets: Packet[] = [];
    const context = this.#version === 5 ? client5 : client4;
    const framer = new PacketFramer(1 << 28, {
      onFrame: (bytes, start, bodyStart, end) => {
        packets.push(decodePacket(bytes, start, bodyStart, end, context));
        return true;
      },
      onHeader: () => undefined,
      onFault: (error) => {
        throw error;
      },
    });
    framer.push(this.bytes());
    return packets;
  }
}

const message = { topic: "t", payload: Buffer.from("x"), retain: false };
const ack = { reasonCode: 0, properties: {} };

describe("a client", () => {
  test("sends CONNECT first and hears of its acceptance", () => {
    const talk = new Talk(connect4);
    expect(talk.said()).toEqual([connect4]);
    talk.accept();
    expect(talk.events).toEqual(["connack"]);
    expect(talk.client.state).toBe("connected");
  });

  test("a refusal is an end with its reason", () => {
    const talk = new Talk();
    talk.server({ type: "connack", sessionPresent: false, reasonCode: 0x87, properties: {} });
    expect(talk.end).toMatchObject({ cause: "refused", reasonCode: 0x87 });
  });

  test("publishes at every QoS and hears when a message is finished", () => {
    const talk = new Talk().accept();
    expect(talk.client.publish({ ...message, qos: 0 })).toBe(0);
    expect(talk.client.publish({ ...message, qos: 1 })).toBe(1);
    expect(talk.client.publish({ ...message, qos: 2 })).toBe(2);
    expect(talk.said()).toHaveLength(3);
    talk.server({ type: "puback", packetId: 1, ...ack }, { type: "pubrec", packetId: 2, ...ack });
    expect(talk.said()).toEqual([{ type: "pubrel", packetId: 2, ...ack }]);
    talk.server({ type: "pubcomp", packetId: 2, ...ack });
    expect(talk.events).toEqual(["connack", "published 1 0", "published 2 0"]);
  });

  test("waits at the server's Receive Maximum and keeps to its Maximum Packet Size", () => {
    const talk = new Talk().accept(false, { receiveMaximum: 1, maximumPacketSize: 50 });
    talk.client.publish({ ...message, qos: 1 });
    expect(talk.client.hasRoom).toBe(false);
    talk.client.publish({ ...message, qos: 0 });
    expect(() => talk.client.publish({ ...message, qos: 0, payload: Buffer.alloc(50) })).toThrow(
      expect.objectContaining({ code: "MQTT_PACKET_TOO_LARGE" }),
    );
    talk.server({ type: "puback", packetId: 1, ...ack });
    expect(talk.client.hasRoom).toBe(true);
  });

  test("takes QoS 2 once, and acknowledges when its receiver says so", () => {
    const talk = new Talk().accept();
    talk.server(publishing(2, 9), publishing(1, 10));
    expect(talk.said()).toEqual([]);
    for (const packet of talk.received) talk.client.acknowledge(packet);
    expect(talk.said().map((packet) => packet.type)).toEqual(["pubrec", "puback"]);
    talk.server(publishing(2, 9), { type: "pubrel", packetId: 9, ...ack });
    expect(talk.said().map((packet) => packet.type)).toEqual(["pubrec", "pubcomp"]);
    expect(talk.received).toHaveLength(2);
    talk.server({ type: "pubrel", packetId: 9, ...ack });
    expect(talk.said()).toEqual([
      { type: "pubcomp", packetId: 9, reasonCode: 0x92, properties: {} },
    ]);
  });

  test("subscribes and unsubscribes with ids that no message has", () => {
    const talk = new Talk().accept();
    talk.client.publish({ ...message, qos: 1 });
    const options = {
      qos: 1,
      noLocal: false,
      retainAsPublished: false,
      retainHandling: 0,
    } as const;
    expect(talk.client.subscribe([{ filter: "a/#", options }])).toBe(2);
    expect(talk.client.unsubscribe(["b"])).toBe(3);
    talk.server(
      { type: "suback", packetId: 2, reasonCodes: [1], properties: {} },
      { type: "unsuback", packetId: 3, reasonCodes: [0], properties: {} },
    );
    expect(talk.events).toEqual(["connack", "suback 2", "unsuback 3"]);
  });

  test("resumes: unfinished messages again in their order with DUP 1, or their PUBREL", () => {
    const session = new ClientSession();
    const first = new Talk(connect5, session).accept();
    for (const qos of [2, 1, 2] as const) first.client.publish({ ...message, qos });
    first.server({ type: "pubrec", packetId: 1, ...ack });
    first.client.transportClosed();
    const second = new Talk(connect5, session);
    second.said();
    second.server({ type: "connack", sessionPresent: true, reasonCode: 0, properties: {} });
    expect(second.said()).toMatchObject([
      { type: "pubrel", packetId: 1 },
      { type: "publish", packetId: 2, dup: true, qos: 1 },
      { type: "publish", packetId: 3, dup: true, qos: 2 },
    ]);
    const third = new Talk(connect5, session).accept(false);
    expect([third.said(), session.window.size]).toEqual([[], 0]);
  });

  test("pings when silent for its keep alive, and ends when nothing comes back", () => {
    const talk = new Talk({ ...connect5, keepAliveS: 10 }).accept();
    talk.wait(9_999);
    expect(talk.said()).toEqual([]);
    talk.wait(1);
    expect(talk.said()).toEqual([{ type: "pingreq" }]);
    talk.server({ type: "pingresp" }).wait(10_000);
    expect(talk.said()).toEqual([{ type: "pingreq" }]);
    talk.wait(10_000);
    expect(talk.end?.cause).toBe("keep_alive");
  });

  test("a server that breaks the rules is left, with a reason", () => {
    for (const bad of [
      { ...publishing(1, 1), properties: { topicAlias: 1 } },
      { type: "connack", sessionPresent: false, ...ack },
    ] as Packet[]) {
      const talk = new Talk().accept().server(bad);
      expect(talk.end?.cause).toBe("protocol_error");
      expect(talk.said()).toMatchObject([{ type: "disconnect" }]);
    }
    const early = new Talk();
    early.said();
    early.server(publishing(0, 0));
    expect([early.end?.cause, early.said()]).toEqual(["protocol_error", []]);
    const stage = new Talk().accept();
    stage.client.publish({ ...message, qos: 2 });
    stage.said();
    stage.server({ type: "puback", packetId: 1, ...ack });
    expect(stage.said()).toMatchObject([{ type: "disconnect", reasonCode: 0x82 }]);
  });

  test("answers a PUBREC it knows nothing of with PUBREL 0x92", () => {
    const talk = new Talk().accept().server({ type: "pubrec", packetId: 5, ...ack });
    expect(talk.said()).toMatchObject([{ type: "pubrel", packetId: 5, reasonCode: 0x92 }]);
  });

  test("DISCONNECT of the server is an end with its reason", () => {
    const talk = new Talk().accept();
    talk.server({ type: "disconnect", reasonCode: 0x8e, properties: {} });
    expect(talk.end).toMatchObject({ cause: "server_disconnect", reasonCode: 0x8e });
  });
});

describe("client and server connections together", () => {
  test("QoS 2 both ways, over aliases, ends with nothing owed", () => {
    const window = new OutboundWindow<string>({ countMax: 10, bytesMax: 1000 });
    let server: ServerConnection;
    const talk = new Conversation({
      events: {
        onPublish: (_publish, token) => server.completeAck(token),
        onPubrel: (_id, _code, token) => server.completeAck(token),
        onPubrec: (id, code) => {
          if (window.pubrec(id, code) === "release") server.sendPubrel(id);
        },
        onPubcomp: (id) => window.pubcomp(id),
      },
    });
    server = talk.connection;
    const client = new Talk({ ...connect5, properties: { topicAliasMaximum: 4 } });
    const exchange = (): void => {
      for (;;) {
        const up = client.bytes();
        if (up.length > 0) server.receive(up, 0);
        const down = Buffer.from(talk.heardHex(), "hex");
        if (down.length > 0) client.client.receive(down, 0);
        for (const packet of client.received.splice(0)) client.client.acknowledge(packet);
        if (up.length + down.length === 0) return;
      }
    };
    exchange();
    const stored = createFrame({ topic: "down", payload: Buffer.from("1"), qos: 2, retain: false });
    for (let packetId = 1; packetId <= 3; packetId++) {
      client.client.publish({ ...message, qos: 2 });
      window.add({ packetId, stage: "sent2", sizeBytes: 1, value: "" });
      server.sendPublish(stored, { qos: 2, dup: false, retain: false, packetId });
      exchange();
    }
    expect(window.size).toBe(0);
    expect(server.acksOwed).toBe(0);
    expect(client.events.filter((event) => event.startsWith("published"))).toHaveLength(3);
    expect(client.events.filter((event) => event === "publish down q2")).toHaveLength(3);
    expect(talk.end).toBeUndefined();
  });
});
