// Retained messages.

import { expect, test } from "vitest";
import { sharedBroker } from "../support/launched-broker.ts";
import { puback, publish, publish5, subscribe4, subscribe5 } from "../support/mqtt-bytes.ts";
import type { ProtocolLevel, RawClient } from "../support/raw-client.ts";

const broker = sharedBroker();

let count = 0;

async function connected(level: ProtocolLevel = 4, clean = true): Promise<RawClient> {
  count++;
  return (await broker().connect(`client ${count}`, { level, clean })).client;
}

async function retain(topic: string, payload: string, qos: 0 | 1 | 2 = 1): Promise<void> {
  const client = await connected();
  client.send(publish(topic, payload, { qos, id: qos === 0 ? 0 : 1, retain: true }));
  // QoS 0 has no ack: that of a message behind it shows that its retained write is done.
  if (qos === 0) client.send(publish("behind", "", { qos: 1, id: 1 }));
  await client.next();
  await client.close();
}

/** What a new subscriber gets of the retained messages. */
async function read(filter: string, qos: 0 | 1 | 2 = 2): Promise<string[]> {
  const client = await connected();
  client.send(subscribe4(1, [[filter, qos]]));
  await client.expect("suback");
  const found: string[] = [];
  // Retained messages come in pages behind SUBACK; a marker of our own comes behind them.
  client.handle((frame) => {
    const got = frame.packet;
    if (got?.cmd !== "publish") return;
    found.push(`${got.topic} ${got.payload} q${got.qos} r${Number(got.retain)}`);
  });
  await new Promise((resolve) => setTimeout(resolve, 150));
  await client.close();
  return found;
}

test("[3.3.1-5] RETAIN 1 keeps the message and replaces the one before", async () => {
  await retain("r/1", "old");
  await retain("r/1", "new");
  expect(await read("r/1")).toEqual(["r/1 new q1 r1"]);
});

test("[3.3.1-6] [3.3.1-7] an empty payload removes it and still goes to subscribers", async () => {
  await retain("r/2", "x");
  const client = await connected();
  client.send(subscribe4(1, [["r/2", 1]]));
  await client.expect("suback");
  await client.expectBytes(publish("r/2", "x", { qos: 1, id: 1, retain: true }));
  await retain("r/2", "");
  await client.expectBytes(publish("r/2", "", { qos: 1, id: 2 }));
  expect(await read("r/2")).toEqual([]);
});

test("[3.3.1-8] RETAIN 0 leaves the stored one alone", async () => {
  await retain("r/3", "kept");
  const client = await connected();
  client.send(publish("r/3", "passing", { qos: 1, id: 1 }));
  await client.expect("puback");
  client.send(publish("r/3", "", { qos: 1, id: 1 }));
  await client.expect("puback");
  expect(await read("r/3")).toEqual(["r/3 kept q1 r1"]);
});

test("[3.3.1-9..11] [3.8.4-4] Retain Handling: always, only when new, never", async () => {
  await retain("r/4", "x", 0);
  const client = await connected(5);
  const retained = publish5("r/4", "x", { retain: true });
  const handling = (value: number): number => value << 4;
  client.send(subscribe5(1, [["r/4", handling(1)]]));
  await client.expect("suback");
  await client.expectBytes(retained);
  client.send(subscribe5(2, [["r/4", handling(1)]]));
  await client.expect("suback");
  await client.expectSilence(150);
  client.send(subscribe5(3, [["r/4", handling(0)]]));
  await client.expect("suback");
  await client.expectBytes(retained);
  client.send(subscribe5(4, [["r/4", handling(2)]]));
  await client.expect("suback");
  await client.expectSilence(150);
  const other = await connected(5);
  other.send(subscribe5(1, [["r/4", handling(2)]]));
  await other.expect("suback");
  await other.expectSilence(150);
});

test.each([true, false])(
  "[3.3.1-9] a live message without RETAIN replaces none, one with RETAIN the older: clean %s",
  async (clean) => {
    for (const n of [0, 1, 2]) await retain(`r/9/${n}`, "kept");
    count++;
    const options = { clean, receiveMaximum: 1 };
    const { client } = await broker().connect(`client ${count}`, options);
    client.send(subscribe5(1, [["r/9/#", 1]]));
    await client.expect("suback");
    const first = await client.expect("publish");
    // One slot, and it is taken: what is retained waits, and has been read.
    const [passing, newer] = [0, 1, 2]
      .map((n) => `r/9/${n}`)
      .filter((topic) => topic !== first.topic);
    const other = await connected();
    for (const [topic, retained] of [
      [passing, false],
      [newer, true],
    ] as const) {
      other.send(publish(topic!, "live", { qos: 1, id: 1, retain: retained }));
      await other.expect("puback");
    }
    const got: Record<string, string[]> = { [passing!]: [], [newer!]: [] };
    const isOver = () => got[passing!]!.length === 2 && got[newer!]!.includes("live 0");
    for (let id = first.messageId!; !isOver(); ) {
      client.send(puback(id));
      const { topic, payload, retain: flag, messageId } = await client.expect("publish");
      got[topic]!.push(`${payload} ${Number(flag)}`);
      id = messageId!;
    }
    // All that came is acked: nothing more would wait for a slot.
    client.send(puback(got[passing!]!.length + got[newer!]!.length + 1));
    await client.expectSilence(150);
    expect(got[passing!]!.sort()).toEqual(["kept 1", "live 0"]);
    // The older one may have come before; behind the newer one it does not.
    expect(got[newer!]!.at(-1)).toBe("live 0");
  },
);

