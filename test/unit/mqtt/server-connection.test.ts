import { describe, expect, test } from "vitest";
import {
  createFrame,
  describeFrame,
  encodePacket,
  type Packet,
  type SubscribeRequest,
} from "../../../src/mqtt/index.ts";
import {
  Conversation,
  connect4,
  connect5,
  connected,
  publishing,
  pubrel,
  withProperties,
} from "./conversation.ts";

const frame = createFrame({
  topic: "a/b",
  payload: Buffer.from("hello"),
  qos: 1,
  retain: false,
});
const sending = { qos: 1, dup: false, retain: false, packetId: 1 } as const;

describe("acks", () => {
  test("leave in order of arrival, however the commits finish", () => {
    const talk = connected();
    talk.say(publishing(1, 1), publishing(2, 2), publishing(1, 3), pubrel(9), publishing(1, 4));
    const [one, two, three, release, four] = talk.tokens as [number, ...number[]];
    for (const token of [four, three, release]) talk.connection.completeAck(token!);
    expect(talk.heardHex()).toBe("");
    talk.connection.completeAck(one);
    expect(talk.heardShort()).toEqual(["puback 1 0x0"]);
    talk.connection.completeAck(two!);
    expect(talk.heardShort()).toEqual([
      "pubrec 2 0x0",
      "puback 3 0x0",
      "pubcomp 9 0x0",
      "puback 4 0x0",
    ]);
    expect(talk.connection.acksOwed).toBe(0);
  });

  test("hundreds may be owed at once", () => {
    const talk = connected();
    for (let id = 1; id <= 500; id++) talk.say(publishing(1, id));
    for (const token of talk.tokens.slice(1).reverse()) talk.connection.completeAck(token);
    expect(talk.heardHex()).toBe("");
    talk.connection.completeAck(talk.tokens[0]!);
    expect(talk.heard().map((packet) => "packetId" in packet && packet.packetId)).toEqual(
      Array.from({ length: 500 }, (_, index) => index + 1),
    );
  });

  test("carry reasons in MQTT 5 and none before", () => {
    for (const [packet, expected] of [
      [connect5, "4003000110 5003000297 6202" + "0003"],
      [connect4, "40020001 50020002 62020003"],
    ] as const) {
      const talk = connected(packet);
      talk.say(publishing(1, 1), publishing(2, 2));
      talk.connection.completeAck(talk.tokens[0]!, 0x10);
      talk.connection.completeAck(talk.tokens[1]!, 0x97);
      talk.connection.sendPubrel(3);
      expect(talk.heardHex()).toBe(expected.replaceAll(" ", ""));
    }
  });

  test("a reason in words goes with its ack, behind those before it", () => {
    const talk = connected().say(publishing(1, 1), publishing(1, 2));
    talk.connection.completeAck(talk.tokens[1]!, 0x87, { reasonString: "no" });
    talk.connection.completeAck(talk.tokens[0]!);
    expect(talk.heard()).toEqual([
      { type: "puback", packetId: 1, reasonCode: 0, properties: {} },
      { type: "puback", packetId: 2, reasonCode: 0x87, properties: { reasonString: "no" } },
    ]);
  });

  test("hold up neither PINGRESP nor SUBACK", () => {
    const talk = connected().say(publishing(1, 1), { type: "pingreq" });
    talk.connection.suback(7, [1]);
    talk.connection.unsuback(8, [0x11]);
    expect(talk.heardShort()).toEqual(["pingresp", "suback 7", "unsuback 8"]);
  });

  test("SUBACK and UNSUBACK of 3.1.1 have its forms", () => {
    const talk = connected(connect4);
    talk.connection.suback(7, [2, 0x87, 0x8f]);
    talk.connection.unsuback(8, [0x11]);
    expect(talk.heardHex()).toBe("9005000702808" + "0" + "b0020008");
  });

  test("a PUBREL repeated after its PUBCOMP is answered again, and the connection stays", () => {
    for (const packet of [connect5, connect4]) {
      const talk = connected(packet).say(pubrel(5), pubrel(5));
      talk.connection.completeAck(talk.tokens[0]!);
      talk.connection.completeAck(talk.tokens[1]!, 0x92);
      const second = packet === connect5 ? "pubcomp 5 0x92" : "pubcomp 5 0x0";
      expect(talk.heardShort()).toEqual(["pubcomp 5 0x0", second]);
      expect(talk.end).toBeUndefined();
    }
  });

  test("finishing one twice is our bug", () => {
    const talk = connected().say(publishing(1, 1), publishing(1, 2));
    talk.connection.completeAck(talk.tokens[1]!);
    expect(() => talk.connection.completeAck(talk.tokens[1]!)).toThrow("twice");
    expect(() => talk.connection.completeAck(99)).toThrow("unknown");
  });
});

