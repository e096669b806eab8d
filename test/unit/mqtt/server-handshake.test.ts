import { describe, expect, test } from "vitest";
import { encodePacket, type SubscribeRequest } from "../../../src/mqtt/index.ts";
import { Conversation, connect4, connect5, publishing, withProperties } from "./conversation.ts";
import { hex } from "./support.ts";

describe("CONNECT", () => {
  test("is accepted with the limits the client must know", () => {
    const talk = new Conversation({ onConnect: { sessionPresent: true } }).say(connect5);
    expect(talk.heard()).toEqual([
      {
        type: "connack",
        sessionPresent: true,
        reasonCode: 0,
        properties: {
          receiveMaximum: 1000,
          topicAliasMaximum: 16,
          maximumPacketSize: 8 * 1024 * 1024,
        },
      },
    ]);
    expect(talk.connection.state).toBe("connected");
  });

  test("of 3.1.1 is answered without properties", () => {
    const talk = new Conversation().say(connect4);
    expect(talk.heardHex()).toBe("20020000");
  });

  test("of 3.1 and of bridges is served", () => {
    for (const packet of [
      { ...connect4, level: 3 as const },
      { ...connect4, bridge: true },
      { ...connect4, level: 3 as const, bridge: true },
    ]) {
      expect(new Conversation().say(packet).heardHex()).toBe("20020000");
    }
  });

  test("must come first, and nothing is answered to what is not MQTT", () => {
    for (const bytes of ["c000", "e000", hex("474554202f20485454502f312e31").toString("hex")]) {
      const talk = new Conversation().say(bytes);
      expect(talk.end).toMatchObject({ cause: "protocol_error", publishWill: false });
      expect(talk.heardHex()).toBe("");
    }
  });

  test("another first packet is refused at its header, without its body", () => {
    const talk = new Conversation().say("30 ff7f");
    expect(talk.end?.cause).toBe("protocol_error");
  });

  test("twice is a protocol error, whatever the second says", () => {
    const talk = new Conversation().say(connect5);
    talk.heardHex();
    talk.say("1005 0004 4d5154");
    expect(talk.heardShort()).toEqual(["disconnect 0x82"]);
    const old = new Conversation().say(connect4, connect4);
    expect(old.heardHex()).toBe("20020000");
    expect(old.end).toMatchObject({ cause: "protocol_error", reasonCode: 0x82, publishWill: true });
  });

  test("nothing of a bad one takes effect; the answer is in the client's form", () => {
    const cases: Array<[string, string, string]> = [
      ["5, malformed", "100d 00044d515454 05 03 0000 00 0000", "20"],
      ["5, level 6", "100d 00044d515454 06 02 0000 00 0000", "20"],
      ["3.1.1, malformed", "100c 00044d515454 04 03 0000 0000", ""],
      ["level 2", "100c 00044d515454 02 02 0000 0000", "20020001"],
      ["3.1.1, empty identifier, clean session 0", "100c 00044d515454 04 00 0000 0000", "20020002"],
      ["unknown protocol", "100d 00044d515458 05 02 0000 00 0000", ""],
    ];
    for (const [name, bytes, answer] of cases) {
      const talk = new Conversation().say(bytes);
      expect(talk.heardHex().startsWith(answer), name).toBe(true);
      if (answer === "") expect(talk.heardHex(), name).toBe("");
      expect(talk.events, name).toEqual(["end protocol_error"]);
      expect(talk.end?.publishWill, name).toBe(false);
    }
    const five = new Conversation().say("100d 00044d515454 05 03 0000 00 0000");
    expect(five.heardShort(5)).toEqual(["connack 0x81"]);
    const six = new Conversation().say("100d 00044d515454 06 02 0000 00 0000");
    expect(six.heardShort(5)).toEqual(["connack 0x84"]);
  });

  test("refused: CONNACK with the reason, or the return code of 3.1.1, then the end", () => {
    for (const [packet, reasonCode, answer] of [
      [connect5, 0x87, "connack 0x87"],
      [connect5, 0x8c, "connack 0x8c"],
      [connect4, 0x86, "connack 0x4"],
      [connect4, 0x87, "connack 0x5"],
      [connect4, 0x88, "connack 0x3"],
      [connect4, 0x97, "connack 0x3"],
      [connect4, 0x9f, "connack 0x3"],
    ] as const) {
      const talk = new Conversation({ onConnect: "later" }).say(packet);
      talk.connection.refuseConnect(reasonCode);
      expect(talk.heardShort()).toEqual([answer]);
      expect(talk.end).toMatchObject({ cause: "refused", reasonCode, publishWill: false });
    }
    const silent = new Conversation({ onConnect: "later" }).say(connect4);
    silent.connection.refuseConnect(0x95);
    expect(silent.heardHex()).toBe("");
    expect(silent.end?.cause).toBe("refused");
  });

  test("is read whatever the chunking", () => {
    const talk = new Conversation();
    talk.trickle(Buffer.concat([encodePacket(connect5, 5), encodePacket(publishing(0, 0), 5)]));
    expect(talk.events).toEqual(["connect c", "publish t x q0"]);
  });
});

