// CONNECT and CONNACK.

import { describe, expect, test } from "vitest";
import { sharedBroker } from "../support/launched-broker.ts";
import {
  bytes,
  connect,
  field,
  packet,
  properties,
  publish,
  publish5,
  subscribe4,
  subscribe5,
} from "../support/mqtt-bytes.ts";
import type { ProtocolLevel, RawClient } from "../support/raw-client.ts";

const broker = sharedBroker();

/** CONNACK of a refusal has Session Present 0 and the code; nothing follows it but the end. */
async function expectConnackRefusal(client: RawClient, code: number): Promise<void> {
  const frames = await client.expectClosed();
  expect(frames).toHaveLength(1);
  const connack = frames[0]?.bytes;
  expect(connack?.[0]).toBe(0x20);
  expect(connack?.subarray(2, 4)).toEqual(Buffer.from([0, code]));
}

async function expectNoAnswer(client: RawClient): Promise<void> {
  expect(await client.expectClosed()).toEqual([]);
}

async function refusal(sent: Uint8Array, code: number, level: ProtocolLevel = 5): Promise<void> {
  const client = await broker().raw(level);
  client.send(sent);
  await expectConnackRefusal(client, code);
}

/** Each answers another packet, so their order is free; a PUBLISH may come to itself too. */
async function expectInAnyOrder(client: RawClient, ...answers: string[]): Promise<void> {
  const awaited = new Set(answers);
  while (awaited.size > 0) {
    const { type, bytes: answer } = await client.next();
    if (type !== 3) expect(awaited.delete(answer.toString("hex"))).toBe(true);
  }
}

/** A watcher of a topic that must stay quiet. */
async function watcher(filter: string): Promise<RawClient> {
  const { client } = await broker().connect("watcher", { level: 4 });
  client.send(subscribe4(1, [[filter, 0]]));
  await client.expect("suback");
  return client;
}

/** A CONNECT of 3.1.1 or 5 with flags and what follows the client identifier. */
const flagged = (level: 4 | 5, flags: number, ...rest: (string | Uint8Array)[]): Buffer =>
  connect({ level, flags, rest });

describe("the first packet", () => {
  test.each([
    ["PUBLISH", publish("a", "x")],
    ["PINGREQ", bytes("c000")],
    ["SUBSCRIBE", subscribe4(1, [["a", 0]])],
    ["DISCONNECT", bytes("e000")],
    ["AUTH", packet("f0", "18 00")],
    ["no MQTT at all", Buffer.from("GET / HTTP/1.1\r\n\r\n")],
  ])("[3.1.0-1] is CONNECT, else the connection ends without an answer: %s", async (_n, sent) => {
    const client = await broker().raw();
    client.send(sent);
    await expectNoAnswer(client);
  });

  test("[3.1.0-2] a second CONNECT is a protocol error", async () => {
    for (const level of [5, 4] as const) {
      const { client } = await broker().connect("second", { level });
      client.send(connect({ level, clientId: "second" }));
      await client.expectRefused(0x82);
    }
  });

  test.each(["MQTTX", "mqtt", "MQIsdx", "", "HTTP"])(
    "[3.1.2-1] a wrong protocol name ends the connection: %j",
    async (name) => {
      for (const level of ["05 02 0000 00", "04 02 0000", "03 02 0000"]) {
        const client = await broker().raw();
        client.send(packet("10", field(name), level, field("c")));
        for (const { bytes: answer } of await client.expectClosed()) {
          expect([answer[0], answer[3] === 0]).toEqual([0x20, false]);
        }
      }
    },
  );

  test("[3.1.2-2] [311:3.1.2-2] an unsupported level is answered in the form of its neighbour", async () => {
    await refusal(packet("10", field("MQTT"), "06 02 0000 00", field("c")), 0x84);
    const client = await broker().raw(4);
    client.send(packet("10", field("MQTT"), "01 02 0000", field("c")));
    const frames = await client.expectClosed();
    for (const frame of frames) expect(frame.bytes).toEqual(bytes("20 02 00 01"));
  });

  test("bridge levels 131 and 132 and level 3 are served", async () => {
    for (const level of [0x83, 0x84]) {
      const client = await broker().raw(4);
      const name = level === 0x83 ? "MQIsdp" : "MQTT";
      client.send(packet("10", field(name), Buffer.from([level]), "02 0000", field("bridge")));
      await client.expectBytes("20 02 00 00");
    }
    const { client } = await broker().connect("old", { level: 3 });
    await client.expectNothing();
  });
});

