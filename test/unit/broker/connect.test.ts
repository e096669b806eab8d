import { describe, expect, test } from "vitest";
import { CodedError } from "../../../src/base/index.ts";
import type { Broker } from "../../../src/broker/index.ts";
import { encodePacket } from "../../../src/mqtt/index.ts";
import { BrokerWorld } from "../../support/broker-world.ts";
import { connecting, publishing, subscribing } from "../../support/raw-mqtt.ts";

const durable = { properties: { sessionExpiryS: 3600 } };
const will = { topic: "will", payload: Buffer.from("gone"), qos: 1, retain: false } as const;

describe("CONNECT", () => {
  test("CONNACK tells the limits, the capped expiry and an assigned id", async () => {
    const world = await BrokerWorld.start({ settings: { sessionExpiryMaxS: 60 } });
    const c = await world.dial();
    c.connect("", { properties: { sessionExpiryS: 0xffff_ffff } });
    await world.advance();
    const [connack] = c.packets;
    expect(connack).toMatchObject({ type: "connack", reasonCode: 0, sessionPresent: false });
    expect(connack && "properties" in connack && connack.properties).toEqual({
      assignedClientId: expect.stringMatching(/^auto-[0-9a-f]{24}$/),
      sessionExpiryS: 60,
      receiveMaximum: 1000,
      topicAliasMaximum: 16,
      maximumPacketSize: 8 * 1024 * 1024,
    });
  });

  test("an expiry within the cap is not told", async () => {
    const world = await BrokerWorld.start();
    const c = await world.dial();
    c.connect("c", durable);
    await world.advance();
    const [connack] = c.packets;
    expect(connack && "properties" in connack && connack.properties).not.toHaveProperty(
      "sessionExpiryS",
    );
  });

  test("packets pipelined behind CONNECT are processed after acceptance, in order", async () => {
    const world = await BrokerWorld.start();
    const c = await world.dial();
    c.say(
      connecting("c", durable),
      subscribing(["t"], { qos: 1 }, 3),
      publishing("other", "x", { id: 4 }),
      { type: "pingreq" },
    );
    await world.advance(100);
    expect(c.take()).toEqual(["connack 0x00", "puback #4 0x10", "pingresp", "suback #3 0x01"]);
  });

  test("nothing pipelined behind a refused CONNECT takes effect", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s");
    s.subscribe("#");
    const c = await world.dial();
    c.say(
      connecting("c", {
        properties: { authenticationMethod: "x" },
        will: { ...will, properties: {} },
      }),
      publishing("t", "x"),
    );
    await world.advance(100);
    expect(c.take()).toEqual(["connack 0x8c"]);
    expect(c.isClosed).toBe(true);
    expect(s.take()).toEqual(["suback #1 0x01"]);
  });

  test.each([
    ["an id that is too long", { clientId: "x".repeat(1025) }, "connack 0x85"],
    ["an id that is too long, 3.1.1", { clientId: "x".repeat(1025), level: 4 }, "connack 0x02"],
    ["an empty id without a clean session, 3.1.1", { clientId: "", level: 4 }, "connack 0x02"],
    [
      "a will on an internal topic",
      { will: { ...will, topic: "$SYS/x", properties: {} } },
      "connack 0x87",
    ],
  ] as const)("%s is refused and closed", async (_name, fields, answer) => {
    const world = await BrokerWorld.start();
    const c = await world.dial();
    c.connect("c", fields);
    await world.advance();
    expect([c.take(), c.isClosed]).toEqual([[answer], true]);
    expect(world.broker.counts().connections).toBe(0);
  });

  test("an id of another user is refused with a log line that names it", async () => {
    const world = await BrokerWorld.start();
    const mismatch = new CodedError("SESSION_USER_MISMATCH", "invalid", "another user's", {});
    world.broker.sessions.connect = () => Promise.reject(mismatch);
    const c = await world.dial();
    c.connect("taken");
    await world.advance();
    expect([c.take(), c.isClosed]).toEqual([["connack 0x87"], true]);
    expect(world.events("broker.session_unavailable")).toMatchObject([{ clientId: "taken" }]);
  });

  test("a session that cannot be opened in time is refused and let go without its will", async () => {
    const world = await BrokerWorld.start();
    const { sessions } = world.broker;
    const connect = sessions.connect.bind(sessions);
    const gate: Array<() => void> = [];
    sessions.connect = async (request, link) => {
      await new Promise<void>((resolve) => gate.push(resolve));
      return connect(request, link);
    };
    const s = await world.dial();
    s.connect("s");
    await world.advance();
    gate.splice(0).forEach((go) => {
      go();
    });
    await world.advance();
    s.subscribe("will");
    const c = await world.dial();
    c.connect("c", { ...durable, will: { ...will, properties: {} } });
    await world.advance(15_100);
    expect([c.take(), c.isClosed]).toEqual([["connack 0x88"], true]);
    gate.splice(0).forEach((go) => {
      go();
    });
    await world.advance(1000);
    expect(s.take()).toEqual(["connack 0x00", "suback #1 0x01"]);
    expect(sessions.counts().connected).toBe(1);
  });

  test("a client is not read while its CONNECT is decided; what it sent is then taken", async () => {
    const world = await BrokerWorld.start();
    const { sessions } = world.broker;
    const connect = sessions.connect.bind(sessions);
    let admit = (): void => undefined;
    sessions.connect = async (request, link) => {
      await new Promise<void>((resolve) => {
        admit = resolve;
      });
      return connect(request, link);
    };
    const c = await world.dial();
    // Four times what is held back for a client before its answer.
    const count = 64;
    const payload = "x".repeat(8 * 1024);
    c.connect("c");
    await world.advance();
    for (let id = 1; id <= count; id++) c.say(publishing("t", payload, { id }));
    await world.advance(1000);
    expect(c.take()).toEqual([]);
    expect(world.broker.counters.bytesReceived).toBeLessThan(128 * 1024);
    admit();
    await world.advance(1000);
    expect(c.take().length).toBe(1 + count);
  });

  test("a session whose client has said goodbye behind its CONNECT is never opened", async () => {
    const world = await BrokerWorld.start();
    const { sessions } = world.broker;
    const connect = sessions.connect.bind(sessions);
    const calls: string[] = [];
    sessions.connect = async (request, link) => {
      const outcome = await connect(request, link);
      const { session } = outcome;
      const { open, detach } = session;
      session.open = () => {
        calls.push("open");
        open.call(session);
      };
      session.detach = (cause) => {
        calls.push("detach");
        return detach.call(session, cause);
      };
      return outcome;
    };
    const c = await world.dial();
    c.say(connecting("c", durable), { type: "disconnect", reasonCode: 0, properties: {} });
    await world.advance(100);
    expect([c.take(), c.isClosed, calls]).toEqual([["connack 0x00"], true, ["detach"]]);
  });

  test("takeover: the old connection gets 0x8E, the new one the session", async () => {
    const world = await BrokerWorld.start();
    const old = await world.connect("c", durable);
    old.subscribe("t");
    await world.advance();
    const fresh = await world.connect("c", durable);
    await world.advance();
    expect([old.take(), old.isClosed]).toEqual([["suback #1 0x01", "disconnect 0x8e"], true]);
    fresh.publish("t", "x");
    await world.advance(100);
    expect(fresh.take()).toEqual(["connack 0x00 present", "puback #1", "publish t x q1 #1"]);
    expect(world.broker.counters.takeovers).toBe(1);
  });

  test("R33: takeover of an expiry-0 session ends it: its will is published, SP = 0", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s");
    s.subscribe("will");
    const old = await world.connect("c", { will: { ...will, properties: { willDelayS: 5 } } });
    const fresh = await world.dial();
    fresh.connect("c");
    await world.advance(100);
    expect(fresh.take()).toEqual(["connack 0x00"]);
    expect(old.take()).toEqual(["disconnect 0x8e"]);
    expect(s.take()).toEqual(["suback #1 0x01", "publish will gone q1 #1"]);
  });

  test("a 3.1 client is served like a 3.1.1 client", async () => {
    const world = await BrokerWorld.start();
    const c = await world.connect("c", { level: 3, cleanStart: true });
    c.subscribe("t", { qos: 0 });
    c.publish("t", "x", { qos: 0 });
    await world.advance();
    c.publish("t", "y", { qos: 0 });
    await world.advance();
    expect(c.take()).toContain("publish t y q0");
  });
});

