// Faults that users of MQTT brokers have met, against the launched broker (docs/reported-faults.md):
// illegal packets, aliases, overlapping filters, order of acks.

import { readdirSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isLong } from "../../support/amount.ts";
import { badConnects, badPackets, frame } from "../../support/bad-packets.ts";
import { LaunchedBroker } from "../../support/launched-broker.ts";
import {
  bytes,
  connect,
  field,
  publish,
  publish5,
  pubrel,
  subscribe4,
  subscribe5,
} from "../../support/mqtt-bytes.ts";
import { waitUntil } from "../../support/numbered-run.ts";
import type { RawClient } from "../../support/raw-client.ts";

type Level = 4 | 5;
const levels = [4, 5] as const;

let broker: LaunchedBroker;

beforeAll(async () => {
  broker = await LaunchedBroker.open();
});
afterAll(async () => {
  await broker[Symbol.asyncDispose]();
});

async function connected(clientId: string, level: Level = 5): Promise<RawClient> {
  return (await broker.connect(clientId, { level })).client;
}

async function subscribed(clientId: string, filter: string, qos: 0 | 1 | 2, level: Level = 5) {
  const client = await connected(clientId, level);
  const filters = [[filter, qos]] as const;
  client.send(level === 5 ? subscribe5(1, filters) : subscribe4(1, filters));
  await client.expect("suback");
  return client;
}

describe("R108: illegal packets are told from legal ones", () => {
  test.each(badPackets)(
    "on an open connection of level $level: $title",
    async ({ title, level, rows }) => {
      const faults = rows.map(async ([name, text, reasonCode]) => {
        const client = await connected(`r108 ${title} ${level} ${name}`, level);
        client.send(frame(text));
        // A second CONNECT is a protocol error whatever it holds.
        const reason = text.startsWith("1") ? 0x82 : reasonCode;
        await client.expectRefused(reason).catch((error: unknown) => {
          throw new Error(`${name}: ${text}`, { cause: error });
        });
      });
      await Promise.all(faults);
      expect(rows.length).toBeGreaterThan(5);
    },
  );

  test("as the first packet: CONNACK in the form of its level with the reason, or just the end", async () => {
    for (const [name, text, reasonCode] of badConnects) {
      const sent = frame(text);
      const client = await broker.raw();
      client.send(sent);
      const frames = await client.expectClosed();
      const codes = frames.map(({ bytes: answer }) => [answer[0], answer[3]]);
      const returnCode = { 132: 1, 133: 2 }[reasonCode];
      const allowed = [[], [[0x20, reasonCode]], [[0x20, returnCode]]];
      expect(allowed, name).toContainEqual(codes);
    }
  });
});

test("R110: aliases end with their connection; what is stored has its topic", async () => {
  const { client: s } = await broker.resume("s r110");
  s.send(subscribe5(1, [["r110/#", 1]]));
  await s.expect("suback");
  await s.close();
  const first = await connected("p r110");
  first.send(publish5("r110/a", "1", { qos: 1, id: 1, properties: "23 0001" }));
  await first.expect("puback");
  first.send(publish5("", "2", { qos: 1, id: 2, properties: "23 0001" }));
  await first.expect("puback");
  await first.close();
  const again = await connected("p r110");
  again.send(publish5("", "3", { qos: 1, id: 3, properties: "23 0001" }));
  await again.expectRefused(0x82);
  const { client: back } = await broker.resume("s r110");
  for (const text of ["1", "2"]) {
    const { topic, payload } = await back.expect("publish");
    expect([topic, payload.toString()]).toEqual(["r110/a", text]);
  }
  await back.expectNothing();
});

test("R111: a client's huge Topic Alias Maximum buys it no more than our own", async () => {
  const { client } = await broker.connect("r111", {
    connect: { properties: { topicAliasMaximum: 65_535 } },
  });
  client.send(subscribe5(1, [["r111/#", 0]]));
  await client.expect("suback");
  const p = await connected("p r111");
  let aliases = 0;
  for (let n = 0; n < 40; n++) p.send(publish5(`r111/${n}`, "x"));
  for (let n = 0; n < 40; n++) {
    const { properties } = await client.expect("publish");
    if (properties?.topicAlias !== undefined) aliases++;
  }
  expect(aliases).toBe(16);
});

