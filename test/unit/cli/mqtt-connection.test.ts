import { describe, expect, test } from "vitest";
import { CodedError, SeededRandom, SimClock, SimNetwork } from "../../../src/base/index.ts";
import type { ClientOptions, IncomingMessage, OnMessage } from "../../../src/cli/mqtt-client.ts";
import { createConnector } from "../../../src/cli/mqtt-connection.ts";
import type { Packet, PublishPacket } from "../../../src/mqtt/index.ts";
import { PaperServer } from "../../support/paper-server.ts";

const plain: ClientOptions = {
  host: "127.0.0.1",
  port: 1883,
  version: 5,
  clientId: "c",
  isClean: true,
  sessionExpiryS: undefined,
  keepAliveS: 60,
  user: undefined,
  password: undefined,
};

async function world(options: { listens?: boolean } = {}) {
  const clock = new SimClock();
  const network = new SimNetwork({ clock, random: new SeededRandom(3) });
  const server = new PaperServer();
  if (options.listens !== false) await clock.complete(server.listen(network.host()));
  const connector = createConnector({ network: network.host(), clock });
  const connect = (change: Partial<ClientOptions> = {}, onMessage: OnMessage = () => true) =>
    clock.complete(connector({ ...plain, ...change }, onMessage));
  return { clock, network, server, connect };
}

const none = { properties: {} };

/** What a broker answers to publishes. */
function acks(packet: Packet): Packet[] {
  if (packet.type === "publish" && packet.qos === 1) {
    return [{ type: "puback", packetId: packet.packetId, reasonCode: 0, ...none }];
  }
  if (packet.type === "publish" && packet.qos === 2) {
    return [{ type: "pubrec", packetId: packet.packetId, reasonCode: 0, ...none }];
  }
  if (packet.type === "pubrel") {
    return [{ type: "pubcomp", packetId: packet.packetId, reasonCode: 0, ...none }];
  }
  return [];
}

function out(qos: 0 | 1 | 2, topic = "t") {
  return { topic, payload: Buffer.from("m"), qos, isRetained: false };
}

function incoming(qos: 0 | 1 | 2, packetId: number, dup = false): PublishPacket {
  const payload = Buffer.from(String(packetId));
  return { type: "publish", topic: "t", payload, qos, dup, retain: false, packetId, ...none };
}

const codeOf = (error: unknown): string => (error instanceof CodedError ? error.code : "no code");

describe("connecting", () => {
  test("CONNECT carries what the flags say", async () => {
    const { server, connect } = await world();
    await connect({
      isClean: false,
      sessionExpiryS: 60,
      keepAliveS: 7,
      user: "u",
      password: "p",
    });
    expect(server.packets[0]).toMatchObject({
      type: "connect",
      level: 5,
      clientId: "c",
      cleanStart: false,
      keepAliveS: 7,
      userName: "u",
      password: Buffer.from("p"),
      properties: { sessionExpiryS: 60 },
    });
  });

  test.each([3, 4, 5] as const)("level %i is spoken as asked", async (version) => {
    const { server, connect } = await world();
    await connect({ version });
    expect(server.packets[0]).toMatchObject({ level: version });
  });

  test("nobody there", async () => {
    const { connect } = await world({ listens: false });
    await expect(connect()).rejects.toMatchObject({
      code: "CLI_CONNECT_FAILED",
      message: "cannot reach 127.0.0.1:1883: nobody listens there",
    });
  });

  test("a broker that says nothing is given up", async () => {
    const { server, connect } = await world();
    server.connack = undefined;
    await expect(connect()).rejects.toMatchObject({
      message: "cannot reach 127.0.0.1:1883: no answer within 30 s",
    });
  });

  test.each([
    [5, 0x87, "CLI_CONNECT_REFUSED", "not_authorized"],
    [5, 0x88, "CLI_CONNECT_FAILED", "server_unavailable"],
    [4, 5, "CLI_CONNECT_REFUSED", "not authorized"],
    [4, 3, "CLI_CONNECT_FAILED", "server unavailable"],
    [4, 2, "CLI_CONNECT_REFUSED", "it does not like this client id"],
  ] as const)("level %i, CONNACK %i is %s", async (version, reasonCode, code, text) => {
    const { server, connect } = await world();
    server.connack = { reasonCode };
    const error = await connect({ version }).catch((caught) => caught);
    expect(codeOf(error)).toBe(code);
    expect(error.message).toContain(text);
  });
});

