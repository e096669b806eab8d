// Encoding and the fixed header.

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
  u16,
} from "../support/mqtt-bytes.ts";
import type { ProtocolLevel, RawClient } from "../support/raw-client.ts";

const broker = sharedBroker();
const malformed = 0x81;
const protocolError = 0x82;

async function connected(level: ProtocolLevel = 5): Promise<RawClient> {
  const { client } = await broker().connect("encoding", { level });
  return client;
}

/** Sent on an open connection it ends that connection, for this reason. */
async function expectEnd(level: ProtocolLevel, sent: Uint8Array, reason: number): Promise<void> {
  const client = await connected(level);
  client.send(sent);
  await client.expectRefused(reason);
}

const surrogate = bytes("eda080");
const topicOf = (name: Uint8Array): Buffer => packet("30", u16(name.length), name, "00");

describe("strings", () => {
  test.each([
    ["a surrogate", surrogate],
    ["an overlong form", bytes("c0af")],
    ["a lone continuation byte", bytes("80")],
    ["a cut sequence", bytes("e282")],
    ["a code point above U+10FFFF", bytes("f4908080")],
  ])("[1.5.4-1] ill-formed UTF-8 ends the connection: %s", async (_name, name) => {
    await expectEnd(5, topicOf(name), malformed);
    await expectEnd(4, packet("30", u16(name.length), name), malformed);
  });

  test("[1.5.4-1] ill-formed UTF-8 in a client identifier, a filter and a property", async () => {
    const client = await broker().raw();
    const body = [field("MQTT"), "05 02 0000 00", u16(3), surrogate];
    client.send(packet("10", ...body));
    const frames = await client.expectClosed();
    for (const { bytes: answer } of frames) expect(answer[3]).toBe(malformed);
    await expectEnd(5, packet("82", "0001 00", u16(3), surrogate, "00"), malformed);
    const type = properties("03", u16(3), surrogate);
    await expectEnd(5, packet("30", field("a"), type), malformed);
  });

  test("[1.5.4-2] U+0000 in any string ends the connection", async () => {
    await expectEnd(5, topicOf(bytes("610062")), malformed);
    await expectEnd(4, packet("30", u16(1), "00"), malformed);
    await expectEnd(5, packet("82", "0001 00", u16(2), "6100", "00"), malformed);
    await expectEnd(5, packet("30", field("a"), properties("26", u16(1), "00", u16(0))), malformed);
  });

  test("[1.5.4-2] other control characters are taken by default", async () => {
    const client = await connected();
    client.send(subscribe5(1, [["c/#", 0]]));
    await client.expect("suback");
    const sent = publish5("c/\u0001\u001f\u007f\u0085", "x");
    client.send(sent);
    await client.expectBytes(sent);
  });

  test("[1.5.4-3] U+FEFF is not stripped", async () => {
    const client = await connected();
    client.send(subscribe5(1, [["\ufeffbom", 0]]));
    await client.expect("suback");
    client.send(publish5("bom", "without"));
    const sent = publish5("\ufeffbom", "with");
    client.send(sent);
    await client.expectBytes(sent);
    await client.expectNothing();
  });
});

describe("variable byte integers", () => {
  test("[1.5.5-1] a remaining length in more bytes than needed is malformed", async () => {
    await expectEnd(5, bytes("c0 8000"), malformed);
    await expectEnd(4, bytes("c0 8000"), malformed);
    await expectEnd(5, bytes("30 8400 0001 61 00"), malformed);
  });

  test("[1.5.5-1] a remaining length of five bytes is malformed at its fourth", async () => {
    await expectEnd(5, bytes("30 ffffffff"), malformed);
    await expectEnd(4, bytes("30 80808080"), malformed);
  });

  test("[1.5.5-1] a property length or identifier in more bytes than needed", async () => {
    await expectEnd(5, packet("30", field("a"), "8000"), malformed);
    await expectEnd(5, packet("30", field("a"), "03 8100 00"), malformed);
    await expectEnd(5, packet("82", u16(1), "03 0b 8100", field("a"), "00"), malformed);
  });
});