describe("connect flags", () => {
  test("[3.1.2-3] the reserved bit is 0", async () => {
    for (const level of [5, 4] as const) {
      const client = await broker().raw(level);
      client.send(flagged(level, 0x03));
      const frames = await client.expectClosed();
      for (const { bytes: answer } of frames) expect(answer.subarray(2, 4)).toEqual(bytes("0081"));
    }
  });

  const will = (level: 4 | 5): (string | Uint8Array)[] => [
    level === 5 ? "00" : "",
    field("w"),
    field("gone"),
  ];

  test.each([
    ["[3.1.2-11] Will QoS without a will", 0x0a, false],
    ["[3.1.2-13] Will Retain without a will", 0x22, false],
    ["[3.1.2-12] Will QoS 3", 0x1e, true],
  ] as const)("%s is malformed", async (_name, flags, hasWill) => {
    for (const level of [5, 4] as const) {
      const client = await broker().raw(level);
      client.send(flagged(level, flags, ...(hasWill ? will(level) : [])));
      const frames = await client.expectClosed();
      if (level === 5) expect(frames[0]?.bytes.subarray(2, 4)).toEqual(bytes("0081"));
    }
  });

  test.each([
    ["[3.1.2-16] a user name that is not flagged", 0x02, [field("u")]],
    ["[3.1.2-17] a flagged user name that is missing", 0x82, []],
    ["[3.1.2-18] a password that is not flagged", 0x82, [field("u"), field("p")]],
    ["[3.1.2-19] a flagged password that is missing", 0xc2, [field("u")]],
  ] as const)("%s is malformed", async (_name, flags, rest) => {
    for (const level of [5, 4] as const) {
      const client = await broker().raw(level);
      client.send(flagged(level, flags, ...rest));
      const frames = await client.expectClosed();
      if (level === 5) expect(frames[0]?.bytes.subarray(2, 4)).toEqual(bytes("0081"));
    }
  });

  test("[311:3.1.2-22] a password without a user name: refused in 3.1.1, taken in 5", async () => {
    const old = await broker().raw(4);
    old.send(flagged(4, 0x42, field("p")));
    for (const frame of await old.expectClosed()) expect(frame.bytes[3]).not.toBe(0);
    const client = await broker().raw(5);
    client.send(flagged(5, 0x42, field("p")));
    expect((await client.expect("connack")).reasonCode).toBe(0);
  });

  test("[3.1.3-1] the payload is read in its order", async () => {
    const watch = await watcher("will/order");
    const client = await broker().raw(5);
    const rest = ["00", field("will/order"), field("gone"), field("user"), field("secret")];
    client.send(flagged(5, 0xc6, ...rest));
    expect((await client.expect("connack")).reasonCode).toBe(0);
    client.drop();
    await watch.expectBytes(publish("will/order", "gone"));
  });
});

describe("client identifiers", () => {
  test("[3.1.3-5] 1 to 23 letters and digits are taken", async () => {
    const ids = ["0", "abcdefghijklmnopqrstuvw", "XYZABCDEFGHIJKLMNOPQRST", "0123456789"];
    for (const clientId of ids) {
      for (const level of [5, 4] as const) await broker().connect(clientId, { level });
    }
  });

  test("[3.1.3-6] [3.1.3-7] [3.2.2-16] an empty one is assigned a unique one", async () => {
    const assigned = new Set<string>();
    for (const clean of [true, false]) {
      for (let n = 0; n < 3; n++) {
        const client = await broker().raw();
        client.send(connect({ clientId: "", clean }));
        const { properties: told } = await client.expect("connack");
        assigned.add(told?.assignedClientIdentifier ?? "");
      }
    }
    expect(assigned.size).toBe(6);
    expect(assigned.has("")).toBe(false);
    const [clientId = ""] = assigned;
    const { connack } = await broker().connect(clientId);
    expect(connack.properties?.assignedClientIdentifier).toBeUndefined();
  });

  test("[311:3.1.3-7] [311:3.1.3-8] an empty one needs Clean Session 1 in 3.1.1", async () => {
    const client = await broker().raw(4);
    client.send(connect({ level: 4, clientId: "", clean: false }));
    await client.expectBytes("20 02 00 02");
    await expectNoAnswer(client);
    await broker().connect("", { level: 4 });
  });

  test("[3.1.3-8] one that is too long is refused", async () => {
    await refusal(connect({ clientId: "x".repeat(2000) }), 0x85);
    await refusal(connect({ level: 4, clientId: "x".repeat(2000) }), 0x02, 4);
  });
});

