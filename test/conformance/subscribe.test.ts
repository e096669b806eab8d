// SUBSCRIBE, UNSUBSCRIBE and topic filters.

import { describe, expect, test } from "vitest";
import { sharedBroker } from "../support/launched-broker.ts";
import {
  bytes,
  field,
  packet,
  puback,
  publish,
  publish5,
  pubrec,
  pubrel,
  subscribe4,
  subscribe5,
  u16,
  unsubscribe4,
  unsubscribe5,
} from "../support/mqtt-bytes.ts";
import type { ProtocolLevel, RawClient } from "../support/raw-client.ts";

const broker = sharedBroker();
const malformed = 0x81;
const protocolError = 0x82;

let count = 0;

async function connected(level: ProtocolLevel = 5, clean = true): Promise<RawClient> {
  count++;
  return (await broker().connect(`client ${count}`, { level, clean })).client;
}

async function publishAs(topic: string, payload: string, qos: 0 | 1 | 2 = 1): Promise<void> {
  const client = await connected(4);
  client.send(publish(topic, payload, { qos, id: qos === 0 ? 0 : 1 }));
  if (qos === 0) await client.expectNothing();
  else await client.next();
  if (qos === 2) client.send(pubrel(1));
  if (qos === 2) await client.expect("pubcomp");
  await client.close();
}

const kinds = [
  ["direct", true],
  ["durable", false],
] as const;

describe("the packets", () => {
  test("[3.8.1-1] [3.10.1-1] have flags 0010", async () => {
    for (const first of ["80", "81", "8a", "a0", "a1", "aa"]) {
      const client = await connected();
      const body = first.startsWith("8") ? field("a") : field("a");
      client.send(packet(first, "0001 00", body, first.startsWith("8") ? "00" : ""));
      await client.expectRefused(malformed);
    }
  });

  test("[3.8.3-2] [3.10.3-2] hold at least one filter", async () => {
    for (const level of [5, 4] as const) {
      for (const first of ["82", "a2"]) {
        const client = await connected(level);
        client.send(packet(first, "0001", level === 5 ? "00" : ""));
        const frames = await client.expectClosed();
        if (level === 5) expect([malformed, protocolError]).toContain(frames[0]?.bytes[2]);
        else expect(frames).toEqual([]);
      }
    }
  });

  test.each([0x03, 0x30, 0x40, 0x80])("[3.8.3-5] options 0x%s are malformed", async (options) => {
    const client = await connected(5);
    client.send(subscribe5(1, [["a", options]]));
    const [answer] = await client.expectClosed();
    expect([malformed, protocolError]).toContain(answer?.bytes[2]);
  });

  test.each([0x03, 0x04, 0x10, 0x80])(
    "[311:3.8.3-4] options 0x%s are malformed in 3.1.1",
    async (options) => {
      const client = await connected(4);
      client.send(subscribe4(1, [["a", options]]));
      await client.expectRefused(malformed);
    },
  );
});

describe("SUBACK", () => {
  test.each(kinds)("[3.8.4-1] [3.8.4-2] for each SUBSCRIBE, with its id: %s", async (_n, clean) => {
    const client = await connected(5, clean);
    client.send(bytes(subscribe5(0x0a0b, [["a", 1]]), subscribe5(0xffff, [["b", 0]])));
    await client.expectBytes("90 04 0a0b 00 01");
    await client.expectBytes("90 04 ffff 00 00");
  });

  test.each(kinds)(
    "[3.8.4-5] [3.8.4-6] [3.9.3-1] one for several filters, codes in their order: %s",
    async (_name, clean) => {
      const client = await connected(5, clean);
      const filters = [
        ["a", 2],
        ["b", 0],
        ["x/#/y", 1],
        ["c", 1],
        ["d+", 1],
      ] as const;
      client.send(subscribe5(1, filters));
      // Words about what is wrong stand before the codes.
      const { bytes: suback } = await client.next();
      expect([suback[0], suback.readUInt16BE(2)]).toEqual([0x90, 1]);
      expect(suback.subarray(-5)).toEqual(bytes("02 00 8f 01 8f"));
      await publishAs("c", "x");
      await client.expectBytes(publish5("c", "x", { qos: 1, id: 1 }));
    },
  );

  test("[3.8.4-7] [311:3.9.3-2] a failure is 0x80 in 3.1.1", async () => {
    const client = await connected(4);
    client.send(
      subscribe4(1, [
        ["a", 2],
        ["x/#/y", 1],
        ["b", 0],
      ]),
    );
    await client.expectBytes("90 05 0001 02 80 00");
  });

  test("[3.8.4-7] a closed prefix is refused per filter, 0x87; 3.1.1 gets 0x80", async () => {
    const five = await connected(5);
    five.send(
      subscribe5(1, [
        ["$internal/x", 0],
        ["a", 0],
      ]),
    );
    await five.expectBytes("90 05 0001 00 87 00");
    const four = await connected(4);
    four.send(subscribe4(1, [["$internal/x", 0]]));
    await four.expectBytes("90 03 0001 80");
  });

  test.each(kinds)("[3.8.4-7] more subscriptions than allowed: 0x97: %s", async (_name, clean) => {
    const client = await connected(5, clean);
    for (let n = 0; n < 1000; n += 100) {
      const filters = Array.from({ length: 100 }, (_, i) => [`many/${n + i}`, 0] as const);
      client.send(subscribe5(1, filters));
      await client.expect("suback");
    }
    client.send(
      subscribe5(2, [
        ["many/0", 1],
        ["one/more", 0],
      ]),
    );
    await client.expectBytes("90 05 0002 00 01 97");
  });
});