describe("packets pipelined behind CONNECT", () => {
  test("wait for acceptance and are then handled in order", () => {
    const talk = new Conversation({ onConnect: "later" });
    talk.say(connect5, publishing(1, 1, "a")).say(publishing(0, 0, "b"), { type: "pingreq" });
    expect(talk.events).toEqual(["connect c"]);
    expect(talk.connection.readingWanted).toBe(false);
    talk.connection.acceptConnect({ sessionPresent: false }, talk.nowMs);
    expect(talk.events).toEqual(["connect c", "publish a x q1", "publish b x q0"]);
    expect(talk.heardShort()).toEqual(["connack 0x0", "pingresp"]);
    expect(talk.connection.readingWanted).toBe(true);
  });

  test("take no effect after a refusal", () => {
    const talk = new Conversation({ onConnect: "later" }).say(connect5, publishing(0, 0, "a"));
    talk.connection.refuseConnect(0x87);
    talk.say(publishing(0, 0, "b"));
    expect(talk.events).toEqual(["connect c", "end refused"]);
  });

  test("are bounded", () => {
    const talk = new Conversation({ onConnect: "later", settings: { heldBytesMax: 10 } });
    talk.say(connect5, "c000 c000 c000");
    expect(talk.end).toBeUndefined();
    talk.say("c000 c000 c000");
    expect(talk.heardShort()).toEqual(["connack 0x97"]);
    expect(talk.end).toMatchObject({ cause: "protocol_error", reasonCode: 0x97 });
  });

  test("a packet cut by the answer is completed after it", () => {
    const talk = new Conversation({ onConnect: "later" });
    const bytes = encodePacket(publishing(0, 0, "abc"), 5);
    talk.say(connect5, bytes.subarray(0, 4).toString("hex"));
    talk.connection.acceptConnect({ sessionPresent: false }, talk.nowMs);
    talk.say(bytes.subarray(4).toString("hex"));
    expect(talk.events).toEqual(["connect c", "publish abc x q0"]);
  });
});

describe("time before acceptance", () => {
  test("a CONNECT that is not complete in time is cut, however it trickles", () => {
    const talk = new Conversation();
    const bytes = encodePacket(connect5, 5);
    for (const byte of bytes.subarray(0, 10)) {
      talk.say(Buffer.from([byte]).toString("hex")).wait(999);
    }
    expect(talk.end).toBeUndefined();
    talk.wait(10);
    expect(talk.end).toMatchObject({ cause: "connect_timeout", publishWill: false });
    expect(talk.heardHex()).toBe("");
  });

  test("the owner's own time for the answer does not count", () => {
    const talk = new Conversation({ onConnect: "later" }).say(connect5).wait(60_000);
    expect(talk.end).toBeUndefined();
    expect(talk.connection.deadlineMs).toBeUndefined();
  });

  test("a large first packet is refused on its header", () => {
    const talk = new Conversation().say("10 808004");
    expect(talk.end).toMatchObject({ cause: "protocol_error", reasonCode: 0x95 });
    const accepted = new Conversation({ settings: { maxPacketSize: 100_000 } }).say(connect5);
    accepted.heardHex();
    accepted.say("30 808004");
    expect(accepted.end).toBeUndefined();
    const after = new Conversation({ settings: { maxPacketSize: 100_000 } }).say(connect5);
    after.heardHex();
    after.say("30 808080").say("01");
    expect(after.heardShort()).toEqual(["disconnect 0x95"]);
  });
});