describe("the fixed header", () => {
  test.each(["c1", "e1", "42", "51", "60", "63", "71", "80", "83", "a0", "f1"])(
    "[2.1.3-1] [311:2.2.2-1] [311:2.2.2-2] flags other than the listed ones are malformed: %s",
    async (first) => {
      const body = first === "c1" || first === "e1" ? "" : "0001";
      await expectEnd(5, packet(first, body), malformed);
      if (first !== "f1") await expectEnd(4, packet(first, body), malformed);
    },
  );

  test.each(["00", "20", "90", "b0", "d0"])(
    "a packet type that no client sends is a protocol error: %s",
    async (first) => {
      const body = first === "d0" || first === "00" ? "" : "0000";
      await expectEnd(5, packet(first, body), protocolError);
      await expectEnd(4, packet(first, body), protocolError);
    },
  );

  test("AUTH does not exist before MQTT 5", async () => {
    await expectEnd(4, packet("f0", "18 00"), protocolError);
  });
});

describe("packet identifiers", () => {
  test("[2.2.1-2] QoS 0 carries none: the two bytes are payload", async () => {
    const client = await connected(4);
    client.send(subscribe4(1, [["a", 0]]));
    await client.expect("suback");
    client.send(packet("30", field("a"), "0007"));
    const { payload, messageId } = await client.expect("publish");
    expect(messageId).toBeUndefined();
    expect(payload).toEqual(bytes("0007"));
  });

  test.each([
    ["PUBLISH QoS 1", packet("32", field("a"), "0000"), packet("32", field("a"), "0000 00")],
    ["PUBLISH QoS 2", packet("34", field("a"), "0000"), packet("34", field("a"), "0000 00")],
    ["SUBSCRIBE", subscribe4(0, [["a", 0]]), subscribe5(0, [["a", 0]])],
    ["UNSUBSCRIBE", packet("a2", "0000", field("a")), packet("a2", "0000 00", field("a"))],
    ["PUBREL", packet("62", "0000"), packet("62", "0000")],
    ["PUBACK", packet("40", "0000"), packet("40", "0000")],
  ])(
    "[2.2.1-3] [311:2.3.1-1] identifier 0 is a protocol error: %s",
    async (_name, before5, in5) => {
      await expectEnd(5, in5, protocolError);
      await expectEnd(4, before5, protocolError);
    },
  );

  test("[2.2.1-5] acks carry the identifier of what they acknowledge", async () => {
    const client = await connected(4);
    client.send(publish("a", "x", { qos: 1, id: 0x1234 }));
    await client.expectBytes("40 02 1234");
    client.send(publish("a", "x", { qos: 2, id: 0xffff }));
    await client.expectBytes("50 02 ffff");
    client.send("62 02 ffff");
    await client.expectBytes("70 02 ffff");
    client.send(subscribe4(0x0102, [["a", 1]]));
    await client.expectBytes("90 03 0102 01");
    client.send(packet("a2", "fffe", field("a")));
    await client.expectBytes("b0 02 fffe");
  });

  test("[2.2.1-6] identifiers of client and server are independent", async () => {
    const client = await connected(4);
    client.send(subscribe4(1, [["a", 1]]));
    await client.expect("suback");
    // The same identifier both ways, and the client's is free again at its PUBACK.
    client.send(publish("a", "x", { qos: 1, id: 1 }));
    await client.expectBytes("40 02 0001");
    await client.expectBytes(publish("a", "x", { qos: 1, id: 1 }));
    client.send(publish("a", "y", { qos: 1, id: 1 }));
    await client.expectBytes("40 02 0001");
    await client.expectBytes(publish("a", "y", { qos: 1, id: 2 }));
  });
});

