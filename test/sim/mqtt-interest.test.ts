// Subscriptions and publishes at different nodes of a cluster, one right behind the other, while nodes
// are cut off, die and lose their office: what was acked behind a SUBACK is delivered.

import { afterEach, expect, test } from "vitest";
import type { Packet } from "../../src/mqtt/index.ts";
import { amount } from "../support/amount.ts";
import { MqttCluster, type MqttMachine } from "../support/mqtt-cluster.ts";
import { publishPacket, SimClient, subscribePacket } from "../support/sim-client.ts";

let cluster: MqttCluster | undefined;
afterEach(() => cluster?.end());

async function start(seed: number | string): Promise<MqttCluster> {
  cluster = new MqttCluster(seed);
  await cluster.start();
  return cluster;
}

/** The reason code of what came of a packet, as far as anything came within the time. */
async function answer(
  { clock }: MqttCluster,
  client: SimClient,
  packet: Packet,
  type: "suback" | "puback",
): Promise<number | undefined> {
  const before = client.received.length;
  client.say(packet);
  const found = () => client.received.slice(before).find((each) => each.type === type);
  await clock.runUntil(() => found() !== undefined, 20_000).catch(() => undefined);
  const packetFound = found();
  if (packetFound === undefined) return undefined;
  if ("reasonCodes" in packetFound) return packetFound.reasonCodes[0];
  return "reasonCode" in packetFound ? packetFound.reasonCode : undefined;
}

async function enter(
  { clock }: MqttCluster,
  machine: MqttMachine,
  clientId: string,
): Promise<SimClient | undefined> {
  const client = await SimClient.begin(machine, clientId).catch(() => undefined);
  const found = () => client?.received.find(({ type }) => type === "connack");
  await clock.runUntil(() => found() !== undefined, 30_000).catch(() => undefined);
  const connack = found();
  return connack?.type === "connack" && connack.reasonCode === 0 ? client : undefined;
}

/** Nothing passes between a machine and the others, in drawn directions. */
function cutOff({ machines, network, random }: MqttCluster, machine: MqttMachine): () => void {
  const mends = machines.flatMap((other) => {
    if (other === machine) return [];
    const out = network.silence(machine.name, other.name);
    return random.below(3) === 0 ? [out] : [out, network.silence(other.name, machine.name)];
  });
  return () => {
    for (const mend of mends) mend();
  };
}

async function run(seed: number): Promise<{ acked: number; faults: number }> {
  const whole = await start(seed);
  const { machines, clock, random } = whole;
  const expected = new Map<string, { reader: SimClient; texts: string[] }>();
  let faults = 0;
  let acked = 0;
  for (let round = 0; round < 12; round++) {
    const [reading, writing] = [random.pick(machines), random.pick(machines)];
    // Of its own branch, so that nobody else wants it.
    const topic = `t${round}/x`;
    const [reader, writer] = [
      await enter(whole, reading, `reader ${round}`),
      await enter(whole, writing, `writer ${round}`),
    ];
    if (reader === undefined || writer === undefined) continue;
    let mend = (): void => undefined;
    if (random.below(2) === 0) {
      mend = cutOff(whole, random.pick(machines));
      clock.schedule(random.between(100, 12_000), () => mend());
      faults++;
    }
    const filter = random.pick([topic, `t${round}/+`, `t${round}/#`]);
    const suback = await answer(whole, reader, subscribePacket(filter, 2), "suback");
    const isSubscribed = suback === 2;
    if (random.below(2) === 0) reader.drop();
    const texts: string[] = [];
    for (const text of ["one", "two", "three"]) {
      const packet = publishPacket(topic, `${round} ${text}`, 1);
      const puback = await answer(whole, writer, packet, "puback");
      if (puback === undefined || puback >= 0x80) break;
      acked++;
      if (isSubscribed) texts.push(`${round} ${text}`);
    }
    if (texts.length > 0) expected.set(topic, { reader, texts });
    writer.drop();
    mend();
    reader.drop();
    if (random.below(5) === 0) {
      const machine = random.pick(machines);
      machine.die(random.pick(["kill", "power"] as const));
      faults++;
      await clock.advance(random.between(10, 3_000));
      machine.begin();
    }
  }
  await whole.start();
  for (const [topic, { reader, texts }] of expected) {
    const clientId = `reader ${topic.slice(1, -2)}`;
    const again = await SimClient.connect(random.pick(machines), clientId);
    // What it had acked before does not come again.
    const all = () => [...reader.payloads(topic), ...again.payloads(topic)];
    const found = () => all().filter((text, at, texts) => texts.indexOf(text) === at);
    const isThere = (text: string): boolean => found().includes(text);
    const waits = clock.runUntil(() => texts.every(isThere), 30_000).catch(() => undefined);
    await waits;
    expect(
      found().filter((text) => texts.includes(text)),
      `${seed} ${topic}`,
    ).toEqual(texts);
    again.drop();
  }
  whole.end();
  return { acked, faults };
}

test("what was acked behind a SUBACK is delivered, whichever nodes they were said at", async () => {
  const seen = { acked: 0, faults: 0 };
  for (let seed = 1; seed <= amount(2, 6, 100); seed++) {
    const { acked, faults } = await run(seed);
    seen.acked += acked;
    seen.faults += faults;
  }
  expect(seen.acked).toBeGreaterThan(20);
  expect(seen.faults).toBeGreaterThan(2);
});

test("a message that nobody wants is refused where no majority says so, and counted", async () => {
  const whole = await start("minority");
  const [first, second, third] = whole.machines as [MqttMachine, MqttMachine, MqttMachine];
  const writer = await SimClient.connect(first, "writer");
  for (const other of [second, third]) {
    whole.network.silence(first.name, other.name);
    whole.network.silence(other.name, first.name);
  }
  const atMs = whole.clock.elapsedMs();
  const puback = await answer(whole, writer, publishPacket("t", "x", 1), "puback");
  expect(puback).toBe(0x83);
  const waitedMs = whole.clock.elapsedMs() - atMs;
  expect([waitedMs > 14_900, waitedMs < 15_200]).toEqual([true, true]);
  expect(first.parts?.broker?.counters.publishesRefused).toBe(1);
});

test("a subscriber gets what was retained at any node before, and what is retained behind", async () => {
  const whole = await start("retained");
  const { machines, random, clock } = whole;
  const writers = [];
  for (const machine of machines) {
    writers.push(await SimClient.connect(machine, `writer ${machine.name}`));
  }
  for (let round = 0; round < 15; round++) {
    const topic = `r/${round}`;
    const retained = (text: string) => publishPacket(topic, text, 1, { retain: true });
    await random.pick(writers).ask(retained("old"), "puback");
    const reader = await SimClient.connect(random.pick(machines), `reader ${round}`);
    // While it subscribes another is retained: it comes one way or the other.
    const writer = random.pick(writers);
    const said = reader.ask(subscribePacket(topic, 1), "suback");
    writer.say(retained("new"));
    await said;
    await clock.runUntil(() => reader.payloads(topic).includes("new"));
    await random.pick(writers).ask(retained("last"), "puback");
    await clock.runUntil(() => reader.payloads(topic).includes("last"));
    expect(reader.payloads(topic).at(-1)).toBe("last");
    reader.drop();
  }
});