describe("publishing", () => {
  test.each([0, 1, 2] as const)("QoS %i is done when its exchange is", async (qos) => {
    const { clock, server, connect } = await world();
    const client = await connect();
    let isDone = false;
    const done = client.publish(out(qos)).then(() => {
      isDone = true;
    });
    await clock.advance(100);
    expect(isDone).toBe(qos === 0);
    for (const packet of server.ofType("publish")) for (const ack of acks(packet)) server.send(ack);
    server.answer = acks;
    await clock.complete(done);
    const flow = ["connect", "publish", ...(qos === 2 ? ["pubrel"] : [])];
    expect(server.types()).toEqual(flow);
  });

  test("never more are under way than the broker's Receive Maximum, and none is left", async () => {
    const { clock, server, connect } = await world();
    server.connack = { properties: { receiveMaximum: 2 } };
    const client = await connect();
    const all = Promise.all([1, 2, 3, 4, 5].map(() => client.publish(out(1))));
    await clock.advance(100);
    expect(server.ofType("publish")).toHaveLength(2);
    server.answer = acks;
    for (const packet of server.ofType("publish")) for (const ack of acks(packet)) server.send(ack);
    await clock.complete(all);
    expect(server.ofType("publish")).toHaveLength(5);
  });

  test("a refusal names topic and reason, and does not end the connection", async () => {
    const { clock, server, connect } = await world();
    const client = await connect();
    server.answer = (packet) =>
      packet.type !== "publish"
        ? []
        : [{ type: "puback", packetId: packet.packetId, reasonCode: 0x97, ...none }];
    await expect(clock.complete(client.publish(out(1, "a/b")))).rejects.toMatchObject({
      code: "CLI_PUBLISH_REFUSED",
      message: "publish to a/b refused: quota_exceeded",
    });
    server.answer = acks;
    await clock.complete(client.publish(out(1)));
  });

  test("what the broker said it does not take is not sent", async () => {
    const { server, connect, clock } = await world();
    server.connack = {
      properties: { maximumQos: 1, retainAvailable: false, maximumPacketSize: 30 },
    };
    const client = await connect();
    const refused = (message: ReturnType<typeof out>) =>
      clock.complete(client.publish(message)).catch((error) => error.message);
    expect(await refused(out(2))).toContain("the broker takes at most QoS 1");
    expect(await refused({ ...out(0), isRetained: true })).toContain("retains no messages");
    expect(await refused({ ...out(0), payload: Buffer.alloc(40) })).toContain(
      "publish to t refused",
    );
    expect(server.types()).toEqual(["connect"]);
  });

  test("a lost connection fails what is under way and what waits", async () => {
    const { clock, server, connect } = await world();
    server.connack = { properties: { receiveMaximum: 1 } };
    const client = await connect();
    const all = Promise.allSettled([client.publish(out(1)), client.publish(out(1))]);
    await clock.advance(100);
    server.drop();
    const results = await clock.complete(all);
    const codes = results.map((result) => result.status === "rejected" && codeOf(result.reason));
    expect(codes).toEqual(["CLI_CONNECTION_LOST", "CLI_CONNECTION_LOST"]);
    await expect(client.publish(out(0))).rejects.toMatchObject({ code: "CLI_CONNECTION_LOST" });
  });
});

