// What well-known tools and devices do, in raw bytes against the launched broker: each family needs
// something and has habits of its own (docs/reported-faults.md).

import { afterAll, beforeAll, expect, test } from "vitest";
import { LaunchedBroker } from "../../support/launched-broker.ts";
import {
  bytes,
  connect,
  field,
  puback,
  publish,
  publish5,
  pubrec,
  pubrel,
  subscribe4,
  subscribe5,
} from "../../support/mqtt-bytes.ts";
import {
  numbers,
  pause,
  publishNumbered,
  Receiver,
  waitUntil,
} from "../../support/numbered-run.ts";
import type { RawClient } from "../../support/raw-client.ts";

let broker: LaunchedBroker;

beforeAll(async () => {
  broker = await LaunchedBroker.open();
});
afterAll(async () => {
  await broker[Symbol.asyncDispose]();
});

type Level = 4 | 5;
type Will = { readonly topic: string; readonly payload: string; readonly flags: number };

async function withWill(
  clientId: string,
  level: Level,
  { topic, payload, flags }: Will,
): Promise<RawClient> {
  const client = await broker.raw(level);
  const rest = [level === 5 ? "00" : "", field(topic), field(payload)];
  client.send(connect({ level, clientId, flags, rest }));
  await client.expect("connack");
  return client;
}

async function watching(clientId: string, filter: string, qos: 0 | 1 = 0): Promise<RawClient> {
  const { client } = await broker.connect(clientId, { level: 4 });
  client.send(subscribe4(1, [[filter, qos]]));
  await client.expect("suback");
  return client;
}

/** Publishes at QoS 1 and waits for the acks. */
async function retainAll(client: RawClient, entries: ReadonlyArray<readonly [string, string]>) {
  for (const [index, [topic, payload]] of entries.entries()) {
    client.send(publish(topic, payload, { qos: 1, id: index + 1, retain: true }));
  }
  for (const _ of entries) await client.expect("puback");
}

test("Home Assistant: discovery in one burst with identifiers, again at a reload, ghosts are removed", async () => {
  const count = 1200;
  const { client: devices } = await broker.connect("ha devices", { level: 4 });
  const topicOf = (n: number): string => `homeassistant/sensor/n${n}/config`;
  const entries = numbers(1, count).map((n) => [topicOf(Number(n)), `{"n":${n}}`] as const);
  await retainAll(devices, entries);
  await broker.restart("kill");
  const { client: ha } = await broker.connect("ha", { level: 5 });
  ha.send(publish5("homeassistant/status", "online", { qos: 1, id: 9, retain: true }));
  await ha.expect("puback");
  for (const load of ["start", "reload"]) {
    // The overlap of the second filter brings its own retained copies; live there is one.
    ha.send(subscribe5(1, [["homeassistant/+/+/config", 0]], "0b 01"));
    await ha.expect("suback");
    const seen = new Set<string>();
    while (seen.size < count) {
      const { topic, retain, properties: told } = await ha.expect("publish");
      expect([retain, told?.subscriptionIdentifier], load).toEqual([true, 1]);
      seen.add(topic);
    }
    await ha.expectNothing();
  }
  const { client: admin } = await broker.connect("ha admin", { level: 4 });
  admin.send(publish(topicOf(7), "", { qos: 1, id: 1, retain: true }));
  await admin.expect("puback");
  expect((await ha.expect("publish")).payload.length).toBe(0);
  const { client: late } = await broker.connect("ha late", { level: 4 });
  late.send(subscribe4(1, [[topicOf(7), 0]]));
  await late.expect("suback");
  await late.expectNothing();
});