describe("before login", () => {
  const idle = (broker: Broker) => broker.counts().connections;

  test("silence is cut after the time limit", async () => {
    const world = await BrokerWorld.start();
    const c = await world.dial();
    await world.advance(9900);
    expect(c.isClosed).toBe(false);
    await world.advance(200);
    expect(c.isClosed).toBe(true);
    expect(world.broker.counters.connectTimeouts).toBe(1);
  });

  test("R86: a huge announced CONNECT is refused on its header", async () => {
    const world = await BrokerWorld.start();
    const c = await world.dial();
    c.bytes(Buffer.from("10ffffff7f", "hex"));
    await world.advance();
    expect(c.isClosed).toBe(true);
    expect(world.broker.counters.bytesReceived).toBe(5);
  });

  test("a first packet that is not CONNECT closes without an answer", async () => {
    const world = await BrokerWorld.start();
    const c = await world.dial();
    c.say(publishing("t", "x"));
    await world.advance();
    expect([c.take(), c.isClosed]).toEqual([[], true]);
  });

  test("more sockets of one address than allowed are closed; others are not concerned", async () => {
    const world = await BrokerWorld.start({ settings: { preAuthSocketsPerAddress: 3 } });
    const first = [await world.dial(), await world.dial(), await world.dial()];
    const fourth = await world.dial();
    const other = await world.dial("elsewhere");
    await world.advance();
    expect(fourth.isClosed).toBe(true);
    expect([...first, other].map((client) => client.isClosed)).toEqual([
      false,
      false,
      false,
      false,
    ]);
    // One of them logs in: its place is free.
    first[0]!.connect("c");
    await world.advance();
    const fifth = await world.dial();
    await world.advance();
    expect([fifth.isClosed, world.broker.counters.connectionsPerAddress]).toEqual([false, 1]);
  });

  test("connections above connectionsMax are closed, and counted", async () => {
    const world = await BrokerWorld.start({ settings: { connectionsMax: 2 } });
    await world.connect("a");
    const b = await world.connect("b");
    const c = await world.dial();
    await world.advance();
    expect([c.isClosed, world.broker.counters.connectionsFull]).toEqual([true, 1]);
    b.disconnect();
    await world.advance();
    const d = await world.dial();
    await world.advance();
    expect([d.isClosed, idle(world.broker)]).toEqual([false, 2]);
  });

  test("connections that are refused leave nothing behind", async () => {
    const world = await BrokerWorld.start();
    for (let round = 0; round < 100; round++) {
      const c = await world.dial();
      if (round % 2 === 0) c.connect("c", { properties: { authenticationMethod: "x" } });
      else c.bytes(Buffer.from([0xff, round]));
      await world.advance(5);
    }
    await world.advance(6000);
    expect(idle(world.broker)).toBe(0);
    expect(world.network.connectionCount).toBe(0);
  });
});