describe("subscribing", () => {
  test("every filter is asked for, and one that is refused is named", async () => {
    const { clock, server, connect } = await world();
    const client = await connect();
    server.answer = (packet) =>
      packet.type !== "subscribe"
        ? []
        : [{ type: "suback", packetId: packet.packetId, reasonCodes: [1, 0x87], ...none }];
    await expect(clock.complete(client.subscribe(["a", "b"], 1))).rejects.toMatchObject({
      code: "CLI_SUBSCRIBE_REFUSED",
      message: "subscription to b refused: not_authorized",
    });
    expect(server.ofType("subscribe")[0]?.filters.map(({ filter }) => filter)).toEqual(["a", "b"]);
  });

  test("what the reader does not take is not acknowledged", async () => {
    const { clock, server, connect } = await world();
    const taken: string[] = [];
    await connect({}, (message) => {
      taken.push(Buffer.from(message.payload).toString());
      return taken.length < 2;
    });
    server.send(incoming(1, 1));
    server.send(incoming(1, 2));
    await clock.advance(100);
    expect(taken).toEqual(["1", "2"]);
    expect(server.ofType("puback").map(({ packetId }) => packetId)).toEqual([1]);
  });

  test("a QoS 2 message is told once, also over a reconnect of the same client", async () => {
    const { clock, server, connect } = await world();
    const messages: IncomingMessage[] = [];
    const take: OnMessage = (message) => messages.push(message) > 0;
    await connect({ isClean: false }, take);
    server.send(incoming(2, 9));
    await clock.advance(100);
    server.drop();
    await clock.advance(100);
    server.connack = { sessionPresent: true };
    await connect({ isClean: false }, take);
    server.send(incoming(2, 9, true));
    await clock.advance(100);
    expect(messages).toHaveLength(1);
    expect(server.ofType("pubrec")).toHaveLength(2);
  });
});

describe("the end", () => {
  test.each([
    [0x8b, "CLI_CONNECTION_LOST", "retry"],
    [0x8e, "CLI_DISCONNECTED", "invalid"],
    [0x98, "CLI_DISCONNECTED", "invalid"],
  ])("DISCONNECT 0x%s of the broker is %s", async (reasonCode, code, kind) => {
    const { clock, server, connect } = await world();
    const client = await connect();
    server.send({ type: "disconnect", reasonCode, ...none });
    await expect(clock.complete(client.closed)).rejects.toMatchObject({ code, kind });
  });

  test("a broker that breaks the protocol is left and told why", async () => {
    const { clock, server, connect } = await world();
    const client = await connect();
    server.send({ type: "pingreq" });
    await expect(clock.complete(client.closed)).rejects.toMatchObject({ code: "CLI_DISCONNECTED" });
    await clock.advance(100);
    expect(server.packets.at(-1)).toMatchObject({ type: "disconnect", reasonCode: 0x82 });
  });

  test("keep alive is kept, and a broker that answers no ping is lost", async () => {
    const { clock, server, connect } = await world();
    const client = await connect({ keepAliveS: 10 });
    server.answer = (packet) => (packet.type === "pingreq" ? [{ type: "pingresp" }] : []);
    await clock.advance(35_000);
    expect(server.ofType("pingreq").length).toBeGreaterThanOrEqual(3);
    server.answer = () => [];
    await expect(clock.complete(client.closed)).rejects.toMatchObject({
      code: "CLI_CONNECTION_LOST",
      message: expect.stringContaining("keep_alive_timeout"),
    });
  });

  test("end says DISCONNECT after all that was published, and waits for the close", async () => {
    const { clock, server, connect } = await world();
    const client = await connect();
    await clock.complete(client.publish({ ...out(0), payload: Buffer.alloc(300_000) }));
    await clock.complete(client.end());
    expect(server.types()).toEqual(["connect", "publish", "disconnect"]);
    await clock.advance(100);
    expect(server.closedCount).toBe(1);
    await client.end();
  });
});