test.each([4, 5] as const)(
  "Zigbee2MQTT: a megabyte of devices, 200 filters, everything published at its start: level %s",
  async (level) => {
    const form = level === 5 ? publish5 : publish;
    const base = `zigbee${level}`;
    const watch = await watching(`z2m watch ${level}`, `${base}/#`);
    const { client: z2m } = await broker.connect(`z2m ${level}`, {
      level,
      ...(level === 5 && { connect: { properties: { maximumPacketSize: 2_000_000 } } }),
    });
    const filters = numbers(1, 200).map((n) => [`${base}/d${n}/+/+/get`, 0] as const);
    z2m.send(level === 5 ? subscribe5(1, filters) : subscribe4(1, filters));
    expect((await z2m.expect("suback")).granted).toHaveLength(200);
    const devices = Buffer.alloc(1_100_000, "d");
    z2m.send(form(`${base}/bridge/devices`, devices, { qos: 1, id: 1, retain: true }));
    const states = numbers(1, 300).map((n) => form(`${base}/s${n}`, "{}", { retain: true }));
    z2m.send(bytes(...states));
    await z2m.expect("puback");
    expect((await watch.expect("publish")).payload.length).toBe(devices.length);
    for (let n = 0; n < 300; n++) await watch.expect("publish");
    watch.send(publish(`${base}/d17/x/y/get`, "?"));
    await z2m.expectBytes(form(`${base}/d17/x/y/get`, "?"));
  },
);

test("Node-RED: a redeploy in milliseconds loses nothing of a session that stays", async () => {
  const receiver = new Receiver();
  const { client: first } = await broker.resume("node-red", { level: 4 });
  first.send(
    subscribe4(1, [
      ["red/#", 1],
      ["red/a", 2],
    ]),
  );
  await first.expect("suback");
  receiver.attach(first);
  const { client: p } = await broker.connect("red p", { level: 4 });
  const publishing = (async () => {
    for (let n = 0; n < 30; n++) {
      await publishNumbered(p, { topic: "red/a", count: 10, first: n * 10 + 1 });
      await pause(5);
    }
  })();
  for (let n = 0; n < 10; n++) {
    receiver.client.send("e000");
    await receiver.client.expectClosed();
    const { client, connack } = await broker.resume("node-red", { level: 4 });
    expect(connack.sessionPresent).toBe(true);
    receiver.attach(client);
    await pause(10);
  }
  await publishing;
  await receiver.until(300);
  // Two nodes with overlapping filters share the connection: one copy.
  expect(receiver.texts("red/a")).toEqual(numbers(1, 300));
  expect(receiver.arrivals.filter(({ dup }) => !dup)).toHaveLength(300);
});

test("Node-RED: an id copied to publisher and subscriber: they kick each other, what was acked arrives", async () => {
  const receiver = new Receiver();
  const rounds = 10;
  const { client: first } = await broker.resume("red twin", { level: 4 });
  first.send(
    subscribe4(1, [
      ["twin/x", 1],
      ["$share/flows/twin/x", 1],
    ]),
  );
  await first.expect("suback");
  for (let n = 1; n <= rounds; n++) {
    const { client: s } = await broker.resume("red twin", { level: 4 });
    receiver.attach(s);
    const { client: p } = await broker.resume("red twin", { level: 4 });
    await waitUntil(
      () => s.isClosed,
      2000,
      () => "the subscriber was not kicked",
    );
    // The publisher's connection is the session's now: it hears itself, and acks nothing.
    let isAcked = false;
    p.handle(({ type }) => {
      if (type === 4) isAcked = true;
    });
    p.send(publish("twin/x", `${n}`, { qos: 1, id: 1 }));
    await waitUntil(
      () => isAcked,
      5000,
      () => "no PUBACK",
    );
  }
  const { client: last } = await broker.resume("red twin", { level: 4 });
  receiver.attach(last);
  await receiver.until(rounds);
  expect(new Set(receiver.texts("twin/x"))).toEqual(new Set(numbers(1, rounds)));
  // One of the subscription, one of the group.
  await waitUntil(
    () => receiver.arrivals.filter(({ text }) => text === `${rounds}`).length >= 2,
    5000,
    () => "the group's copy did not come",
  );
});

test("Tasmota: cloned ids kick each other, LWT flaps, the log names the id; others are well", async () => {
  const honest = await watching("tas honest", "tas/other");
  const watch = await watching("tas watch", "tele/+/LWT", 1);
  const will = { topic: "tele/tas/LWT", payload: "Offline", flags: 0x2e };
  const rounds = 20;
  for (let n = 0; n < rounds; n++) {
    const device = await withWill("DVES_123456", 4, will);
    device.send(publish("cmnd/tas/POWER", ""));
    device.send(publish("tele/tas/LWT", "Online", { retain: true }));
    await device.expectNothing();
  }
  const heard: string[] = [];
  for (let n = 0; n < 2 * rounds - 1; n++) {
    const { payload, messageId } = await watch.expect("publish");
    heard.push(payload.toString());
    if (messageId !== undefined) watch.send(puback(messageId));
  }
  expect(heard.filter((text) => text === "Offline")).toHaveLength(rounds - 1);
  // The will of the one that was kicked never comes behind the word of the one that is there.
  expect(heard.at(-1)).toBe("Online");
  expect(broker.process.stderr()).toMatch(/DVES_123456/);
  const { client } = await broker.connect("tas p", { level: 4 });
  client.send(publish("tas/other", "x"));
  await honest.expectBytes(publish("tas/other", "x"));
});