describe("our Receive Maximum", () => {
  const settings = { receiveMaximum: 1 };

  test("one message too many ends an MQTT 5 connection with 0x93", () => {
    const talk = connected(connect5, { settings }).say(publishing(2, 1), publishing(2, 2));
    expect(talk.heardShort()).toEqual(["disconnect 0x93"]);
    expect(talk.events).toEqual(["publish t x q2", "end protocol_error"]);
  });

  test("a QoS 2 message counts until PUBCOMP, a refused one until its PUBREC", () => {
    const talk = connected(connect5, { settings }).say(publishing(2, 1));
    talk.connection.completeAck(talk.tokens[0]!);
    talk.say(pubrel(1));
    talk.connection.completeAck(talk.tokens[1]!);
    talk.say(publishing(2, 2));
    talk.connection.completeAck(talk.tokens[2]!, 0x97);
    talk.say(publishing(1, 3));
    talk.connection.completeAck(talk.tokens[3]!);
    talk.say(publishing(2, 4));
    talk.connection.completeAck(talk.tokens[4]!);
    expect(talk.end).toBeUndefined();
    talk.say(publishing(1, 5));
    expect(talk.end?.reasonCode).toBe(0x93);
  });

  test("the same QoS 2 message again counts once; QoS 0 and PUBREL of old ids never", () => {
    const talk = connected(connect5, { settings });
    talk.say(publishing(2, 1), publishing(2, 1), publishing(0, 0), pubrel(77));
    expect(talk.end).toBeUndefined();
    expect(talk.tokens).toHaveLength(3);
  });

  test("PUBCOMP for an id that was not counted frees no slot, though it was taken since", () => {
    const talk = connected(connect5, { settings }).say(pubrel(1), publishing(2, 1));
    talk.connection.completeAck(talk.tokens[0]!, 0x92);
    talk.say(publishing(2, 2));
    expect(talk.heardShort()).toEqual(["pubcomp 1 0x92", "disconnect 0x93"]);
  });

  test("clients before MQTT 5 know none", () => {
    const talk = connected(connect4, { settings });
    talk.say(publishing(1, 1), publishing(2, 2), publishing(1, 3));
    expect(talk.end).toBeUndefined();
    expect(talk.connection.acksOwed).toBe(3);
  });
});

describe("topic aliases of the client", () => {
  test("are set, used, set anew; what is stored has the topic in full", () => {
    const talk = connected();
    talk.say(publishing(0, 0, "long/topic", { topicAlias: 1 }));
    talk.say(publishing(0, 0, "", { topicAlias: 1, messageExpiryS: 9 }));
    talk.say(publishing(0, 0, "other", { topicAlias: 1 }), publishing(0, 0, "", { topicAlias: 1 }));
    expect(talk.events.map((event) => event.split(" ")[1])).toEqual([
      "long/topic",
      "long/topic",
      "other",
      "other",
    ]);
    const [, second] = talk.stored;
    expect(describeFrame(second!.bytes, 5)).toMatchObject({ topic: "long/topic", topicAlias: 0 });
  });

  test("every alias up to our maximum is taken", () => {
    const talk = connected();
    for (let alias = 1; alias <= 16; alias++) {
      talk.say(publishing(0, 0, `t${alias}`, { topicAlias: alias }));
    }
    expect(talk.end).toBeUndefined();
  });

  test("0 and above the maximum are 0x94, one never set on this connection is 0x82", () => {
    for (const [bytes, answer] of [
      ["3007 0001 61 03 230000", "disconnect 0x94"],
      ["3007 0001 61 03 230011", "disconnect 0x94"],
      ["3006 0000 03 230001", "disconnect 0x82"],
    ] as const) {
      expect(connected().say(bytes).heardShort()).toEqual([answer]);
    }
    const none = connected(connect5, { settings: { topicAliasMaximum: 0 } });
    expect(none.say("3007 0001 61 03 230001").heardShort()).toEqual(["disconnect 0x94"]);
  });
});

