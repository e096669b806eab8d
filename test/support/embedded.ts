// Brokers inside the test's own process, with MQTT.js clients; all of them gone after each test.

import mqtt, { type IClientOptions, type MqttClient } from "mqtt";
import { afterEach } from "vitest";
import {
  type BrokerOptions,
  createBroker,
  type EmbeddedBroker,
  type InsideSubscription,
} from "../../src/node/index.ts";

const brokers: EmbeddedBroker[] = [];
const clients: MqttClient[] = [];

afterEach(async () => {
  for (const client of clients.splice(0)) client.end(true);
  await Promise.all(brokers.splice(0).map((broker) => broker.close()));
});

export async function openBroker(options: Partial<BrokerOptions> = {}): Promise<EmbeddedBroker> {
  const broker = await createBroker({ memory: true, ...options });
  brokers.push(broker);
  return broker;
}

/** Not connected yet: the caller sees all of its events. */
export function beginConnect(broker: EmbeddedBroker, options: IClientOptions = {}): MqttClient {
  const client = mqtt.connect(broker.url, {
    ...{ protocolVersion: 5, reconnectPeriod: 0, ...options },
  });
  client.on("error", () => undefined);
  clients.push(client);
  return client;
}

export async function connectTo(
  broker: EmbeddedBroker,
  options: IClientOptions = {},
): Promise<MqttClient> {
  const client = beginConnect(broker, options);
  await new Promise<void>((resolve, reject) => {
    client.once("connect", () => resolve());
    client.once("error", reject);
  });
  return client;
}

/** The first `count` texts, which count as taken; the loop ends then. */
export async function takeTexts(messages: InsideSubscription, count: number): Promise<string[]> {
  const texts: string[] = [];
  for await (const { payload } of messages) {
    if (texts.push(payload.toString()) < count) continue;
    messages.acknowledge();
    break;
  }
  return texts;
}

/** `error.code` of what rejects; "fine" where nothing does. */
export function codeOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => "fine",
    (error: { code?: unknown }) => error.code,
  );
}
