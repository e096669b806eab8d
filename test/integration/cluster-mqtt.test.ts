// MQTT on every node of a cluster of three real processes: a session is made on one, published to on
// another, goes on at the third while the first is killed, and nothing that was acked is lost, doubled
// or out of order.

import { setTimeout as sleep } from "node:timers/promises";
import mqtt, { ErrorWithReasonCode, type IClientOptions, type MqttClient } from "mqtt";
import { expect, test } from "vitest";
import { type LaunchedMember, spawnNode } from "../support/cluster-launch.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const base = 24_000 + (process.pid % 1_500) * 4;
const names = ["n1", "n2", "n3"] as const;
const messages = 30;
/** A machine with much else to do takes seconds for a message. */
const limitMs = 180_000;

type Cluster = Record<(typeof names)[number], LaunchedMember>;

function start(folder: string, name: string): Promise<LaunchedMember> {
  const seeds = names.map((each, at) => `${each}=127.0.0.1:${base + at}`);
  const port = base + names.indexOf(name as "n1");
  const cluster = { name: "plant", node: name, expect: names.length, seeds, port };
  return spawnNode(folder, name, cluster, "", { listeners: { tcp: { port: 0 } } });
}

async function withCluster(use: (cluster: Cluster, folder: string) => Promise<void>) {
  await withTemporaryFolder(async (folder) => {
    const started = await Promise.all(names.map((name) => start(folder, name)));
    const cluster = Object.fromEntries(names.map((name, at) => [name, started[at]])) as Cluster;
    try {
      await use(cluster, folder);
    } finally {
      for (const node of Object.values(cluster)) await node.kill();
    }
  });
}

/** Again where it is refused for now. */
async function insist<T>(work: () => Promise<T>): Promise<T> {
  const endMs = performance.now() + limitMs;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof ErrorWithReasonCode) || performance.now() > endMs) throw error;
    }
    await sleep(100);
  }
}

/** What a resumed session sends may come in one piece with CONNACK: it is listened to from the start. */
function connect(
  node: LaunchedMember,
  clientId: string,
  more: IClientOptions,
  into?: Map<string, string[]>,
): Promise<MqttClient> {
  const at = { host: "127.0.0.1", port: node.mqttPort, protocolVersion: 5, clientId } as const;
  return insist(() => {
    const client = mqtt.connect({ ...at, reconnectPeriod: 0, ...more });
    if (into !== undefined) collect(client, into);
    return new Promise((resolve, reject) => {
      client.once("connect", () => resolve(client));
      client.once("error", reject);
    });
  });
}

const durable: IClientOptions = { clean: false, properties: { sessionExpiryInterval: 3_600 } };

/** Values by publisher, in the order in which they came. */
function collect(client: MqttClient, into: Map<string, string[]>): void {
  client.on("message", (topic, payload) => {
    const publisher = topic.split("/")[1] ?? "";
    into.set(publisher, [...(into.get(publisher) ?? []), payload.toString()]);
  });
}

async function until(isDone: () => boolean, told: () => string): Promise<void> {
  const endMs = performance.now() + limitMs;
  while (!isDone()) {
    if (performance.now() > endMs) throw new Error(`not within ${limitMs} ms: ${told()}`);
    await sleep(50);
  }
}

/** One after the other at QoS 2. */
async function publish(client: MqttClient, name: string): Promise<void> {
  for (let number = 0; number < messages; number++) {
    await insist(() => client.publishAsync(`data/${name}`, String(number), { qos: 2 }));
  }
  await client.endAsync();
}

test("what is acked at any node reaches a durable session once and in order, while nodes are killed", () =>
  withCluster(async (cluster, folder) => {
    const got = new Map<string, string[]>();
    // What a client has of half finished exchanges outlives its connection, and so does its node's.
    const store = () => new mqtt.Store({ clean: false });
    const kept = { ...durable, incomingStore: store(), outgoingStore: store() };
    const total = () => [...got.values()].reduce((sum, values) => sum + values.length, 0);
    const first = await connect(cluster.n1, "reader", kept, got);
    await first.subscribeAsync("data/#", { qos: 2 });
    const done = (["n2", "n3"] as const).map(async (name) =>
      publish(await connect(cluster[name], `p-${name}`, durable), name),
    );
    await until(
      () => total() > messages / 3,
      () => `${total()} messages`,
    );
    await cluster.n1.kill();
    const second = await connect(cluster.n3, "reader", kept, got);
    await Promise.all(done);
    cluster.n1 = await start(folder, "n1");
    await until(
      () => total() >= 2 * messages,
      () => JSON.stringify([...got]),
    );
    await sleep(500);
    const expected = Array.from({ length: messages }, (_, number) => String(number));
    expect(got.get("n2")).toEqual(expected);
    expect(got.get("n3")).toEqual(expected);
    await second.endAsync();
  }));