describe("enhanced authentication", () => {
  const method = { authenticationMethod: "M" };
  const answer = { type: "auth", reasonCode: 0x18, properties: method } as const;

  test("runs in rounds and ends with a CONNACK that repeats the method", () => {
    const talk = new Conversation({ onConnect: "later" }).say(withProperties(method));
    talk.connection.sendAuth(0x18, { authenticationData: Buffer.from("1") });
    talk.say(answer);
    talk.connection.sendAuth(0x18, { authenticationData: Buffer.from("2") });
    talk.say(answer);
    talk.connection.acceptConnect({ sessionPresent: false }, talk.nowMs);
    expect(talk.events).toEqual(["connect c", "auth 24", "auth 24"]);
    const [first, second, last] = talk.heard();
    expect(first).toMatchObject({ type: "auth", reasonCode: 0x18, properties: method });
    expect(second).toMatchObject({
      properties: { ...method, authenticationData: Buffer.from("2") },
    });
    expect(last).toMatchObject({ type: "connack", properties: method });
  });

  test("a challenge too large for the client is refused by CONNACK, not by DISCONNECT", () => {
    const talk = new Conversation({ onConnect: "later" });
    talk.say(withProperties({ ...method, maximumPacketSize: 9 }));
    talk.connection.sendAuth(0x18, { authenticationData: Buffer.alloc(100) });
    expect(talk.heardShort()).toEqual(["connack 0x95"]);
    expect(talk.end).toMatchObject({ cause: "refused", reasonCode: 0x95, publishWill: false });
  });

  test("an answer that does not come in time ends the connection", () => {
    const talk = new Conversation({ onConnect: "later" }).say(withProperties(method));
    talk.wait(60_000);
    talk.connection.sendAuth(0x18, {});
    talk.wait(9_999);
    expect(talk.end).toBeUndefined();
    talk.wait(1);
    expect(talk.end?.cause).toBe("connect_timeout");
  });

  test("allows nothing but AUTH and DISCONNECT before CONNACK", () => {
    const talk = new Conversation({ onConnect: "later" });
    talk.say(withProperties(method), publishing(0, 0));
    expect(talk.heardShort()).toEqual(["connack 0x82"]);
    const leaving = new Conversation({ onConnect: "later" });
    leaving.say(withProperties(method), "e000");
    expect(leaving.end).toMatchObject({ cause: "client_disconnect", publishWill: false });
    expect(leaving.heardHex()).toBe("");
  });

  test("an AUTH nobody asked for, or with another method, is a protocol error", () => {
    const early = new Conversation({ onConnect: "later" }).say(withProperties(method), answer);
    expect(early.heardShort()).toEqual(["connack 0x82"]);
    const none = new Conversation().say(connect5, answer);
    expect(none.heardShort()).toEqual(["connack 0x0", "disconnect 0x82"]);
    const other = new Conversation({ onConnect: "later" }).say(withProperties(method));
    other.connection.sendAuth(0x18, {});
    other.say({ ...answer, properties: { authenticationMethod: "N" } });
    expect(other.heardShort()).toEqual(["auth 0x18", "connack 0x82"]);
    const again = new Conversation({ onConnect: "later" });
    again.say(withProperties(method), { ...answer, reasonCode: 0x19 });
    expect(again.heardShort()).toEqual(["connack 0x82"]);
  });

  test("a stranger cannot keep its connection by answering for ever", () => {
    const talk = new Conversation({ onConnect: "later" }).say(withProperties(method));
    for (let n = 0; n < 8; n++) {
      talk.connection.sendAuth(0x18, {});
      talk.say(answer);
    }
    expect(talk.end).toBeUndefined();
    talk.connection.sendAuth(0x18, {});
    talk.say(answer);
    expect(talk.end).toMatchObject({ cause: "protocol_error", reasonCode: 0x82 });
  });

  test("an accepted client may authenticate anew while messages go on", () => {
    const talk = new Conversation().say(withProperties(method));
    talk.heardHex();
    talk.say({ ...answer, reasonCode: 0x19 }, publishing(0, 0));
    talk.connection.sendAuth(0x18, {});
    talk.say(answer);
    talk.connection.sendAuth(0, {});
    expect(talk.events.slice(1)).toEqual(["auth 25", "publish t x q0", "auth 24"]);
    expect(talk.heardShort()).toEqual(["auth 0x18", "auth 0x0"]);
    talk.say(answer);
    expect(talk.heardShort()).toEqual(["disconnect 0x82"]);
  });
});

describe("a broker that offers less", () => {
  const settings = { maximumQos: 1, retainAvailable: false, responseInformation: "r" } as const;

  test("says so in CONNACK, and gives Response Information to who asks", () => {
    const talk = new Conversation({ settings });
    talk.say(withProperties({ requestResponseInformation: true }));
    const offered = { maximumQos: 1, retainAvailable: false, responseInformation: "r" };
    expect(talk.heard()[0]).toMatchObject({ properties: offered });
    const quiet = new Conversation({ settings }).say(connect5).heard()[0];
    expect(quiet).toHaveProperty("properties.maximumQos", 1);
    expect(quiet).not.toHaveProperty("properties.responseInformation");
  });

  test("refuses wills above it before its owner hears of the CONNECT", () => {
    const will = { topic: "t", payload: Buffer.from("x"), properties: {} };
    for (const [flags, code] of [
      [{ qos: 2, retain: false }, 0x9b],
      [{ qos: 1, retain: true }, 0x9a],
    ] as const) {
      const talk = new Conversation({ settings }).say({ ...connect5, will: { ...will, ...flags } });
      expect(talk.heardShort()).toEqual([`connack 0x${code.toString(16)}`]);
      expect(talk.events).toEqual(["end protocol_error"]);
    }
  });

  test("ends the connection of who publishes above it, and grants its maximum", () => {
    const talk = new Conversation({ settings }).say(connect5, publishing(2, 1));
    expect(talk.heardShort()).toEqual(["connack 0x0", "disconnect 0x9b"]);
    expect(talk.events).toEqual(["connect c", "end protocol_error"]);
    const granted: number[] = [];
    const events = {
      onSubscribe: (request: SubscribeRequest) =>
        granted.push(...request.filters.map((filter) => filter.options.qos)),
    };
    new Conversation({ settings, events }).say(connect5, "82 0b 0001 00 0001 61 02 0001 62 00");
    expect(granted).toEqual([1, 0]);
  });
});