test("R111: a property twice in CONNECT is refused there, not later", async () => {
  const client = await broker.raw();
  client.send(connect({ clientId: "twice", properties: "22 0001 22 0001" }));
  const [connack] = await client.expectClosed();
  expect(connack?.bytes.subarray(0, 4)).toEqual(
    bytes("20", connack?.bytes.subarray(1, 2) ?? "", "00 82"),
  );
});

test.each(["21 0001", "11 00000001", "0b 01", "12 0001 61", "7f 00"])(
  "R113: a PUBLISH with property %s ends its sender, its readers notice nothing",
  async (property) => {
    const name = property.replaceAll(" ", "");
    const readers = await Promise.all([
      subscribed(`four ${name}`, "r113", 1, 4),
      subscribed(`five ${name}`, "r113", 1),
    ]);
    const sender = await connected(`p ${name}`);
    sender.send(publish5("r113", "x", { qos: 1, id: 1, properties: property }));
    const [answer] = await sender.expectClosed();
    expect([0x81, 0x82]).toContain(answer?.bytes[2]);
    for (const reader of readers) await reader.expectNothing();
  },
);

test("R114: 3.1.1 with an empty id and clean session 0: 0x02, then the end, and no descriptor stays", async () => {
  const sent = connect({ level: 4, clientId: "", clean: false });
  const descriptors = (): number => readdirSync(`/proc/${broker.process.pid}/fd`).length;
  const before = descriptors();
  for (let n = 0; n < (isLong ? 10_000 : 300); n++) {
    const client = await broker.raw(4);
    client.send(sent);
    await client.expectBytes("20 02 00 02");
    expect(await client.expectClosed()).toEqual([]);
    await client.close();
  }
  await waitUntil(
    () => descriptors() <= before,
    5000,
    () => `${descriptors()}, once ${before}`,
  );
});

describe.each(levels)("overlapping filters, MQTT level %i", (level) => {
  test.each([
    ["narrow first", ["r116/a", 1], ["r116/+", 0]],
    ["wide first", ["r116/+", 0], ["r116/a", 1]],
  ] as const)("R116 R135: one copy at the highest QoS: %s", async (name, one, two) => {
    for (const clean of [true, false]) {
      const { client } = await broker.connect(`r116 ${name} ${level} ${clean}`, { level, clean });
      for (const [index, filter] of [one, two].entries()) {
        const id = index + 1;
        client.send(level === 5 ? subscribe5(id, [filter]) : subscribe4(id, [filter]));
        await client.expect("suback");
      }
      const p = await connected("p r116", 4);
      p.send(publish("r116/a", "x", { qos: 2, id: 1 }));
      await p.expect("pubrec");
      const form = level === 5 ? publish5 : publish;
      await client.expectBytes(form("r116/a", "x", { qos: 1, id: 1 }));
      await client.expectNothing();
      await client.close();
    }
  });

  test("R55: acks leave in the order of what they answer, stored or not", async () => {
    const { client: durable } = await broker.resume(`r55 ${level}`, { level });
    const filters = [["r55/stored", 2]] as const;
    durable.send(level === 5 ? subscribe5(1, filters) : subscribe4(1, filters));
    await durable.expect("suback");
    await durable.close();
    const p = await connected(`p r55 ${level}`, level);
    const form = level === 5 ? publish5 : publish;
    const ids = Array.from({ length: 50 }, (_, n) => n + 1);
    const sent = ids.map((id) => {
      const topic = id % 3 === 0 ? "r55/unwanted" : "r55/stored";
      return form(topic, `${id}`, { qos: id % 2 === 0 ? 2 : 1, id, retain: id % 7 === 0 });
    });
    p.send(bytes(...sent));
    for (const id of ids) {
      const { type, bytes: ack } = await p.next();
      expect([type, ack.readUInt16BE(2)]).toEqual([id % 2 === 0 ? 5 : 4, id]);
    }
    const evens = ids.filter((id) => id % 2 === 0);
    p.send(bytes(...evens.map((id) => pubrel(id))));
    for (const id of evens) expect((await p.expect("pubcomp")).messageId).toBe(id);
  });
});