describe("acceptance", () => {
  test("[3.1.4-1] nothing of a bad CONNECT takes effect", async () => {
    const watch = await watcher("bad/will");
    const { client: first } = await broker().connect("victim");
    const client = await broker().raw(5);
    // Right up to the last field: a password longer than the packet.
    const rest = ["00", field("bad/will"), field("gone"), field("u"), "0009", "70"];
    client.send(connect({ clientId: "victim", flags: 0xc6, rest }));
    await expectConnackRefusal(client, 0x81);
    await first.expectNothing();
    await watch.expectNothing();
  });

  test("[3.1.4-3] [311:3.1.4-2] the older connection of a client identifier gets 0x8E and ends", async () => {
    const { client: old5 } = await broker().connect("twin", { level: 5 });
    const { client: old4 } = await broker().connect("twin", { level: 4 });
    await old5.expectBytes("e0 01 8e");
    expect(await old5.expectClosed()).toEqual([]);
    await broker().connect("twin", { level: 5 });
    await expectNoAnswer(old4);
  });

  test("[3.1.4-5] [3.2.0-1] [3.2.0-2] CONNACK comes first, and once", async () => {
    const { client: first } = await broker().resume("ordered", { level: 4 });
    first.send(subscribe4(1, [["ordered", 1]]));
    await first.expect("suback");
    await first.close();
    const { client: publisher } = await broker().connect("p", { level: 4 });
    publisher.send(publish("ordered", "x", { qos: 1, id: 1 }));
    await publisher.expect("puback");
    const client = await broker().raw(4);
    client.send(bytes(connect({ level: 4, clientId: "ordered", clean: false }), "c000"));
    await client.expectBytes("20 02 01 00");
    const kinds = [(await client.next()).type, (await client.next()).type];
    expect(kinds.sort()).toEqual([13, 3].sort());
    await client.expectNothing();
  });

  test("[3.1.4-6] what is pipelined behind a refused CONNECT does not take effect", async () => {
    const watch = await watcher("sneak");
    const client = await broker().raw(4);
    const refused = connect({ level: 4, clientId: "", clean: false });
    client.send(bytes(refused, publish("sneak", "x"), publish("sneak", "y", { qos: 1, id: 1 })));
    await client.expectBytes("20 02 00 02");
    await expectNoAnswer(client);
    await watch.expectNothing();
  });

  test("packets pipelined behind CONNECT are processed after acceptance", async () => {
    for (const clean of [true, false]) {
      const client = await broker().raw(4);
      const clientId = `pipelined ${clean}`;
      const sent = [subscribe4(1, [["pipe", 1]]), publish("pipe", "x", { qos: 1, id: 2 })];
      client.send(bytes(connect({ level: 4, clientId, clean }), ...sent, "c000"));
      await client.expectBytes("20 02 00 00");
      await expectInAnyOrder(client, "9003000101", "40020002", "d000");
    }
  });

  const present = "[3.2.2-1] [3.2.2-2] [3.2.2-3] [311:3.2.2-1] [311:3.2.2-2] [311:3.2.2-3]";

  test(`${present} Session Present is 1 exactly when a session goes on`, async () => {
    for (const level of [5, 4] as const) {
      const clientId = `present ${level}`;
      const flag = async (clean: boolean): Promise<number | undefined> => {
        const client = await broker().raw(level);
        const props = level === 5 ? "1100000e10" : "";
        client.send(connect({ level, clientId, clean, properties: props }));
        const { bytes: connack } = await client.next();
        await client.close();
        return connack[2];
      };
      expect(await flag(false)).toBe(0);
      expect(await flag(false)).toBe(1);
      expect(await flag(true)).toBe(0);
      expect(await flag(false)).toBe(level === 5 ? 1 : 0);
    }
  });

  test("[3.2.2-6] [3.2.2-7] a refusal has Session Present 0 and ends the connection", async () => {
    await broker().resume("refused");
    const client = await broker().raw(5);
    // An authentication method that is not offered.
    client.send(connect({ clientId: "refused", clean: false, properties: "15 0001 6d" }));
    await expectConnackRefusal(client, 0x8c);
  });

  test("[4.12.0-1] an authentication method that is not offered is refused with 0x8C", async () => {
    await refusal(connect({ properties: "15 0003 616263" }), 0x8c);
  });

  test("Authentication Data without a method is a protocol error", async () => {
    await refusal(connect({ properties: "16 0001 6d" }), 0x82);
  });

  test("[4.12.0-6] without a method in CONNECT there is none in CONNACK, and no AUTH", async () => {
    const { client, connack } = await broker().connect("plain");
    expect(connack.properties?.authenticationMethod).toBeUndefined();
    expect(connack.properties?.authenticationData).toBeUndefined();
    await client.expectNothing();
  });

  test("[3.15.1-1] AUTH with flags is malformed", async () => {
    const { client } = await broker().connect("auth flags");
    client.send(packet("f2", "18", properties("15 0001 6d")));
    await client.expectRefused(0x81);
  });

  test("[4.12.0-7] AUTH on a connection without a method is a protocol error", async () => {
    const { client } = await broker().connect("auth");
    client.send(packet("f0", "18", properties("15 0001 6d")));
    await client.expectRefused(0x82);
  });

  test("[3.2.2-19] a reason that does not fit the client's Maximum Packet Size is left out", async () => {
    const client = await broker().raw(5);
    client.send(connect({ properties: "27 00000020 15 0001 6d" }));
    const [connack] = await client.expectClosed();
    expect(connack?.bytes.length).toBeLessThanOrEqual(32);
    expect(connack?.bytes[3]).toBe(0x8c);
  });

  test("[3.2.2-22] without Server Keep Alive the client's value holds", async () => {
    const { connack } = await broker().connect("ka", { connect: { keepalive: 17 } });
    expect(connack.properties?.serverKeepAlive).toBeUndefined();
  });

  test("[3.1.2-28] Response Information comes only if asked for", async () => {
    const { connack } = await broker().connect("ri");
    expect(connack.properties?.responseInformation).toBeUndefined();
  });

  test("[3.1.2-29] without problem information a refusal has no words, with it it has", async () => {
    const refused = subscribe5(1, [["a/#/b", 0]]);
    const quiet = await broker().connect("rpi", {
      connect: { properties: { requestProblemInformation: false } },
    });
    quiet.client.send(refused);
    await quiet.client.expectBytes("90 04 0001 00 8f");
    const { client } = await broker().connect("rpi default");
    client.send(refused);
    const { properties: told } = await client.expect("suback");
    expect(told?.reasonString).toMatch(/hash/);
  });

  test("what CONNACK announces is listed", async () => {
    const { connack } = await broker().connect("announced", { expiryS: 0xffffffff });
    const { properties: told } = connack;
    expect(told?.receiveMaximum).toBe(1000);
    expect(told?.topicAliasMaximum).toBe(16);
    expect(told?.maximumPacketSize).toBe(8 * 1024 * 1024);
    // Seven days at most.
    expect(told?.sessionExpiryInterval).toBe(604_800);
    expect(told?.retainAvailable ?? true).toBe(true);
    expect(told?.maximumQoS ?? 2).toBe(2);
    expect(told?.wildcardSubscriptionAvailable ?? true).toBe(true);
    expect(told?.subscriptionIdentifiersAvailable ?? true).toBe(true);
  });

  test("CONNECT with 5000 user properties is refused quickly", async () => {
    const client = await broker().raw(5);
    const started = performance.now();
    client.send(connect({ properties: "26 0001 61 0001 62".repeat(5000) }));
    const frames = await client.expectClosed();
    expect(performance.now() - started).toBeLessThan(2000);
    for (const frame of frames) expect(frame.bytes[3]).toBeGreaterThanOrEqual(0x80);
  });

  test("[4.2.0-1] packets may be split over any number of reads", async () => {
    const client = await broker().raw(4);
    const all = bytes(
      connect({ level: 4, clientId: "split" }),
      subscribe4(1, [["split", 1]]),
      publish("split", "x", { qos: 1, id: 2 }),
      "c000",
    );
    for (const byte of all) {
      client.send(Buffer.from([byte]));
      await new Promise((resolve) => setImmediate(resolve));
    }
    await client.expectBytes("20 02 00 00");
    await expectInAnyOrder(client, "9003000101", "40020002", "d000");
    // And in two parts, wherever they are parted.
    const halves = [...all.keys()].slice(1).map(async (at) => {
      const half = await broker().raw(4);
      const clientId = `split${at}`.slice(-5);
      const sent = Buffer.from(all);
      sent.write(clientId, sent.indexOf("split"));
      half.send(sent.subarray(0, at));
      await new Promise((resolve) => setTimeout(resolve, 30));
      half.send(sent.subarray(at));
      await half.expectBytes("20 02 00 00");
      await expectInAnyOrder(half, "9003000101", "40020002", "d000");
    });
    await Promise.all(halves);
  });
});

