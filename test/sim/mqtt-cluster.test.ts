// MQTT served by every node of a cluster, on simulated machines (docs/decisions/093).

import { afterEach, expect, test } from "vitest";
import { SeededRandom } from "../../src/base/index.ts";
import { hashPassword } from "../../src/broker/index.ts";
import type { RunningNode } from "../../src/node/node.ts";
import { MqttCluster, type MqttMachine } from "../support/mqtt-cluster.ts";
import { publishPacket, SimClient, subscribePacket } from "../support/sim-client.ts";

let cluster: MqttCluster | undefined;
afterEach(() => cluster?.end());

async function start(seed: string, config: object = {}): Promise<MqttCluster> {
  cluster = new MqttCluster(seed, config);
  await cluster.start();
  return cluster;
}

test("each node of a cluster serves a client, whoever leads", async () => {
  const { machines, clock } = await start("each node serves");
  for (const machine of machines) {
    const client = await SimClient.connect(machine, `client of ${machine.name}`);
    const topic = `at/${machine.name}`;
    const suback = await client.ask(subscribePacket(topic, 2), "suback");
    expect(suback).toMatchObject({ reasonCodes: [2] });
    for (const qos of [0, 1, 2] as const) client.say(publishPacket(topic, `qos ${qos}`, qos));
    await client.has("pubrec");
    client.say({ type: "pubrel", packetId: 1, reasonCode: 0, properties: {} });
    await client.has("pubcomp");
    await clock.runUntil(() => client.payloads(topic).length === 3);
    expect(client.payloads(topic).sort()).toEqual(["qos 0", "qos 1", "qos 2"]);
  }
});

test("a session that lost its node goes on at another, with all that was acked", async () => {
  const { machines, clock } = await start("its node dies");
  const [first, second] = machines as [MqttMachine, MqttMachine];
  const reader = await SimClient.connect(first, "reader");
  await reader.ask(subscribePacket("t/#", 2), "suback");
  reader.drop();
  const writer = await SimClient.connect(first, "writer");
  for (const text of ["one", "two", "three"]) {
    await writer.ask(publishPacket(`t/${text}`, text, 1), "puback");
  }
  first.die("power");
  const again = await SimClient.connect(second, "reader");
  expect(again.received[0]).toMatchObject({ sessionPresent: true });
  const texts = () => ["one", "two", "three"].flatMap((text) => again.payloads(`t/${text}`));
  await clock.runUntil(() => texts().length === 3);
  expect(texts()).toEqual(["one", "two", "three"]);
});

const clean = { cleanStart: true, properties: {} } as const;

test("SUBACK at one node means that what is acked at any other comes, in order and once", async () => {
  const { machines, clock } = await start("live routes");
  const readers: SimClient[] = [];
  for (const { name } of machines) {
    const reader = await SimClient.connect(
      cluster?.machine(name) as MqttMachine,
      `to ${name}`,
      clean,
    );
    await reader.ask(subscribePacket("live/#", 1), "suback");
    // Overlapping: still one copy.
    await reader.ask(subscribePacket("live/+", 1), "suback");
    readers.push(reader);
  }
  const texts: string[] = [];
  for (const machine of machines) {
    const writer = await SimClient.connect(machine, `from ${machine.name}`, clean);
    for (let number = 0; number < 20; number++) {
      const text = `${machine.name} ${number}`;
      texts.push(text);
      const puback = await writer.ask(publishPacket("live/t", text, 1), "puback");
      expect(puback).toMatchObject({ reasonCode: 0 });
    }
  }
  await clock.runUntil(() =>
    readers.every((each) => each.payloads("live/t").length >= texts.length),
  );
  await clock.advance(1_000);
  for (const reader of readers) {
    const got = reader.payloads("live/t");
    expect([...got].sort()).toEqual([...texts].sort());
    for (const { name } of machines) {
      const ofOne = (text: string): boolean => text.startsWith(name);
      expect(got.filter(ofOne)).toEqual(texts.filter(ofOne));
    }
  }
});

test("users and rules that change at one node hold at every other", async () => {
  const { machines, clock } = await start("users and rules", {
    authentication: { chain: ["users"] },
    authorization: { sources: ["rules"] },
  });
  const [first, second] = machines as [MqttMachine, MqttMachine];
  const security = (machine: MqttMachine) => (machine.node as RunningNode).security;
  const hash = await hashPassword(Buffer.from("secret"), new SeededRandom(1));
  await clock.complete(security(first).users.put("mia", hash, 1));
  await clock.complete(security(first).replaceRules("everyone\ntopic readwrite #\n"));
  const login = { userName: "mia", password: Buffer.from("secret"), ...clean };
  const client = await SimClient.connect(second, "c", login);
  expect(client.received[0]).toMatchObject({ type: "connack", reasonCode: 0 });
  await clock.runUntil(() => security(second).rules.text !== "");
  const allowed = await client.ask(publishPacket("t", "x", 1), "puback");
  expect(allowed).toMatchObject({ reasonCode: 0x10 });
  await clock.complete(security(first).replaceRules("everyone\ntopic deny #\n"));
  await clock.runUntil(() => security(second).rules.text === "everyone\ntopic deny #\n");
  const denied = await client.ask(publishPacket("t", "x", 1), "puback");
  expect(denied).toMatchObject({ reasonCode: 0x87 });
  await clock.complete(security(first).users.remove("mia"));
  await clock.runUntil(() => client.received.some(({ type }) => type === "disconnect"));
  expect(client.received.at(-1)).toMatchObject({ reasonCode: 0x87 });
  const again = await SimClient.connect(second, "c", login);
  expect(again.received[0]).not.toMatchObject({ reasonCode: 0 });
});

test("a node stops in bounded time, also where no majority takes what its sessions would write", async () => {
  const { machines, clock } = await start("no majority");
  const [first, second, third] = machines as [MqttMachine, MqttMachine, MqttMachine];
  const reader = await SimClient.connect(first, "reader");
  await reader.ask(subscribePacket("t", 1), "suback");
  second.die("kill");
  third.die("kill");
  reader.say(publishPacket("t", "never acked", 1));
  const sinceMs = clock.elapsedMs();
  await first.stop();
  expect(clock.elapsedMs() - sinceMs).toBeLessThan(60_000);
  expect(reader.received.some(({ type }) => type === "puback")).toBe(false);
});

test("a shared subscription of a durable session is refused, that of one in memory is dealt over all nodes", async () => {
  const { machines, clock } = await start("shared");
  const [first, second, third] = machines as [MqttMachine, MqttMachine, MqttMachine];
  const durable = await SimClient.connect(first, "durable");
  const refused = await durable.ask(subscribePacket("$share/g/t", 1), "suback");
  expect(refused).toMatchObject({ reasonCodes: [0x9e] });
  const members: SimClient[] = [];
  for (const machine of [first, second]) {
    const member = await SimClient.connect(machine, `at ${machine.name}`, clean);
    await member.ask(subscribePacket("$share/g/t", 1), "suback");
    members.push(member);
  }
  const writer = await SimClient.connect(third, "writer", clean);
  const texts = Array.from({ length: 10 }, (_, at) => `message ${at}`);
  for (const text of texts) await writer.ask(publishPacket("t", text, 1), "puback");
  const got = () => members.flatMap((member) => member.payloads("t"));
  await clock.runUntil(() => got().length >= texts.length);
  await clock.advance(500);
  expect(got().sort()).toEqual(texts);
  expect(members.map((member) => member.payloads("t").length)).toEqual([5, 5]);
});