describe("messages to the client", () => {
  test("use aliases from the first one on, as many as the client allows", () => {
    const talk = connected(withProperties({ topicAliasMaximum: 1 }));
    const other = createFrame({ topic: "c", payload: Buffer.alloc(0), qos: 0, retain: false });
    for (let turn = 0; turn < 2; turn++) {
      expect(talk.connection.sendPublish(frame, { ...sending, packetId: turn + 1 })).toBe("sent");
      talk.connection.sendPublish(other, { ...sending, qos: 0, packetId: 0, topic: "c" });
    }
    expect(talk.heard()).toMatchObject([
      { topic: "a/b", properties: { topicAlias: 1 } },
      { topic: "c", properties: {} },
      { topic: "", properties: { topicAlias: 1 } },
      { topic: "c", properties: {} },
    ]);
  });

  test("use none when the client allows none, before MQTT 5, and beyond our own cap", () => {
    for (const [packet, settings] of [
      [connect5, {}],
      [connect4, {}],
      [withProperties({ topicAliasMaximum: 9 }), { topicAliasMaximumOut: 0 }],
    ] as const) {
      const talk = connected(packet, { settings });
      talk.connection.sendPublish(frame, sending);
      talk.connection.sendPublish(frame, { ...sending, packetId: 2 });
      const seen = talk
        .heard()
        .map((sent) => sent.type === "publish" && [sent.topic, sent.properties]);
      expect(seen).toEqual([
        ["a/b", {}],
        ["a/b", {}],
      ]);
    }
  });

  test("above its Maximum Packet Size are not sent, and told to the owner", () => {
    const payload = Buffer.alloc(100);
    const packet = { ...publishing(1, 1, "a/b"), payload } as Packet;
    const sizeBytes = encodePacket(packet, 5).length;
    const large = createFrame({ topic: "a/b", payload, qos: 1, retain: false });
    for (const [limit, result] of [
      [sizeBytes, "sent"],
      [sizeBytes - 1, "too_large"],
    ] as const) {
      const talk = connected(withProperties({ maximumPacketSize: limit }));
      expect(talk.connection.sendPublish(large, sending)).toBe(result);
      expect(talk.heard()).toHaveLength(result === "sent" ? 1 : 0);
    }
  });

  test("that only an alias makes too large go without it, and the alias stays free", () => {
    const talk = connected(withProperties({ maximumPacketSize: 16, topicAliasMaximum: 5 }));
    expect(talk.connection.sendPublish(frame, sending)).toBe("sent");
    const short = createFrame({ topic: "s", payload: Buffer.alloc(0), qos: 1, retain: false });
    expect(talk.connection.sendPublish(short, { ...sending, packetId: 2 })).toBe("sent");
    expect(talk.heard()).toMatchObject([
      { topic: "a/b", properties: {} },
      { topic: "s", properties: { topicAlias: 1 } },
    ]);
  });

  test("the client's acks reach the owner with their reasons", () => {
    const talk = connected().say("40020001", "4003000210", "50020003", "5003000487", "70020003");
    talk.say("7003000592");
    expect(talk.events).toEqual([
      "puback 1 0",
      "puback 2 16",
      "pubrec 3 0",
      "pubrec 4 135",
      "pubcomp 3 0",
      "pubcomp 5 146",
    ]);
  });

  test("an ack for the wrong stage is the owner's to refuse", () => {
    const talk = connected();
    talk.connection.protocolError("PUBREC for a QoS 1 message");
    expect(talk.heard()).toMatchObject([
      { reasonCode: 0x82, properties: { reasonString: expect.stringContaining("PUBREC") } },
    ]);
  });
});