describe("properties", () => {
  test("[2.2.2-1] a packet without a property length is malformed", async () => {
    await expectEnd(5, packet("30", field("a")), malformed);
    await expectEnd(5, packet("82", u16(1)), malformed);
    await expectEnd(5, packet("a2", u16(1)), malformed);
  });

  test("[2.2.2-1] what the broker sends has a property length, 0 when there are none", async () => {
    const client = await connected();
    client.send(subscribe5(7, [["a", 0]]));
    await client.expectBytes("90 04 0007 00 00");
    client.send(publish5("a", "x"));
    await client.expectBytes("30 05 0001 61 00 78");
    client.send(packet("a2", u16(8), "00", field("a")));
    await client.expectBytes("b0 04 0008 00 00");
  });

  test.each([
    ["Payload Format", "0100 0100"],
    ["Message Expiry", "0200000001 0200000001"],
    ["Content Type", "03000161 03000161"],
    ["Response Topic", "08000161 08000161"],
    ["Correlation Data", "09000161 09000161"],
    ["Topic Alias", "230001 230001"],
  ])("a property twice in PUBLISH is a protocol error: %s", async (_name, twice) => {
    await expectEnd(5, packet("30", field("a"), properties(twice)), protocolError);
  });

  test.each([
    ["Session Expiry", "1100000001 1100000001"],
    ["Receive Maximum", "210001 210001"],
    ["Maximum Packet Size", "2700000100 2700000100"],
    ["Topic Alias Maximum", "220001 220001"],
    ["Request Response Information", "1900 1900"],
    ["Request Problem Information", "1700 1700"],
  ])("a property twice in CONNECT is a protocol error: %s", async (_name, twice) => {
    await expectConnectRefused(twice, protocolError);
  });

  test("User Property may be repeated", async () => {
    const client = await connected();
    client.send(subscribe5(1, [["a", 0]]));
    await client.expect("suback");
    const sent = publish5("a", "x", { properties: "26000161000162 26000161000162 2600000000" });
    client.send(sent);
    await client.expectBytes(sent);
  });

  test.each([
    ["of another packet", "1100000001"],
    ["unknown", "7f00"],
    ["unknown, two bytes long", "8001 00"],
  ])("a property that PUBLISH does not have ends the connection: %s", async (_name, prop) => {
    const client = await connected();
    client.send(packet("30", field("a"), properties(prop)));
    const [answer] = await client.expectClosed();
    expect([malformed, protocolError]).toContain(answer?.bytes[2]);
  });

  test.each([
    ["Payload Format 2", packet("30", field("a"), properties("0102"))],
    ["Subscription Identifier 0", packet("82", u16(1), properties("0b00"), field("a"), "00")],
  ])("a value outside its range is a protocol error: %s", async (_name, sent) => {
    await expectEnd(5, sent, protocolError);
  });

  test.each([
    ["Request Problem Information 2", "1702"],
    ["Request Response Information 2", "1902"],
    ["Receive Maximum 0", "210000"],
    ["Maximum Packet Size 0", "2700000000"],
  ])("a value outside its range in CONNECT is a protocol error: %s", async (_name, prop) => {
    await expectConnectRefused(prop, protocolError);
  });

  async function expectConnectRefused(props: string, reason: number): Promise<void> {
    const client = await broker().raw();
    client.send(connect({ properties: props }));
    const [connack] = await client.expectClosed();
    expect(connack?.bytes[0]).toBe(0x20);
    expect(connack?.bytes.subarray(2, 4)).toEqual(Buffer.from([0, reason]));
  }
});

describe("bodies", () => {
  test.each([
    ["PUBACK of one byte", 5, packet("40", "00")],
    ["PUBACK with a byte too many", 4, packet("40", "0001 00")],
    ["PUBLISH shorter than its topic", 4, packet("30", "0005 61")],
    ["PUBLISH QoS 1 without its identifier", 4, packet("32", field("a"))],
    ["SUBSCRIBE with half a filter", 5, packet("82", "0001 00 0003 61")],
    ["SUBSCRIBE without options", 5, packet("82", "0001 00 0001 61")],
    ["PINGREQ with a body", 5, packet("c0", "00")],
    ["PUBLISH with properties longer than the packet", 5, packet("30", field("a"), "09 01")],
    ["UNSUBSCRIBE with a byte behind its filter", 5, packet("a2", "0001 00 0001 61 00")],
  ] as const)("longer or shorter than the fields is malformed: %s", async (_name, level, sent) => {
    await expectEnd(level, sent, malformed);
  });
});