describe("malformed packets", () => {
  test("close only their own connection, with the reason", async () => {
    const world = await BrokerWorld.start();
    const good = await world.connect("good");
    good.subscribe("#");
    const bad5 = await world.connect("bad5");
    const bad4 = await world.connect("bad4", { level: 4, cleanStart: true });
    await world.advance();
    good.take();
    bad5.bytes(Buffer.from([0x36, 0x03, 0x00, 0x01, 0x74]));
    bad4.bytes(Buffer.from([0x36, 0x03, 0x00, 0x01, 0x74]));
    await world.advance();
    expect([bad5.take(), bad5.isClosed]).toEqual([["disconnect 0x81"], true]);
    expect([bad4.take(), bad4.isClosed]).toEqual([[], true]);
    good.publish("t", "x");
    await world.advance();
    expect(good.take()).toEqual(["puback #1", "publish t x q1 #1"]);
    const lines = world.events("broker.connection_ended");
    expect(lines.map((line) => `${line.clientId} ${line.reason}`).sort()).toEqual([
      "bad4 malformed_packet",
      "bad5 malformed_packet",
    ]);
  });

  test("R113: a property that is not allowed in PUBLISH closes the sender, not subscribers", async () => {
    const world = await BrokerWorld.start();
    const s = await world.connect("s");
    s.subscribe("#");
    const p = await world.connect("p");
    const packet = publishing("t", "x", { properties: { contentType: "a" } });
    const bytes = encodePacket(packet, 5);
    bytes[bytes.indexOf(Buffer.from([0x03, 0x00, 0x01, 0x61]))] = 0x1f;
    p.bytes(bytes);
    await world.advance();
    expect([p.isClosed, s.isClosed]).toEqual([true, false]);
    expect(s.take()).toEqual(["suback #1 0x01"]);
  });

  test.each([
    [199, ["puback #1 0x10"]],
    [200, ["puback #1 0x10"]],
    [201, ["disconnect 0x95"]],
  ])("R83: a packet of %i bytes against a maximum of 200", async (sizeBytes, answer) => {
    const world = await BrokerWorld.start({ mqtt: { maxPacketSize: 200 } });
    const p = await world.connect("p");
    const overhead = encodePacket(publishing("t", "x".repeat(150)), 5).length - 150;
    p.publish("t", "x".repeat(sizeBytes - overhead));
    await world.advance();
    expect(p.take()).toEqual(answer);
  });

  test("R83: 0x95 comes on the header, before anything of the body", async () => {
    const world = await BrokerWorld.start();
    const p = await world.connect("p");
    const before = world.broker.counters.bytesReceived;
    p.bytes(Buffer.from("30ffffff7f", "hex"));
    await world.advance();
    expect([p.take(), p.isClosed]).toEqual([["disconnect 0x95"], true]);
    expect(world.broker.counters.bytesReceived - before).toBe(5);
  });

  test("log lines that clients can cause are limited, and say how many were left out", async () => {
    const world = await BrokerWorld.start({ settings: { logLinesPerSMax: 2 } });
    for (let round = 0; round < 5; round++) {
      const c = await world.connect(`c${round}`);
      c.bytes(Buffer.from([0xff, 0]));
    }
    await world.advance(100);
    expect(world.events("broker.connection_ended").length).toBe(2);
    await world.advance(1000);
    const c = await world.connect("last");
    c.bytes(Buffer.from([0xff, 0]));
    await world.advance();
    expect(world.events("broker.connection_ended")[2]).toMatchObject({
      clientId: "last",
      suppressed: 3,
    });
  });
});