describe("SUBSCRIBE and UNSUBSCRIBE", () => {
  function request(packet: Packet, from = connect5): SubscribeRequest {
    const seen: SubscribeRequest[] = [];
    connected(from, { events: { onSubscribe: (item) => seen.push(item) } }).say(packet);
    return seen[0]!;
  }
  const options = { qos: 1, noLocal: false, retainAsPublished: false, retainHandling: 0 } as const;
  const subscribing = (...filters: string[]): Packet => ({
    type: "subscribe",
    packetId: 3,
    filters: filters.map((filter) => ({ filter, options })),
    properties: {},
  });

  test("filters arrive parsed, with options and identifier", () => {
    const found = request({
      ...subscribing("a/#", "$share/g/b/+"),
      properties: { subscriptionIdentifiers: [44] },
    } as Packet);
    expect(found).toMatchObject({ packetId: 3, subscriptionId: 44 });
    expect(found.filters[0]).toMatchObject({ text: "a/#", options, filter: { group: undefined } });
    expect(found.filters[1]).toMatchObject({ filter: { group: "g", filter: { text: "b/+" } } });
  });

  test("a filter of bad syntax or too many levels fails alone", () => {
    const deep = Array.from({ length: 129 }, () => "a").join("/");
    const found = request(subscribing("a/#/b", "ok", "a+", deep));
    expect(found.filters.map((item) => item.fault)).toEqual([
      "hash_not_last",
      undefined,
      "wildcard_not_alone",
      "too_many_levels",
    ]);
    expect(found.filters.map((item) => item.filter === undefined)).toEqual([
      true,
      false,
      true,
      true,
    ]);
  });

  test("a broken $share is malformed", () => {
    for (const filter of ["$share/", "$share/g", "$share/g/", "$share//a", "$share/+/a"]) {
      expect(connected().say(subscribing(filter)).heardShort()).toEqual(["disconnect 0x81"]);
      const removing: Packet = {
        type: "unsubscribe",
        packetId: 1,
        filters: [filter],
        properties: {},
      };
      expect(connected(connect4).say(removing).end?.reasonCode).toBe(0x81);
    }
  });

  test("a bridge of 3.1.1 gets No Local and Retain As Published", () => {
    const found = request(subscribing("a", "$share/g/a"), { ...connect4, bridge: true });
    expect(found.filters.map((item) => item.options)).toEqual([
      { ...options, noLocal: true, retainAsPublished: true },
      options,
    ]);
  });

  test("more filters in one packet than the limit are 0x97", () => {
    const talk = connected(connect5, { settings: { filtersMax: 2 } });
    talk.say(subscribing("a", "b"));
    expect(talk.end).toBeUndefined();
    talk.say(subscribing("a", "b", "c"));
    expect(talk.heardShort()).toEqual(["disconnect 0x97"]);
  });

  test("UNSUBSCRIBE arrives with its texts", () => {
    const talk = connected().say({
      type: "unsubscribe",
      packetId: 1,
      filters: ["a/#", "b"],
      properties: {},
    });
    expect(talk.events).toEqual(["unsubscribe a/# b"]);
  });
});