test.each([4, 5] as const)("SUBACK comes before retained messages: level %s", async (level) => {
  await retain("r/5", "x", 0);
  for (const clean of [true, false]) {
    const client = await connected(level, clean);
    client.send(level === 5 ? subscribe5(1, [["r/5", 0]]) : subscribe4(1, [["r/5", 0]]));
    await client.expect("suback");
    const form = { retain: true, ...(level === 5 && { properties: "" }) };
    await client.expectBytes(publish("r/5", "x", form));
  }
});

test("[311:3.3.1-6] in 3.1.1 every SUBSCRIBE brings it again", async () => {
  await retain("r/5b", "x", 0);
  const client = await connected(4);
  for (const id of [1, 2]) {
    client.send(subscribe4(id, [["r/5b", 0]]));
    await client.expect("suback");
    await client.expectBytes(publish("r/5b", "x", { retain: true }));
  }
});

test.each([true, false])(
  "[3.3.1-12] [3.3.1-13] [311:3.3.1-8] [311:3.3.1-9] Retain As Published decides RETAIN of a live one: clean start %s",
  async (clean) => {
    const topic = `r/6/${clean}`;
    const plain = await connected(5, clean);
    plain.send(subscribe5(1, [[topic, 0x01]]));
    await plain.expect("suback");
    const asPublished = await connected(5, clean);
    asPublished.send(subscribe5(1, [[topic, 0x09]]));
    await asPublished.expect("suback");
    await retain(topic, "x");
    await plain.expectBytes(publish5(topic, "x", { qos: 1, id: 1 }));
    await asPublished.expectBytes(publish5(topic, "x", { qos: 1, id: 1, retain: true }));
    // Because of a SUBSCRIBE it carries RETAIN 1 in any case.
    const late = await connected(5, clean);
    late.send(subscribe5(1, [[topic, 0x01]]));
    await late.expect("suback");
    await late.expectBytes(publish5(topic, "x", { qos: 1, id: 1, retain: true }));
  },
);

test("delivered at the lower of its own and the granted QoS", async () => {
  for (const stored of [0, 1, 2] as const) {
    await retain(`r/7/${stored}`, "x", stored);
    for (const granted of [0, 1, 2] as const) {
      const qos = Math.min(stored, granted);
      expect(await read(`r/7/${stored}`, granted)).toEqual([`r/7/${stored} x q${qos} r1`]);
    }
  }
});

test("its expiry is honoured and counted down", async () => {
  const client = await connected(5);
  const expiring = (topic: string, seconds: string): Buffer =>
    publish5(topic, "x", { qos: 1, id: 1, retain: true, properties: `02 ${seconds}` });
  client.send(expiring("r/8/short", "00000001"));
  await client.expect("puback");
  client.send(expiring("r/8/long", "0000003c"));
  await client.expect("puback");
  await new Promise((resolve) => setTimeout(resolve, 1500));
  client.send(subscribe5(1, [["r/8/+", 0]]));
  await client.expect("suback");
  const got = await client.expect("publish");
  expect(got.topic).toBe("r/8/long");
  const left = got.properties?.messageExpiryInterval ?? 0;
  expect(left).toBeGreaterThanOrEqual(57);
  expect(left).toBeLessThanOrEqual(59);
  await client.expectSilence(150);
});

test("properties and user properties are kept with it, in their order", async () => {
  const props = "03 0001 74 26 0001 62 0001 31 26 0001 61 0001 32 26 0001 62 0001 31";
  const client = await connected(5);
  client.send(publish5("r/9", "x", { qos: 1, id: 1, retain: true, properties: props }));
  await client.expect("puback");
  client.send(subscribe5(1, [["r/9", 0]]));
  await client.expect("suback");
  await client.expectBytes(publish5("r/9", "x", { retain: true, properties: props }));
});

test("[3.3.4-3] it carries the identifier of the subscription", async () => {
  await retain("r/10", "x", 0);
  for (const clean of [true, false]) {
    const client = await connected(5, clean);
    client.send(subscribe5(1, [["r/10", 0]], "0b 8001"));
    await client.expect("suback");
    await client.expectBytes(publish5("r/10", "x", { retain: true, properties: "0b 8001" }));
  }
});

test("a wildcard brings all that match, and none of the $-topics", async () => {
  for (const topic of ["r/11/a", "r/11/b/c", "r/11"]) await retain(topic, topic);
  expect((await read("r/11/#", 0)).sort()).toEqual([
    "r/11 r/11 q0 r1",
    "r/11/a r/11/a q0 r1",
    "r/11/b/c r/11/b/c q0 r1",
  ]);
  expect(await read("r/11/+", 0)).toEqual(["r/11/a r/11/a q0 r1"]);
  await retain("$custom/x", "x");
  expect((await read("#", 0)).filter((line) => line.startsWith("$"))).toEqual([]);
  expect(await read("$custom/#", 0)).toEqual(["$custom/x x q0 r1"]);
});