describe("delivery", () => {
  test.each(kinds)(
    "[3.8.4-8] at the lower of published and granted QoS: %s",
    async (name, clean) => {
      for (const granted of [0, 1, 2] as const) {
        const client = await connected(4, clean);
        const topic = `min/${name}/${granted}`;
        client.send(subscribe4(1, [[topic, granted]]));
        await client.expect("suback");
        for (const published of [0, 1, 2] as const) {
          await publishAs(topic, "x", published);
          expect((await client.expect("publish")).qos).toBe(Math.min(granted, published));
        }
      }
    },
  );

  test.each(kinds)("[3.8.3-3] No Local: not to the publisher itself: %s", async (name, clean) => {
    const client = await connected(5, clean);
    const topic = `nl/${name}`;
    client.send(subscribe5(1, [[topic, 0x05]]));
    await client.expect("suback");
    client.send(publish5(topic, "own", { qos: 1, id: 1 }));
    await client.expect("puback");
    await publishAs(topic, "other");
    await client.expectBytes(publish5(topic, "other", { qos: 1, id: 1 }));
    await client.expectNothing();
  });

  test("[3.8.3-4] No Local on a shared subscription is a protocol error", async () => {
    const client = await connected(5);
    client.send(subscribe5(1, [["$share/g/a", 0x05]]));
    await client.expectRefused(protocolError);
  });

  test.each([
    "$share",
    "$share/",
    "$share/g",
    "$share/g/",
    "$share//a",
    "$share/g+/a",
    "$share/#/a",
  ])("[4.8.2-1] [4.8.2-2] a broken shared filter is malformed: %s", async (filter) => {
    const client = await connected(5);
    client.send(subscribe5(1, [[filter, 0]]));
    const [answer] = await client.expectClosed();
    expect([malformed, protocolError, 0x8f]).toContain(answer?.bytes[2]);
  });

  test.each(kinds)(
    "[3.8.4-3] the same filter replaces options and identifier: %s",
    async (n, c) => {
      const client = await connected(5, c);
      const topic = `again/${n}`;
      client.send(subscribe5(1, [[topic, 0]], "0b 01"));
      await client.expect("suback");
      client.send(subscribe5(2, [[topic, 1]], "0b 02"));
      await client.expectBytes("90 04 0002 00 01");
      await publishAs(topic, "x");
      await client.expectBytes(publish5(topic, "x", { qos: 1, id: 1, properties: "0b 02" }));
      await client.expectNothing();
    },
  );

  test.each(kinds)("[3.8.4-3] and loses no message: %s", async (name, clean) => {
    const client = await connected(4, clean);
    const topic = `lossless/${name}`;
    client.send(subscribe4(1, [[topic, 1]]));
    await client.expect("suback");
    const publisher = await connected(4);
    const received: string[] = [];
    client.handle((frame) => {
      if (frame.type !== 3) return;
      received.push(frame.bytes.subarray(6 + topic.length).toString());
      client.send(puback(frame.bytes.readUInt16BE(4 + topic.length)));
    });
    for (let n = 0; n < 100; n++) {
      publisher.send(publish(topic, `${n}`.padStart(3, "0"), { qos: 1, id: n + 1 }));
      client.send(subscribe4(n + 1, [[topic, 1]]));
      await publisher.expect("puback");
    }
    await expect.poll(() => received.length, { timeout: 5000 }).toBeGreaterThanOrEqual(100);
    const wanted = Array.from({ length: 100 }, (_, n) => `${n}`.padStart(3, "0"));
    expect(received).toEqual(wanted);
  });

  test.each(kinds)(
    "[3.3.4-2] [3.3.4-3] [3.3.4-4] overlaps: one copy, highest QoS, all identifiers: %s",
    async (name, clean) => {
      for (const order of [
        [`o/${name}`, "o/+", "o/#"],
        ["o/#", "o/+", `o/${name}`],
      ]) {
        const client = await connected(5, clean);
        const qos = new Map([
          [`o/${name}`, 1],
          ["o/+", 0],
          ["o/#", 2],
        ]);
        for (const [index, filter] of order.entries()) {
          const props = `0b 0${index + 1}`;
          client.send(subscribe5(index + 1, [[filter, qos.get(filter) as number]], props));
          await client.expect("suback");
        }
        await publishAs(`o/${name}`, "x", 2);
        const got = await client.expect("publish");
        expect(got.qos).toBe(2);
        expect([got.properties?.subscriptionIdentifier].flat().sort()).toEqual([1, 2, 3]);
        await client.expectNothing();
      }
    },
  );

  test.each(kinds)("[3.3.4-5] no identifier where none was given: %s", async (name, clean) => {
    const client = await connected(5, clean);
    const topic = `noid/${name}`;
    client.send(subscribe5(1, [[topic, 1]], "0b 05"));
    client.send(subscribe5(2, [["noid/+", 1]]));
    await client.expect("suback");
    await client.expect("suback");
    await publishAs(topic, "x");
    await client.expectBytes(publish5(topic, "x", { qos: 1, id: 1, properties: "0b 05" }));
  });

  test("[311:3.3.5-1] overlaps in 3.1.1: one copy at the highest QoS", async () => {
    for (const clean of [true, false]) {
      const client = await connected(4, clean);
      client.send(
        subscribe4(1, [
          ["o4/+", 0],
          ["o4/a", 1],
        ]),
      );
      await client.expect("suback");
      await publishAs("o4/a", "x", 2);
      await client.expectBytes(publish("o4/a", "x", { qos: 1, id: 1 }));
      await client.expectNothing();
    }
  });
});