describe("keep alive", () => {
  const every10 = { ...connect5, keepAliveS: 10 };

  test("15 s without a packet end a connection of 10 s, with its will", () => {
    const talk = connected(every10).wait(14_999);
    expect(talk.end).toBeUndefined();
    expect(talk.connection.deadlineMs).toBe(talk.nowMs + 1);
    talk.wait(1);
    expect(talk.heardShort()).toEqual(["disconnect 0x8d"]);
    expect(talk.end).toMatchObject({ cause: "keep_alive", publishWill: true });
  });

  test("any packet starts it anew, part of one does not", () => {
    const talk = connected(every10).wait(9_000).say("c000").wait(9_000).say("c000").wait(14_000);
    expect(talk.end).toBeUndefined();
    talk.say("30 05 0001").wait(1_000);
    expect(talk.end?.cause).toBe("keep_alive");
  });

  test("3.1.1 is closed without a word", () => {
    const talk = connected({ ...connect4, keepAliveS: 10 }).wait(15_000);
    expect(talk.heardHex()).toBe("");
    expect(talk.end?.cause).toBe("keep_alive");
  });

  test("0 turns it off", () => {
    const talk = connected(connect5).wait(1e9);
    expect(talk.end).toBeUndefined();
    expect(talk.connection.deadlineMs).toBeUndefined();
  });

  test("stands still while the owner does not read", () => {
    const talk = connected(every10).wait(10_000);
    talk.connection.pauseKeepAlive(talk.nowMs);
    talk.wait(60_000);
    talk.connection.resumeKeepAlive(talk.nowMs);
    talk.wait(4_999);
    expect(talk.end).toBeUndefined();
    talk.wait(1);
    expect(talk.end?.cause).toBe("keep_alive");
  });

  test("a maximum is told to MQTT 5 clients; those of 3.1.1 keep their own", () => {
    const settings = { keepAliveMaxS: 60 };
    for (const [asked, granted] of [
      [0, 60],
      [61, 60],
      [60, undefined],
    ] as const) {
      const talk = new Conversation({ settings }).say({ ...connect5, keepAliveS: asked });
      const [connack] = talk.heard() as Array<{ properties: { serverKeepAliveS?: number } }>;
      expect(connack?.properties.serverKeepAliveS).toBe(granted);
      expect(talk.wait(90_000).end?.cause).toBe("keep_alive");
    }
    const old = connected({ ...connect4, keepAliveS: 100 }, { settings }).wait(149_999);
    expect(old.end).toBeUndefined();
    expect(old.wait(1).end?.cause).toBe("keep_alive");
  });

  test("the value the owner grants counts", () => {
    const onConnect = { sessionPresent: false, properties: { serverKeepAliveS: 2 } };
    const talk = connected(every10, { onConnect }).wait(2_999);
    expect(talk.end).toBeUndefined();
    expect(talk.wait(1).end?.cause).toBe("keep_alive");
  });
});

describe("the end", () => {
  test("DISCONNECT 0x00 ends without the will, 0x04 and every other end with it", () => {
    expect(connected().say("e000").end).toMatchObject({ publishWill: false, reasonCode: 0 });
    expect(connected(connect4).say("e000").end).toMatchObject({ publishWill: false });
    expect(connected().say("e00104").end).toMatchObject({
      cause: "client_disconnect",
      publishWill: true,
      reasonCode: 4,
    });
    const cut = connected();
    cut.connection.transportClosed();
    expect(cut.end).toMatchObject({ cause: "transport", publishWill: true });
    const before = new Conversation({ onConnect: "later" }).say(connect5);
    before.connection.transportClosed();
    expect(before.end).toMatchObject({ cause: "transport", publishWill: false });
  });

  test("DISCONNECT may change the session expiry, but not from zero", () => {
    const changed = connected(withProperties({ sessionExpiryS: 5 })).say("e007 00 05 1100000009");
    expect(changed.end).toMatchObject({ cause: "client_disconnect", sessionExpiryS: 9 });
    const toZero = connected(withProperties({ sessionExpiryS: 5 })).say("e007 00 05 1100000000");
    expect(toZero.end?.sessionExpiryS).toBe(0);
    const refused = connected().say("e007 00 05 1100000009");
    expect(refused.heardShort()).toEqual(["disconnect 0x82"]);
    expect(refused.end).toMatchObject({ cause: "protocol_error", publishWill: true });
  });

  test("a fault is told to MQTT 5 clients, others are closed; both are told why in the log", () => {
    const five = connected().say("3600");
    expect(five.heard()).toMatchObject([
      { type: "disconnect", reasonCode: 0x81, properties: { reasonString: expect.any(String) } },
    ]);
    const four = connected(connect4).say("3600");
    expect(four.heardHex()).toBe("");
    expect(four.end).toMatchObject({ cause: "protocol_error", reasonCode: 0x81 });
    expect(four.end?.error?.message).toContain("QoS 3");
  });

  test("packets before the fault in the same read count, those behind it do not", () => {
    const talk = connected().say(publishing(0, 0, "a"), "3600", publishing(0, 0, "b"));
    expect(talk.events).toEqual(["publish a x q0", "end protocol_error"]);
  });

  test("the owner ends it with a reason; 3.1.1 hears nothing", () => {
    const five = connected();
    five.connection.disconnect(0x8e, { reasonString: "elsewhere" });
    expect(five.heard()).toMatchObject([{ type: "disconnect", reasonCode: 0x8e }]);
    expect(five.end?.cause).toBe("server_disconnect");
    const four = connected(connect4);
    four.connection.disconnect(0x8e);
    expect(four.heardHex()).toBe("");
    expect(four.end?.cause).toBe("server_disconnect");
    const waiting = new Conversation({ onConnect: "later" }).say(connect5);
    waiting.connection.disconnect(0x8b);
    expect(waiting.heardShort()).toEqual(["connack 0x88"]);
    const old = new Conversation({ onConnect: "later" }).say(connect4);
    old.connection.disconnect(0x8b);
    expect(old.heardHex()).toBe("20020003");
  });

  test("after it nothing is read, sent or told, and late commands are harmless", () => {
    const talk = connected().say(publishing(1, 1));
    const { connection } = talk;
    connection.disconnect(0x98);
    talk.heardHex();
    const events = talk.events.length;
    talk.say(publishing(0, 0)).wait(1e9);
    connection.completeAck(talk.tokens[0]!);
    connection.suback(1, [0]);
    connection.sendPubrel(1);
    connection.disconnect(0x98);
    connection.protocolError("x");
    connection.acceptConnect({ sessionPresent: false }, talk.nowMs);
    connection.transportClosed();
    expect(connection.sendPublish(frame, sending)).toBe("ended");
    expect(talk.heardHex()).toBe("");
    expect(talk.events).toHaveLength(events);
  });

  test("an end inside an event stops the rest of the read", () => {
    const talk = connected(connect5, {
      events: { onPublish: () => talk.connection.disconnect(0x97) },
    });
    talk.say(publishing(0, 0), publishing(0, 0), { type: "pingreq" });
    expect(talk.heardShort()).toEqual(["disconnect 0x97"]);
  });

  test("a fault of the owner is not taken for one of the client", () => {
    const talk = connected(connect5, {
      events: {
        onPublish: () => {
          throw new Error("bug");
        },
      },
    });
    expect(() => talk.say(publishing(0, 0))).toThrow("bug");
    expect(talk.end).toBeUndefined();
  });
});

