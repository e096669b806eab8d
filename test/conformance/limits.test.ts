// Flow control and packet sizes.

import { describe, expect, test } from "vitest";
import { sharedBroker } from "../support/launched-broker.ts";
import {
  bytes,
  connect,
  field,
  packet,
  puback,
  pubcomp,
  publish,
  publish5,
  pubrec,
  pubrel,
  subscribe4,
  subscribe5,
  u16,
  varint,
} from "../support/mqtt-bytes.ts";
import type { RawClient } from "../support/raw-client.ts";

const broker = sharedBroker([
  ...["--set", "mqtt.receiveMaximum=5"],
  ...["--set", "mqtt.inflightMax=10"],
  ...["--set", "mqtt.maxPacketSize=64KiB"],
  ...["--set", "mqtt.preAuthTime=2s"],
]);

let count = 0;

async function publisher(): Promise<RawClient> {
  count++;
  return (await broker().connect(`p${count}`, { level: 4 })).client;
}

type Options = { clean?: boolean; receiveMaximum?: number; maximumPacketSize?: number };

async function subscriber(filter: string, options: Options = {}): Promise<RawClient> {
  const { clean = true, ...limits } = options;
  count++;
  const properties = { ...(clean ? {} : { sessionExpiryInterval: 60 }), ...limits };
  const connected = { clean, connect: { properties } };
  const { client } = await broker().connect(`s${count}`, connected);
  client.send(subscribe5(1, [[filter, 2]]));
  await client.expect("suback");
  return client;
}

const kinds = [
  ["direct", true],
  ["durable", false],
] as const;

describe("flow control", () => {
  test.each(kinds)(
    "[3.3.4-9] [4.9.0-1] [4.9.0-2] at most Receive Maximum unacked to a client: %s",
    async (name, clean) => {
      const topic = `flow/${name}`;
      const client = await subscriber(topic, { clean, receiveMaximum: 3 });
      const p = await publisher();
      for (let n = 1; n <= 9; n++) {
        const qos = n % 3 === 0 ? 2 : 1;
        p.send(publish(topic, `${n}`, { qos, id: n }));
        await p.expect(qos === 1 ? "puback" : "pubrec");
      }
      const next = async (): Promise<string> => (await client.expect("publish")).payload.toString();
      expect([await next(), await next(), await next()]).toEqual(["1", "2", "3"]);
      await client.expectSilence(100);
      // PUBACK returns one, PUBREC none, PUBCOMP one, PUBREC with a failure one.
      client.send(puback(1));
      expect(await next()).toBe("4");
      client.send(pubrec(3));
      await client.expectBytes(pubrel(3));
      await client.expectSilence(100);
      client.send(pubcomp(3));
      expect(await next()).toBe("5");
      client.send(puback(2));
      expect(await next()).toBe("6");
      await client.expectSilence(100);
      client.send("50 03 0006 80");
      expect(await next()).toBe("7");
      await client.expectSilence(100);
    },
  );

  test.each(kinds)("[3.3.4-10] [4.9.0-3] the rest flows at zero quota: %s", async (name, clean) => {
    const topic = `zero/${name}`;
    const client = await subscriber(topic, { clean, receiveMaximum: 1 });
    const p = await publisher();
    p.send(publish(topic, "1", { qos: 1, id: 1 }));
    await p.expect("puback");
    await client.expect("publish");
    p.send(publish(topic, "2", { qos: 1, id: 2 }));
    await p.expect("puback");
    await client.expectNothing();
    client.send(subscribe5(2, [["zero/qos0", 0]]));
    await client.expect("suback");
    client.send(publish5("zero/qos0", "own", { qos: 2, id: 9 }));
    await client.expectBytes(pubrec(9));
    await client.expectBytes(publish5("zero/qos0", "own"));
    client.send(pubrel(9));
    await client.expectBytes(pubcomp(9));
    client.send(puback(1));
    expect((await client.expect("publish")).payload.toString()).toBe("2");
  });

  test.each(kinds)(
    "[4.6.0-5] [4.6.0-6] what waits for a slot comes as published: %s",
    async (name, clean) => {
      const topic = `waits/${name}`;
      const client = await subscriber(topic, { clean, receiveMaximum: 3 });
      const p = await publisher();
      for (let n = 1; n <= 30; n++) {
        p.send(publish(topic, `${n}`, { qos: 1, id: n }));
        await p.expect("puback");
      }
      for (let n = 1; n <= 30; n++) {
        const { payload, messageId } = await client.expect("publish");
        expect(payload.toString()).toBe(`${n}`);
        client.send(puback(messageId as number));
      }
    },
  );

  test("a 3.1.1 client gets as many as the configured window", async () => {
    const { client } = await broker().connect("window", { level: 4, clean: false });
    client.send(subscribe4(1, [["window", 1]]));
    await client.expect("suback");
    const p = await publisher();
    for (let n = 1; n <= 12; n++) p.send(publish("window", `${n}`, { qos: 1, id: n }));
    for (let n = 1; n <= 10; n++) await client.expect("publish");
    await client.expectSilence(100);
    client.send(bytes(puback(5), puback(10)));
    await client.expect("publish");
    await client.expect("publish");
  });

  test("more unacked than our Receive Maximum ends the connection with 0x93", async () => {
    const { client, connack } = await broker().connect("exceeds");
    expect(connack.properties?.receiveMaximum).toBe(5);
    const sent = [1, 2, 3, 4, 5].map((id) => publish5("x", "x", { qos: 2, id }));
    client.send(bytes(...sent));
    for (let id = 1; id <= 5; id++) expect((await client.expect("pubrec")).messageId).toBe(id);
    // A repeat takes none; PUBCOMP returns one.
    client.send(publish5("x", "x", { qos: 2, id: 3, dup: true }));
    await client.expect("pubrec");
    client.send(pubrel(1));
    await client.expect("pubcomp");
    client.send(publish5("x", "x", { qos: 2, id: 6 }));
    await client.expect("pubrec");
    client.send(publish5("x", "x", { qos: 2, id: 7 }));
    await client.expectRefused(0x93);
  });

  test("a 3.1.1 client knows no Receive Maximum and is not bound by it", async () => {
    const client = await publisher();
    const sent = Array.from({ length: 20 }, (_, n) => publish("x", "x", { qos: 2, id: n + 1 }));
    client.send(bytes(...sent));
    for (let n = 1; n <= 20; n++) await client.expectBytes(pubrec(n));
  });
});