test("R67: a broker that is set so refuses control characters in topics, and its readers go on", async () => {
  await using strict = await LaunchedBroker.open(["--set", "mqtt.refuseControlCharacters=true"]);
  const { client: reader } = await strict.connect("reader", { level: 4 });
  reader.send(subscribe4(1, [["r67/#", 1]]));
  await reader.expect("suback");
  for (const character of ["\u0001", "\u001f", "\u007f", "\u009f"]) {
    const topic = `r67/${character}`;
    const { client: five } = await strict.connect("five");
    five.send(publish5(topic, "x", { qos: 1, id: 1, retain: true }));
    await five.expectRefused(0x90);
    const { client: four } = await strict.connect("four", { level: 4 });
    four.send(publish(topic, "x", { qos: 1, id: 1, retain: true }));
    await four.expectRefused(0x90);
    const { client: asking } = await strict.connect("asking");
    asking.send(
      subscribe5(1, [
        [topic, 0],
        ["r67/fine", 0],
      ]),
    );
    expect((await asking.expect("suback")).granted).toEqual([0x8f, 0]);
  }
  await reader.expectNothing();
});

test("R117: Retain As Published decides about the flag of what comes live", async () => {
  const { client } = await broker.connect("r117");
  for (const [index, [filter, options]] of [
    ["r117/keeps", 0x08],
    ["r117/drops", 0],
  ].entries() as Iterable<[number, [string, number]]>) {
    client.send(subscribe5(index + 1, [[filter, options]]));
    await client.expect("suback");
  }
  const p = await connected("p r117", 4);
  for (const [topic, retain] of [
    ["r117/keeps", true],
    ["r117/keeps", false],
    ["r117/drops", true],
  ] as const) {
    p.send(publish(topic, "x", { retain }));
    await client.expectBytes(publish5(topic, "x", { retain: retain && topic === "r117/keeps" }));
  }
});

test("R117: a bridge both ways makes no loop with No Local, nor with levels 131 and 132", async () => {
  // Each end forwards what it hears; the other broker is the test itself.
  const { client: five } = await broker.connect("bridge five");
  five.send(subscribe5(1, [["r117/loop", 0x05]]));
  await five.expect("suback");
  for (const [level, name] of [
    [0x83, "MQIsdp"],
    [0x84, "MQTT"],
  ] as const) {
    const old = await broker.raw(name === "MQTT" ? 4 : 3);
    const sent = connect({ level: name === "MQTT" ? 4 : 3, clientId: `bridge ${level}` });
    sent[sent.indexOf(name) + name.length] = level;
    old.send(sent);
    await old.expectBytes("20 02 00 00");
    old.send(subscribe4(1, [["r117/loop", 1]]));
    await old.expect("suback");
    five.send(publish5("r117/loop", "from five", { qos: 1, id: 1 }));
    await five.expect("puback");
    await old.expectBytes(publish("r117/loop", "from five", { qos: 1, id: 1 }));
    // What a bridge of these levels publishes does not come back to it.
    old.send(publish("r117/loop", "from old", { qos: 1, id: 1 }));
    await old.expectBytes("40 02 00 01");
    const { payload } = await five.expect("publish");
    expect(payload.toString()).toBe("from old");
    await five.expectNothing();
    await old.expectNothing();
    await old.close();
  }
});

test.each(levels)(
  "a bridge of Mosquitto may tell its state under $SYS, as its will too: MQTT level %i",
  async (level) => {
    const topic = `$SYS/broker/connection/host.b${level}/state`;
    const { client: watch } = await broker.connect("bridge watch", { level: 4 });
    watch.send(subscribe4(1, [[topic, 1]]));
    await watch.expect("suback");
    const bridge = await broker.raw(level);
    const rest = [level === 5 ? "00" : "", field(topic), field("0")];
    const sent = connect({ level, clientId: `host.b${level}`, flags: 0x2e, rest });
    if (level === 4) sent[sent.indexOf("MQTT") + 4] = 0x84;
    bridge.send(sent);
    expect((await bridge.next()).bytes[3]).toBe(0);
    const form = level === 5 ? publish5 : publish;
    bridge.send(form(topic, "1", { qos: 1, id: 1, retain: true }));
    await bridge.expect("puback");
    await watch.expectBytes(publish(topic, "1", { qos: 1, id: 1 }));
    bridge.drop();
    await watch.expectBytes(publish(topic, "0", { qos: 1, id: 2 }));
    // The values of the broker's own are nobody else's.
    const { client: forger } = await broker.connect("forger", { level: 5 });
    forger.send(publish5("$SYS/broker/version", "mine", { qos: 1, id: 1 }));
    expect((await forger.expect("puback")).reasonCode).toBe(0x87);
  },
);