describe("wills", () => {
  const willOf = (topic: string, payload = "gone", props = ""): (string | Uint8Array)[] => [
    properties(props),
    field(topic),
    field(payload),
  ];

  test("[3.1.2-7] [3.1.2-8] published when the connection ends without DISCONNECT", async () => {
    const watch = await watcher("w/1");
    const client = await broker().raw(5);
    client.send(connect({ clientId: "w1", flags: 0x06, rest: willOf("w/1") }));
    await client.expect("connack");
    client.drop();
    await watch.expectBytes(publish("w/1", "gone"));
  });

  test("[3.1.2-10] [3.14.4-3] DISCONNECT 0x00 deletes it, 0x04 does not", async () => {
    const watch = await watcher("w/2");
    for (const sent of ["e000", "e00100", "e00104"]) {
      const client = await broker().raw(5);
      const rest = willOf("w/2", `after ${sent}`);
      client.send(connect({ clientId: "w2", flags: 0x06, rest }));
      await client.expect("connack");
      client.send(sent);
      await client.expectClosed();
    }
    await watch.expectBytes(publish("w/2", "after e00104"));
    await watch.expectNothing();
  });

  test("[3.1.2-14] [3.1.2-15] Will Retain decides whether it is kept", async () => {
    const watch = await watcher("w/3/#");
    for (const [flags, topic] of [
      [0x06, "w/3/not"],
      [0x26, "w/3/kept"],
    ] as const) {
      const client = await broker().raw(5);
      client.send(connect({ clientId: "w3", flags, rest: willOf(topic) }));
      await client.expect("connack");
      client.drop();
      await watch.expectBytes(publish(topic, "gone"));
    }
    const { client } = await broker().connect("w3 late", { level: 4 });
    client.send(subscribe4(1, [["w/3/#", 0]]));
    await client.expect("suback");
    await client.expectBytes(publish("w/3/kept", "gone", { retain: true }));
    await client.expectNothing();
  });

  test("[3.1.3-10] its properties are forwarded, user properties in their order", async () => {
    const { client: watch } = await broker().connect("w4 watch");
    watch.send(subscribe5(1, [["w/4", 0]]));
    await watch.expect("suback");
    const props = "01 01 03 0001 74 26 0001 62 0001 31 26 0001 61 0001 32";
    const client = await broker().raw(5);
    client.send(connect({ clientId: "w4", flags: 0x06, rest: willOf("w/4", "gone", props) }));
    await client.expect("connack");
    client.drop();
    await watch.expectBytes(publish5("w/4", "gone", { properties: props }));
  });

  test.each(["", "w/+", "w/#"])(
    "[3.1.3-11] its topic is no wildcard and not empty: %j",
    async (t) => {
      const client = await broker().raw(5);
      client.send(connect({ clientId: "w5", flags: 0x06, rest: willOf(t) }));
      const [connack] = await client.expectClosed();
      expect(connack?.bytes[2]).toBe(0);
      expect([0x81, 0x82, 0x90]).toContain(connack?.bytes[3]);
    },
  );

  test("a zero-length will payload is legal", async () => {
    const watch = await watcher("w/6");
    const client = await broker().raw(5);
    client.send(connect({ clientId: "w6", flags: 0x06, rest: willOf("w/6", "") }));
    await client.expect("connack");
    client.drop();
    await watch.expectBytes(publish("w/6", ""));
  });

  test("a refused connection publishes no will", async () => {
    const watch = await watcher("w/7");
    const client = await broker().raw(5);
    const parts = { clientId: "w7", flags: 0x06, properties: "15 0001 6d", rest: willOf("w/7") };
    client.send(connect(parts));
    await expectConnackRefusal(client, 0x8c);
    await watch.expectNothing();
  });

  test("takeover ends the old connection without DISCONNECT: its will is published", async () => {
    const watch = await watcher("w/8");
    const rest = [field("w/8"), field("gone")];
    const old = await broker().raw(4);
    old.send(connect({ level: 4, clientId: "w8", flags: 0x06, rest }));
    await old.expect("connack");
    await broker().connect("w8", { level: 4 });
    await watch.expectBytes(publish("w/8", "gone"));
    await watch.expectNothing();
  });
});
