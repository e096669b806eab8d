import { describe, expect, test } from "vitest";
import { encodePacket, type Packet, type Properties } from "../../../src/mqtt/index.ts";
import { client3, client4, client5, decodeOne, hex, server4, server5 } from "./support.ts";

const everyPublishProperty: Properties = {
  payloadFormat: 1,
  messageExpiryS: 60,
  contentType: "text/plain",
  responseTopic: "answer/here",
  correlationData: Buffer.from([1, 2, 3]),
  topicAlias: 7,
  userProperties: [
    ["k", "1"],
    ["a", "2"],
    ["k", "1"],
  ],
};

const fromClient5: Packet[] = [
  {
    type: "connect",
    level: 5,
    bridge: false,
    clientId: "c",
    cleanStart: true,
    keepAliveS: 60,
    will: {
      topic: "w",
      payload: Buffer.alloc(0),
      qos: 2,
      retain: true,
      properties: {
        willDelayS: 0,
        payloadFormat: 0,
        messageExpiryS: 1,
        contentType: "",
        responseTopic: "r",
        correlationData: Buffer.from("x"),
        userProperties: [["", ""]],
      },
    },
    userName: "u",
    password: Buffer.from("p"),
    properties: {
      sessionExpiryS: 0xffffffff,
      receiveMaximum: 1,
      maximumPacketSize: 0xffffffff,
      topicAliasMaximum: 0,
      requestResponseInformation: true,
      requestProblemInformation: false,
      userProperties: [["n", "v"]],
      authenticationMethod: "m",
      authenticationData: Buffer.alloc(3),
    },
  },
  {
    type: "publish",
    topic: "t",
    payload: Buffer.from("hello"),
    qos: 1,
    dup: true,
    retain: true,
    packetId: 65535,
    properties: everyPublishProperty,
  },
  {
    type: "puback",
    packetId: 1,
    reasonCode: 0x10,
    properties: { reasonString: "nobody", userProperties: [["a", "b"]] },
  },
  { type: "pubrec", packetId: 1, reasonCode: 0x97, properties: {} },
  { type: "pubrel", packetId: 1, reasonCode: 0x92, properties: {} },
  { type: "pubcomp", packetId: 1, reasonCode: 0, properties: { reasonString: "ok" } },
  {
    type: "subscribe",
    packetId: 3,
    filters: [
      {
        filter: "a/#",
        options: { qos: 2, noLocal: true, retainAsPublished: true, retainHandling: 2 },
      },
      {
        filter: "$share/g/+",
        options: { qos: 0, noLocal: false, retainAsPublished: false, retainHandling: 0 },
      },
    ],
    properties: { subscriptionIdentifiers: [268435455], userProperties: [["x", "y"]] },
  },
  {
    type: "unsubscribe",
    packetId: 3,
    filters: ["a/#", "b"],
    properties: { userProperties: [["x", "y"]] },
  },
  { type: "pingreq" },
  {
    type: "disconnect",
    reasonCode: 4,
    properties: { sessionExpiryS: 9, reasonString: "bye", userProperties: [["x", "y"]] },
  },
  {
    type: "auth",
    reasonCode: 0x18,
    properties: { authenticationMethod: "m", authenticationData: Buffer.from("d") },
  },
];

const fromServer5: Packet[] = [
  {
    type: "connack",
    sessionPresent: true,
    reasonCode: 0,
    properties: {
      sessionExpiryS: 1,
      receiveMaximum: 2,
      maximumQos: 1,
      retainAvailable: false,
      maximumPacketSize: 100,
      assignedClientId: "auto-1",
      topicAliasMaximum: 3,
      reasonString: "r",
      userProperties: [["a", "b"]],
      wildcardSubscriptionAvailable: true,
      subscriptionIdentifiersAvailable: true,
      sharedSubscriptionAvailable: false,
      serverKeepAliveS: 4,
      responseInformation: "i",
      serverReference: "s",
      authenticationMethod: "m",
      authenticationData: Buffer.from("d"),
    },
  },
  {
    type: "publish",
    topic: "t",
    payload: Buffer.alloc(0),
    qos: 0,
    dup: false,
    retain: false,
    packetId: 0,
    properties: { subscriptionIdentifiers: [3, 1, 3, 200_000] },
  },
  {
    type: "suback",
    packetId: 3,
    reasonCodes: [0, 1, 2, 0x80, 0x87, 0xa2],
    properties: { reasonString: "r" },
  },
  {
    type: "unsuback",
    packetId: 3,
    reasonCodes: [0, 0x11, 0x8f],
    properties: { userProperties: [["a", "b"]] },
  },
  { type: "pingresp" },
  {
    type: "disconnect",
    reasonCode: 0x9c,
    properties: { serverReference: "other", reasonString: "r" },
  },
  { type: "auth", reasonCode: 0, properties: { authenticationMethod: "m" } },
];