test("ESPHome: a packet limit of 1 KB is kept, half-open links are noticed, QoS 0 sessions resume", async () => {
  const { client: p } = await broker.connect("esp p", { level: 4 });
  await retainAll(p, [
    ["esp/large", "x".repeat(5000)],
    ["esp/small", "x"],
  ]);
  const { client: esp } = await broker.connect("esp", {
    clean: false,
    connect: { properties: { maximumPacketSize: 1024, sessionExpiryInterval: 60 } },
  });
  esp.send(subscribe5(1, [["esp/+", 0]]));
  await esp.expect("suback");
  expect((await esp.expect("publish")).topic).toBe("esp/small");
  await esp.expectNothing();
  await esp.close();
  const back = await broker.raw();
  back.send(connect({ clientId: "esp", clean: false, keepAliveS: 1, properties: "11 0000003c" }));
  expect((await back.expect("connack")).sessionPresent).toBe(true);
  p.send(publish("esp/small", "live"));
  expect((await back.expect("publish")).payload.toString()).toBe("live");
  // It publishes into a dead socket and hears nothing: the broker ends it in 1.5 keep alives.
  await back.expectRefused(0x8d, 2500);
});

test("Sparkplug: NDEATH comes at a takeover and before the new NBIRTH; STATE and $sparkplug are kept", async () => {
  const host = await watching("spb host", "spBv1.0/#", 1);
  const death = (n: number): Will => ({
    topic: "spBv1.0/g/NDEATH/e",
    payload: `bdSeq ${n}`,
    flags: 0x0e,
  });
  const born = async (n: number): Promise<RawClient> => {
    const node = await withWill("spb node", 5, death(n));
    node.send(publish5("spBv1.0/g/NBIRTH/e", `bdSeq ${n}`));
    node.send(publish5("spBv1.0/g/NDATA/e", Buffer.from([0, 0xff, n])));
    await node.expectNothing();
    return node;
  };
  await born(1);
  await born(2);
  const third = await born(3);
  third.drop();
  const seen: string[] = [];
  for (let n = 0; n < 9; n++) {
    const { topic, payload, messageId } = await host.expect("publish");
    const kind = topic.split("/")[2];
    if (kind !== "NDATA") seen.push(`${kind} ${payload.toString().slice(-1)}`);
    if (messageId !== undefined) host.send(puback(messageId));
  }
  expect(seen).toEqual(["NBIRTH 1", "NDEATH 1", "NBIRTH 2", "NDEATH 2", "NBIRTH 3", "NDEATH 3"]);
  const { client: app } = await broker.connect("spb app", { level: 4 });
  await retainAll(app, [
    ["spBv1.0/STATE/h", "online"],
    ["$sparkplug/certificates/spBv1.0/g/NBIRTH/e", "birth"],
  ]);
  const late = await watching("spb late", "$sparkplug/#");
  expect((await late.expect("publish")).payload.toString()).toBe("birth");
});

test("AWS-style clients: a repeat without DUP is acked, 50 filters in one SUBSCRIBE, no backoff", async () => {
  const { client } = await broker.resume("aws", { level: 4 });
  const filters = numbers(1, 50).map((n) => [`aws/${n}/+`, 1] as const);
  client.send(subscribe4(1, filters));
  expect((await client.expect("suback")).granted).toEqual(filters.map(() => 1));
  const sent = publish("aws/shadow", "x", { qos: 1, id: 7 });
  client.send(sent);
  await client.expectBytes(puback(7));
  client.drop();
  for (let n = 0; n < 20; n++) {
    const { client: again, connack } = await broker.resume("aws", { level: 4 });
    expect(connack.sessionPresent).toBe(true);
    again.send(sent);
    await again.expectBytes(puback(7));
  }
});