describe("UNSUBSCRIBE", () => {
  test.each(kinds)(
    "[3.10.4-4..6] [311:3.10.4-5] [3.11.3-1] [3.11.3-2] a code per filter, in order: %s",
    async (_name, clean) => {
      const client = await connected(5, clean);
      client.send(
        subscribe5(1, [
          ["u/a", 1],
          ["u/b", 1],
        ]),
      );
      await client.expect("suback");
      client.send(unsubscribe5(2, ["u/x", "u/b", "u/a", "u/a"]));
      const { bytes: answer } = await client.next();
      expect(answer.subarray(0, 8)).toEqual(bytes("b0 07 0002 00 11 00 00"));
      expect([0x00, 0x11]).toContain(answer[8]);
      const four = await connected(4, clean);
      four.send(unsubscribe4(7, ["never"]));
      await four.expectBytes("b0 02 0007");
    },
  );

  test.each(kinds)("[3.10.4-1] filters are compared byte by byte: %s", async (_name, clean) => {
    const client = await connected(5, clean);
    client.send(subscribe5(1, [["cmp/+", 0]]));
    await client.expect("suback");
    client.send(unsubscribe5(2, ["cmp/a", "cmp/#", "CMP/+", "cmp/+/"]));
    await client.expectBytes("b0 07 0002 00 11 11 11 11");
    await publishAs("cmp/a", "x");
    await client.expectBytes(publish5("cmp/a", "x"));
  });

  test.each(kinds)(
    "[3.10.4-2] [3.10.4-3] no new messages, what was begun is finished: %s",
    async (name, clean) => {
      const client = await connected(4, clean);
      const topic = `unsub/${name}`;
      client.send(subscribe4(1, [[topic, 2]]));
      await client.expect("suback");
      await publishAs(topic, "x", 2);
      await client.expectBytes(publish(topic, "x", { qos: 2, id: 1 }));
      client.send(unsubscribe4(2, [topic]));
      await client.expectBytes("b0 02 0002");
      await publishAs(topic, "y", 2);
      client.send(pubrec(1));
      await client.expectBytes(pubrel(1));
      client.send(packet("70", u16(1)));
      await client.expectNothing();
    },
  );
});

