import { describe, expect, test } from "vitest";
import {
  InboundQos2,
  type OutboundEntry,
  OutboundWindow,
  PacketIds,
} from "../../../src/mqtt/index.ts";

describe("packet ids", () => {
  test("start at 1, count up and roll on past 65,535", () => {
    const ids = new PacketIds();
    const none = new Set<number>();
    expect([ids.take(none), ids.take(none)]).toEqual([1, 2]);
    const late = new PacketIds(65_535);
    expect([late.take(none), late.take(none)]).toEqual([65_535, 1]);
  });

  test("are not taken back when they become free: an id is reused as late as can be", () => {
    const ids = new PacketIds();
    const inUse = new Set<number>();
    for (let count = 0; count < 3; count++) ids.take(inUse);
    expect(ids.take(inUse)).toBe(4);
  });

  test("skip those in use, also the one message that stays unacked for a whole round", () => {
    const ids = new PacketIds();
    const inUse = new Set([ids.take(new Set())!]);
    const taken = new Set(Array.from({ length: 65_534 }, () => ids.take(inUse)));
    expect([taken.size, taken.has(1)]).toEqual([65_534, false]);
    expect(ids.take(inUse)).toBe(2);
  });

  test("run out when all 65,535 are in use", () => {
    const ids = new PacketIds();
    const inUse = new Set<number>();
    for (let count = 0; count < 65_535; count++) inUse.add(ids.take(inUse)!);
    expect(ids.take(inUse)).toBeUndefined();
    inUse.delete(40_000);
    expect(ids.take(inUse)).toBe(40_000);
  });
});

function sent(packetId: number, stage: "sent1" | "sent2", sizeBytes = 10): OutboundEntry<string> {
  return { packetId, stage, sizeBytes, value: `m${packetId}` };
}

function windowOf(...entries: Array<OutboundEntry<string>>): OutboundWindow<string> {
  const window = new OutboundWindow<string>({ countMax: 3, bytesMax: 100 });
  for (const entry of entries) window.add(entry);
  return window;
}

describe("the outbound window", () => {
  test("QoS 1 ends with PUBACK, QoS 2 with PUBREC, PUBREL, PUBCOMP", () => {
    const window = windowOf(sent(1, "sent1"), sent(2, "sent2"));
    expect(window.puback(1)).toBe("done");
    expect(window.pubrec(2, 0)).toBe("release");
    expect(window.get(2)?.stage).toBe("released");
    expect(window.size).toBe(1);
    expect(window.pubcomp(2)).toBe("done");
    expect([window.size, window.bytes]).toEqual([0, 0]);
  });

  test("a PUBREC that refuses ends the message; a repeated one asks for PUBREL again", () => {
    const window = windowOf(sent(1, "sent2"), sent(2, "sent2"));
    expect(window.pubrec(1, 0x87)).toBe("done");
    expect(window.has(1)).toBe(false);
    expect([window.pubrec(2, 0), window.pubrec(2, 0), window.pubrec(2, 0x80)]).toEqual([
      "release",
      "release",
      "release",
    ]);
  });

  test("an ack for another stage is a protocol error and changes nothing", () => {
    const window = windowOf(sent(1, "sent1"), sent(2, "sent2"), sent(3, "sent2"));
    window.pubrec(3, 0);
    expect(window.pubrec(1, 0)).toBe("protocol_error");
    expect(window.pubcomp(1)).toBe("protocol_error");
    expect(window.puback(2)).toBe("protocol_error");
    expect(window.pubcomp(2)).toBe("protocol_error");
    expect(window.puback(3)).toBe("protocol_error");
    expect(window.size).toBe(3);
  });

  test("acks for ids that are not here may be late", () => {
    const window = windowOf();
    expect([window.puback(1), window.pubrec(1, 0), window.pubcomp(1)]).toEqual([
      "unknown",
      "unknown",
      "unknown",
    ]);
  });

  test("what is unfinished stands in the order of sending, released or not", () => {
    const window = windowOf(sent(9, "sent2"), sent(3, "sent1"), sent(5, "sent2"));
    window.pubrec(9, 0);
    expect([...window.entries()].map((entry) => entry.packetId)).toEqual([9, 3, 5]);
  });

  test("is bounded in count and in bytes, and always takes one message", () => {
    const window = windowOf();
    expect(window.hasRoom(1_000_000)).toBe(true);
    window.add(sent(1, "sent1", 90));
    expect([window.hasRoom(10), window.hasRoom(11)]).toEqual([true, false]);
    window.add(sent(2, "sent2", 1));
    window.add(sent(3, "sent2", 1));
    expect(window.hasRoom(1)).toBe(false);
    window.pubrec(2, 0);
    expect(window.hasRoom(1)).toBe(false);
    window.setLimits({ countMax: 4, bytesMax: 100 });
    expect(window.hasRoom(1)).toBe(true);
    expect(window.drop(1)).toBe(true);
    expect(window.drop(1)).toBe(false);
    expect(window.bytes).toBe(2);
  });

  test("an id twice is our bug", () => {
    expect(() => windowOf(sent(1, "sent1"), sent(1, "sent2"))).toThrow("in use");
  });
});

describe("inbound QoS 2 ids", () => {
  test("a message is new once, until it is released", () => {
    const ids = new InboundQos2();
    expect([ids.receive(7), ids.receive(7), ids.has(7), ids.size]).toEqual([
      "new",
      "repeat",
      true,
      1,
    ]);
    expect([ids.release(7), ids.release(7)]).toEqual([0, 0x92]);
    expect(ids.receive(7)).toBe("new");
  });

  test("are bounded, and a full set still knows its repeats", () => {
    const ids = new InboundQos2(1);
    expect([ids.receive(1), ids.receive(2), ids.receive(1)]).toEqual(["new", "full", "repeat"]);
  });
});