describe("every packet survives encoding and decoding with all its properties", () => {
  for (const packet of fromClient5) {
    test(`MQTT 5, from a client: ${packet.type}`, () => {
      expect(decodeOne(encodePacket(packet, 5), client5)).toEqual(packet);
    });
  }
  for (const packet of fromServer5) {
    test(`MQTT 5, from a server: ${packet.type}`, () => {
      expect(decodeOne(encodePacket(packet, 5), server5)).toEqual(packet);
    });
  }
  for (const packet of [...fromClient5, ...fromServer5]) {
    if (packet.type === "auth" || packet.type === "connack") continue;
    if (packet.type === "connect" || packet.type === "disconnect") continue;
    test(`MQTT 3.1.1 leaves out what it has no form for: ${packet.type}`, () => {
      const context = fromClient5.includes(packet) ? client4 : server4;
      const bytes = encodePacket(packet, 4);
      const decoded = decodeOne(bytes, context);
      expect(decoded.type).toBe(packet.type);
      expect(encodePacket(decoded, 4)).toEqual(bytes);
    });
  }
});

describe("bytes as they stand in the standards", () => {
  const cases: Array<[string, string, Parameters<typeof decodeOne>[1], unknown]> = [
    [
      "CONNECT of MQTT 3.1",
      "100f 0006 4d5149736470 03 02 003c 0001 61",
      client4,
      { type: "connect", level: 3, bridge: false, clientId: "a", cleanStart: true },
    ],
    [
      "CONNECT of a 3.1.1 bridge (level 132)",
      "100d 0004 4d515454 84 00 003c 0001 61",
      client4,
      { type: "connect", level: 4, bridge: true, cleanStart: false },
    ],
    [
      "CONNECT of a 3.1 bridge (level 131)",
      "100f 0006 4d5149736470 83 02 003c 0001 61",
      client4,
      { type: "connect", level: 3, bridge: true },
    ],
    [
      "CONNECT 5 without client identifier, Clean Start 0",
      "100d 0004 4d515454 05 00 003c 00 0000",
      client4,
      { type: "connect", level: 5, clientId: "", cleanStart: false, properties: {} },
    ],
    [
      "CONNECT 5 with a password and no user name",
      "1010 0004 4d515454 05 42 003c 00 0000 0001 70",
      client4,
      { type: "connect", password: Buffer.from("p") },
    ],
    ["PUBACK 5 without reason", "4002 0001", client5, { packetId: 1, reasonCode: 0 }],
    ["PUBACK 5 without properties", "4003 0001 10", client5, { packetId: 1, reasonCode: 16 }],
    ["PUBACK 5 with property length 0", "4004 0001 1000", client5, { packetId: 1, reasonCode: 16 }],
    ["DISCONNECT 5 of length 0", "e000", client5, { type: "disconnect", reasonCode: 0 }],
    ["DISCONNECT 5 of length 1", "e001 04", client5, { type: "disconnect", reasonCode: 4 }],
    ["DISCONNECT 3.1.1", "e000", client4, { type: "disconnect", reasonCode: 0 }],
    [
      "SUBSCRIBE of MQTT 3.1 with DUP",
      "8a06 0001 0001 61 01",
      client3,
      { type: "subscribe", packetId: 1 },
    ],
    ["PUBREL of MQTT 3.1 with DUP", "6a02 0001", client3, { type: "pubrel", packetId: 1 }],
    [
      "topic of one space",
      "3003 0001 20",
      client4,
      { type: "publish", topic: " ", payload: Buffer.alloc(0) },
    ],
    [
      "a BOM is a character",
      "3006 0004 efbbbf61",
      client4,
      { type: "publish", topic: "\u{feff}a" },
    ],
    ["U+10FFFF", "3006 0004 f48fbfbf", client4, { type: "publish", topic: "\u{10ffff}" }],
    ["control characters are legal by default", "3005 0003 610a7f", client4, { topic: "a\n\x7f" }],
    [
      "PUBLISH 5 with an alias only",
      "3007 0000 03 230001 78",
      client5,
      { type: "publish", topic: "", properties: { topicAlias: 1 } },
    ],
  ];
  for (const [name, bytes, context, expected] of cases) {
    test(name, () => expect(decodeOne(hex(bytes), context)).toMatchObject(expected as object));
  }

  test("a decoded packet owns its bytes", () => {
    const bytes = encodePacket(fromClient5[0]!, 5);
    const packet = decodeOne(bytes, client5);
    bytes.fill(0xff);
    expect(packet).toEqual(fromClient5[0]);
  });
});

describe("what the wire cannot carry is refused when encoding", () => {
  const publish = { type: "publish", topic: "t", payload: Buffer.alloc(0), qos: 1 } as const;
  const base = { ...publish, dup: false, retain: false, packetId: 1, properties: {} } as const;
  const cases: Array<[string, Packet]> = [
    ["a topic above 65,535 bytes", { ...base, topic: "x".repeat(65_536) }],
    ["U+0000", { ...base, topic: "a\0b" }],
    ["half a surrogate pair", { ...base, topic: "a\ud800b" }],
    ["packet id 0 at QoS 1", { ...base, packetId: 0 }],
    ["a property of another packet", { ...base, properties: { willDelayS: 1 } }],
    ["alias 0", { ...base, properties: { topicAlias: 0 } }],
  ];
  for (const [name, packet] of cases) {
    test(name, () =>
      expect(() => encodePacket(packet, 5)).toThrow(
        expect.objectContaining({ code: "MQTT_PACKET_UNENCODABLE" }),
      ),
    );
  }
});