describe("filters", () => {
  test.each([
    ["a#", 0x8f],
    ["a/#/b", 0x8f],
    ["#/a", 0x8f],
    ["a+", 0x8f],
    ["+a/b", 0x8f],
    ["a/b+/c", 0x8f],
    ["#", 0],
    ["+", 0],
    ["a/+/#", 0],
    ["/", 0],
    ["//", 0],
    ["a/ b", 0],
  ])("[4.7.1-1] [4.7.1-2] # last and alone, + alone in their level: %s", async (filter, code) => {
    const client = await connected(5);
    client.send(subscribe5(1, [[filter, 0]]));
    const { bytes: suback } = await client.next();
    expect([suback[0], suback.readUInt16BE(2), suback.at(-1)]).toEqual([0x90, 1, code]);
  });

  test.each(["", "a\u0000"])(
    "[4.7.3-1] [4.7.3-2] empty or with NUL is malformed: %j",
    async (filter) => {
      const client = await connected(5);
      client.send(subscribe5(1, [[filter, 0]]));
      const frame = await client.next();
      // A filter may fail by itself or end the connection.
      if (frame.type === 9) expect(frame.bytes.at(-1)).toBe(0x8f);
      else expect([malformed, protocolError]).toContain(frame.bytes[2]);
    },
  );

  test.each([
    ["sport/#", ["sport", "sport/a", "sport/a/b"], ["sports", "spor"]],
    ["sport/+", ["sport/", "sport/a"], ["sport", "sport/a/b"]],
    ["+/+", ["/finance", "a/b"], ["finance", "/a/b"]],
    ["/+", ["/finance"], ["finance", "//"]],
    ["+", ["finance"], ["/finance"]],
    ["+/monitor/#", ["x/monitor", "x/monitor/y"], ["monitor", "$x/monitor"]],
  ])("[4.7.1-1] [4.7.1-2] %s matches what it should", async (filter, yes, no) => {
    for (const clean of [true, false]) {
      const client = await connected(4, clean);
      client.send(subscribe4(1, [[filter, 1]]));
      await client.expect("suback");
      for (const topic of [...no, ...yes]) await publishAs(topic, "x");
      for (const topic of yes) expect((await client.expect("publish")).topic).toBe(topic);
      await client.expectNothing();
    }
  });

  test("[4.7.2-1] a leading wildcard never matches a $-topic", async () => {
    for (const clean of [true, false]) {
      const client = await connected(4, clean);
      client.send(
        subscribe4(1, [
          ["#", 0],
          ["+/x", 0],
          ["$own/+", 0],
        ]),
      );
      await client.expect("suback");
      await publishAs("$own/x", "only by name");
      await publishAs("$other/x", "not at all");
      await client.expectBytes(publish("$own/x", "only by name"));
      await client.expectNothing();
      await client.close();
    }
  });

  test("[4.7.3-4] case and normal form make a difference", async () => {
    const client = await connected(4);
    client.send(subscribe4(1, [["caf\u00e9/A", 0]]));
    await client.expect("suback");
    for (const topic of ["caf\u00e9/a", "cafe\u0301/A", "Caf\u00e9/A", "caf\u00e9/A"]) {
      await publishAs(topic, "x");
    }
    await client.expectBytes(publish("caf\u00e9/A", "x"));
    await client.expectNothing();
  });

  test("[4.7.3-3] up to 65535 bytes, and to the configured number of levels", async () => {
    const long = "x".repeat(65_535);
    const client = await connected(5);
    client.send(subscribe5(1, [[long, 0]]));
    await client.expectBytes("90 04 0001 00 00");
    client.send(publish5(long, "x"));
    await client.expectBytes(publish5(long, "x"));
    const deep = (levels: number): string => Array(levels).fill("l").join("/");
    client.send(
      subscribe5(2, [
        [deep(128), 0],
        [deep(129), 0],
      ]),
    );
    expect((await client.next()).bytes.subarray(-2)).toEqual(bytes("00 8f"));
    for (const topic of [deep(128), `${deep(127)}/\u00e4`]) {
      client.send(subscribe5(3, [[topic, 0]]));
      await client.expect("suback");
      client.send(publish5(topic, "x"));
      await client.expectBytes(publish5(topic, "x"));
    }
    client.send(publish5(deep(129), "x", { qos: 1, id: 1 }));
    const frame = await client.next();
    const code = frame.type === 4 ? frame.bytes[4] : frame.bytes[2];
    expect(code).toBe(0x90);
  });
});
