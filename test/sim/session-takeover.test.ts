// One client id at several nodes of a cluster, on simulated machines (docs/decisions/093).

import { afterEach, expect, test } from "vitest";
import type { ConnectPacket } from "../../src/mqtt/index.ts";
import { MqttCluster, type MqttMachine } from "../support/mqtt-cluster.ts";
import { SimClient, subscribePacket } from "../support/sim-client.ts";

let cluster: MqttCluster | undefined;
afterEach(() => cluster?.end());

async function start(seed: string, config: object = {}): Promise<MqttCluster> {
  cluster = new MqttCluster(seed, config);
  await cluster.start();
  return cluster;
}

const reasonsOf = (client: SimClient): number[] =>
  client.received.flatMap((packet) => (packet.type === "disconnect" ? [packet.reasonCode] : []));

const connackOf = (client: SimClient) =>
  client.received.find((packet) => packet.type === "connack");

const clean: Partial<ConnectPacket> = { cleanStart: true, properties: { sessionExpiryS: 0 } };

test("a session goes from node to node, and its former connection ends with 0x8E", async () => {
  const { machines, clock } = await start("goes from node to node");
  const [first, second, third] = machines as [MqttMachine, MqttMachine, MqttMachine];
  const one = await SimClient.connect(first, "reader");
  await one.ask(subscribePacket("t", 1), "suback");
  const two = await SimClient.connect(second, "reader");
  expect(connackOf(two)).toMatchObject({ sessionPresent: true });
  await clock.runUntil(() => reasonsOf(one).length > 0);
  expect(reasonsOf(one)).toEqual([0x8e]);
  const three = await SimClient.connect(third, "reader");
  expect(connackOf(three)).toMatchObject({ sessionPresent: true });
  await clock.runUntil(() => reasonsOf(two).length > 0);
  expect(reasonsOf(three)).toEqual([]);
});

test("a session in memory ends when its client id connects to another node", async () => {
  const { machines, clock } = await start("in memory");
  const [first, second] = machines as [MqttMachine, MqttMachine];
  const one = await SimClient.connect(first, "client", clean);
  const two = await SimClient.connect(second, "client", clean);
  await clock.runUntil(() => reasonsOf(one).length > 0);
  expect(reasonsOf(one)).toEqual([0x8e]);
  expect(reasonsOf(two)).toEqual([]);
});