describe("words that the client may not want or fit", () => {
  const words = { reasonString: "x".repeat(50), userProperties: [["a", "b"]] as const };

  test("without problem information only PUBLISH, CONNACK and DISCONNECT have them", () => {
    const connect = withProperties({ requestProblemInformation: false });
    const talk = connected(connect).say(publishing(1, 1));
    talk.connection.suback(1, [0x87], words);
    talk.connection.completeAck(talk.tokens[0]!, 0x87, words);
    talk.connection.disconnect(0x98, words);
    expect(talk.heard()).toEqual([
      { type: "suback", packetId: 1, reasonCodes: [0x87], properties: {} },
      { type: "puback", packetId: 1, reasonCode: 0x87, properties: {} },
      { type: "disconnect", reasonCode: 0x98, properties: words },
    ]);
  });

  test("they are dropped, user properties first, where the packet would be too large", () => {
    const talk = connected(withProperties({ maximumPacketSize: 60 }));
    talk.connection.suback(1, [0x87], words);
    expect(talk.heard()).toMatchObject([{ properties: { reasonString: words.reasonString } }]);
    const tight = connected(withProperties({ maximumPacketSize: 20 }));
    tight.connection.suback(1, [0x87], words);
    expect(tight.heard()).toEqual([
      { type: "suback", packetId: 1, reasonCodes: [0x87], properties: {} },
    ]);
  });

  test("a client that cannot take what must be said is ended", () => {
    const talk = connected(withProperties({ maximumPacketSize: 19 }));
    talk.connection.suback(
      1,
      Array.from({ length: 20 }, () => 0),
    );
    expect(talk.heardShort()).toEqual(["disconnect 0x95"]);
    const tiny = new Conversation().say(withProperties({ maximumPacketSize: 3 }));
    expect(tiny.heardHex()).toBe("");
    expect(tiny.end?.cause).toBe("refused");
  });
});