describe("sizes", () => {
  test.each(kinds)(
    "[3.1.2-24] [3.1.2-25] too large for the client: not sent, as if it was done: %s",
    async (name, clean) => {
      const topic = `size/${name}`;
      // A QoS 1 PUBLISH to this client takes 8 bytes beside topic and payload, up to 127 in all.
      const maximumPacketSize = 100;
      const fits = 100 - 2 - 2 - topic.length - 2 - 1;
      const client = await subscriber(topic, { clean, maximumPacketSize, receiveMaximum: 1 });
      const p = await publisher();
      for (const [index, size] of [10, fits + 1, 5000, fits, fits + 1, 20].entries()) {
        const qos = index % 2 === 0 ? 1 : 2;
        p.send(publish(topic, "x".repeat(size), { qos, id: index + 1 }));
        await p.expect(qos === 1 ? "puback" : "pubrec");
      }
      const sizes: number[] = [];
      for (let n = 0; n < 2; n++) {
        const { payload, messageId, qos } = await client.expect("publish");
        sizes.push(payload.length);
        client.send(qos === 1 ? puback(messageId as number) : pubrec(messageId as number));
        if (qos !== 2) continue;
        await client.expect("pubrel");
        client.send(pubcomp(messageId as number));
      }
      expect(sizes[0]).toBe(10);
      expect(sizes[1]).toBe(fits);
    },
  );

  test("larger than ours ends the connection with 0x95, decided on the header", async () => {
    const limit = 64 * 1024;
    for (const level of [5, 4] as const) {
      const { client } = await broker().connect("large", { level });
      client.send(bytes("30", varint(limit)));
      await client.expectRefused(0x95);
    }
  });

  test("a packet of the limit is taken, one byte more is not", async () => {
    const limit = 64 * 1024;
    const { client } = await broker().connect("brim", { level: 4 });
    client.send(subscribe4(1, [["brim", 0]]));
    await client.expect("suback");
    const sized = (bytesTotal: number): Buffer => {
      const overhead = publish("brim", "").length + 2;
      return publish("brim", "x".repeat(bytesTotal - overhead));
    };
    for (const size of [limit - 1, limit]) {
      const sent = sized(size);
      expect(sent.length).toBe(size);
      client.send(sent);
      await client.expectBytes(sent);
    }
    client.send(sized(limit + 1));
    await client.expectRefused(0x95);
  });

  test("CONNECT that announces more than it may before login is closed on its header", async () => {
    const client = await broker().raw(5);
    client.send(bytes("10", varint(1_000_000)));
    for (const frame of await client.expectClosed()) expect(frame.type).toBe(2);
  });

  test("more user properties than allowed end the connection", async () => {
    const { client } = await broker().connect("many properties");
    const many = "26 0001 61 0001 62".repeat(65);
    client.send(publish5("x", "x", { properties: many }));
    const [answer] = await client.expectClosed();
    expect(answer?.bytes[0]).toBe(0xe0);
    expect(answer?.bytes[2]).toBeGreaterThanOrEqual(0x80);
    const { client: other } = await broker().connect("enough properties");
    const enough = "26 0001 61 0001 62".repeat(64);
    other.send(publish5("x", "x", { qos: 1, id: 1, properties: enough }));
    await other.expect("puback");
  });

  test("many packets in one read, and one packet over many reads, are the same", async () => {
    const { client } = await broker().connect("chunks", { level: 4 });
    client.send(subscribe4(1, [["chunks", 0]]));
    await client.expect("suback");
    const many = Array.from({ length: 500 }, (_, n) => publish("chunks", `${n}`));
    client.send(bytes(...many));
    for (const sent of many) await client.expectBytes(sent);
    const large = publish("chunks", "x".repeat(40_000));
    for (let at = 0; at < large.length; at += 997) {
      client.send(large.subarray(at, at + 997));
      await new Promise((resolve) => setImmediate(resolve));
    }
    await client.expectBytes(large);
  });

  test("a client that never finishes its CONNECT is closed in time", async () => {
    const client = await broker().raw(5);
    client.send(connect().subarray(0, 10));
    expect(await client.expectClosed(8000)).toEqual([]);
  });
});

test("[2.2.1-4] an identifier in use is not given to another message", async () => {
  const { client } = await broker().connect("in use", { clean: false, receiveMaximum: 3 });
  client.send(subscribe5(1, [["in-use", 1]]));
  await client.expect("suback");
  const p = await publisher();
  const ids = new Set<number>();
  for (let n = 1; n <= 30; n++) {
    p.send(packet("32", field("in-use"), u16(n), "78"));
    await p.expect("puback");
    const { messageId = 0 } = await client.expect("publish");
    expect(ids.has(messageId)).toBe(false);
    ids.add(messageId);
    // The first one stays unacked.
    if (n > 1) client.send(puback(messageId));
  }
  expect(ids.size).toBe(30);
});