test("Paho: a whole queue at once, resends after a clean start, aliases alone after a reconnect", async () => {
  const watch = await watching("paho watch", "paho/#");
  const { client } = await broker.connect("paho", { level: 4 });
  const ids = numbers(1, 500).map(Number);
  client.send(bytes(...ids.map((id) => publish("paho/q", `${id}`, { qos: 1, id }))));
  for (const id of ids) expect((await client.expect("puback")).messageId).toBe(id);
  for (const id of ids) expect((await watch.expect("publish")).payload.toString()).toBe(`${id}`);
  client.send(publish("paho/q", "half", { qos: 2, id: 600 }));
  await client.expectBytes(pubrec(600));
  client.drop();
  // A clean session forgot the exchange: what it resends is new, and is answered.
  const { client: clean } = await broker.connect("paho", { level: 4 });
  clean.send(publish("paho/q", "half", { qos: 2, id: 600, dup: true }));
  await clean.expectBytes(pubrec(600));
  clean.send(bytes(pubrel(600), pubrel(601)));
  expect((await clean.expect("pubcomp")).messageId).toBe(600);
  expect((await clean.expect("pubcomp")).messageId).toBe(601);
  const { client: five } = await broker.connect("paho five");
  five.send(publish5("", "stored with its alias", { qos: 1, id: 1, properties: "23 0001" }));
  await five.expectRefused(0x82);
});

test("MQTT Explorer: # at once shows no $-topic, a refusal stands in SUBACK, a wildcard publish ends it", async () => {
  const { client } = await broker.connect("explorer");
  client.send(
    subscribe5(1, [
      ["#", 0],
      ["explorer/#/x", 0],
    ]),
  );
  expect((await client.expect("suback")).granted).toEqual([0, 0x8f]);
  const { client: p } = await broker.connect("explorer p", { level: 4 });
  p.send(publish("$explorer/x", "hidden"));
  p.send(publish("explorer/x", "kept", { retain: true }));
  p.send(publish("explorer/x", "", { retain: true }));
  const next = async (): Promise<string> => {
    for (;;) {
      const { topic, payload } = await client.expect("publish");
      expect(topic.startsWith("$")).toBe(false);
      if (topic === "explorer/x") return payload.toString();
    }
  };
  expect([await next(), await next()]).toEqual(["kept", ""]);
  client.send(publish5("explorer/#", "x"));
  // What others publish for `#` may stand before it.
  const answer = (await client.expectClosed()).find(({ bytes }) => bytes[0] === 0xe0);
  expect([0x81, 0x90]).toContain(answer?.bytes[2]);
});

test("Telegraf: acks only behind its flush, no SUBSCRIBE after Session Present, two instances", async () => {
  const { client } = await broker.resume("telegraf", { level: 4 });
  client.send(subscribe4(1, [["tg/#", 1]]));
  await client.expect("suback");
  const { client: p } = await broker.connect("tg p", { level: 4 });
  await publishNumbered(p, { topic: "tg/m", count: 2500 });
  const held: number[] = [];
  const texts: string[] = [];
  const drain = async (from: RawClient, flushMs: number, upTo: number): Promise<void> => {
    while (texts.length < upTo) {
      // Nothing is acked until the outputs have flushed.
      while (held.length < 1000 && texts.length < upTo) {
        const { payload, messageId } = await from.expect("publish");
        texts.push(payload.toString());
        held.push(messageId as number);
      }
      await pause(flushMs);
      from.send(bytes(...held.splice(0).map((id) => puback(id))));
    }
  };
  await drain(client, 300, 1000);
  // A second instance with the same id: the first one is closed, nothing is lost.
  const { client: second, connack } = await broker.resume("telegraf", { level: 4 });
  expect(connack.sessionPresent).toBe(true);
  await waitUntil(
    () => client.isClosed,
    2000,
    () => "the first instance is still there",
  );
  const receiver = new Receiver();
  receiver.attach(second);
  await waitUntil(
    () => new Set([...texts, ...receiver.texts()]).size === 2500,
    10_000,
    () => `${new Set([...texts, ...receiver.texts()]).size} of 2500`,
  );
  expect(receiver.texts().at(-1)).toBe("2500");
});
