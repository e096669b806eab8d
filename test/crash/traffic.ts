// The load of crash tests: publishers that keep a window of unacked messages on a few topics each,
// and durable sessions with wildcard filters in three ways of life: always online, coming and going,
// offline until the end.

import { SeededRandom } from "../../src/base/index.ts";
import { DurableClient, type Subscription } from "../support/durable-client.ts";
import { type DeliveryOracle, formatName } from "../support/oracle.ts";

export type SubscriberLife = "online" | "wandering" | "offline";

export type TrafficSubscriber = {
  readonly client: DurableClient;
  readonly life: SubscriberLife;
  readonly subscription: Subscription;
};

export type Traffic = {
  readonly publishers: readonly DurableClient[];
  readonly subscribers: readonly TrafficSubscriber[];
};

// MQTT.js sends unacked messages again one by one: a larger window only makes restarts longer.
const windowMessages = 24;
const topicsPerPublisher = 3;

const topicOf = (publisher: string, number: number): string => `load/${publisher}/${number}`;

/** Every subscriber wants everything under load/. Levels 3.1.1 and 5 alternate. */
export function createTraffic(oracle: DeliveryOracle, prefix = ""): Traffic {
  const client = (name: string, level: 4 | 5): DurableClient =>
    new DurableClient({ clientId: `${prefix}${name}`, oracle, level });
  const lives: ReadonlyArray<readonly [SubscriberLife, 1 | 2, string]> = [
    ["online", 1, "load/#"],
    ["wandering", 2, "load/+/+"],
    ["offline", 2, "load/#"],
    ["online", 2, "load/+/1"],
    ["offline", 1, "load/+/+"],
  ];
  const subscribers = lives.map(([life, qos, filter], index): TrafficSubscriber => {
    const owner = client(`${life}-${index}`, index % 2 === 0 ? 4 : 5);
    const wants = (topic: string) => !filter.endsWith("/1") || topic.endsWith("/1");
    oracle.addSession(owner.clientId, qos, wants);
    return { client: owner, life, subscription: { filter, qos } };
  });
  return { publishers: [client("pub-a", 4), client("pub-b", 5)], subscribers };
}

export async function connectSubscribers(traffic: Traffic, port: number): Promise<void> {
  await Promise.all(traffic.subscribers.map(({ client }) => client.connect(port)));
}

/** Connects and subscribes all; those that live offline leave again. */
export async function openTraffic(traffic: Traffic, port: number): Promise<void> {
  await connectSubscribers(traffic, port);
  for (const { client, life, subscription } of traffic.subscribers) {
    await client.subscribe(subscription);
    if (life === "offline") await client.disconnect();
  }
  for (const publisher of traffic.publishers) await publisher.connect(port);
}

/** After a restart: all come back but those that live offline. */
export async function reconnectTraffic(traffic: Traffic, port: number): Promise<void> {
  const online = traffic.subscribers.filter(({ life }) => life !== "offline");
  const clients = [...online.map(({ client }) => client), ...traffic.publishers];
  await Promise.all(clients.map((client) => client.waitClosed()));
  await Promise.all(clients.map((client) => client.connect(port)));
}

export type Load = {
  /** Stops sending new messages; resolves when all are acked, rejects when one was refused. */
  finish(): Promise<void>;
  /** Stops sending new messages at once. */
  halt(): void;
  readonly ackedCount: number;
  /** Resolves when so many have been acked. */
  untilAcked(count: number): Promise<void>;
};

/** Starts publishing with every publisher, alternating QoS 1 and 2 and topics. */
export function startLoad(traffic: Traffic, seed: number | string): Load {
  const random = new SeededRandom(seed);
  let isRunning = true;
  let ackedCount = 0;
  const waiting: Array<{ count: number; resolve: () => void }> = [];
  const pending = new Set<Promise<void>>();
  let refusal: Error | undefined;
  const acked = (): void => {
    ackedCount++;
    for (const waiter of waiting) if (waiter.count <= ackedCount) waiter.resolve();
  };
  const keepSending = async (publisher: DurableClient): Promise<void> => {
    while (isRunning && publisher.isConnected) {
      const topic = topicOf(publisher.clientId, random.below(topicsPerPublisher));
      const qos = random.chance(0.5) ? 1 : 2;
      await publisher.publish(topic, qos, 40 + random.below(400));
      acked();
    }
  };
  for (const publisher of traffic.publishers) {
    for (let slot = 0; slot < windowMessages; slot++) {
      const sending = keepSending(publisher);
      pending.add(sending);
      sending.then(
        () => pending.delete(sending),
        (error: Error) => {
          pending.delete(sending);
          refusal ??= error;
        },
      );
    }
  }
  return {
    get ackedCount() {
      return ackedCount;
    },
    halt() {
      isRunning = false;
    },
    async finish() {
      isRunning = false;
      await Promise.allSettled(pending);
      if (refusal !== undefined) throw refusal;
    },
    untilAcked: (count) =>
      new Promise((resolve) => {
        if (ackedCount >= count) resolve();
        else waiting.push({ count, resolve });
      }),
  };
}

/** Lets the wandering subscribers lose their link and come back until `stop` is called. */
export function startWandering(traffic: Traffic, port: number): { stop(): Promise<void> } {
  let isRunning = true;
  const wanderers = traffic.subscribers.filter(({ life }) => life === "wandering");
  const walks = wanderers.map(async ({ client }) => {
    while (isRunning) {
      await new Promise((resolve) => setTimeout(resolve, 150));
      if (!isRunning || !client.isConnected) break;
      await client.drop();
      // The broker may have been killed meanwhile; the round goes on with its restart.
      if (isRunning) await client.connect(port).catch(() => undefined);
    }
  });
  return {
    async stop() {
      isRunning = false;
      await Promise.all(walks);
    },
  };
}

/**
 * Waits until every session has all it is owed, or nothing of it has come for `stillMs`: a loaded
 * machine is slow, not wrong. What is still missing then, a line each.
 */
export async function waitDelivered(
  oracle: DeliveryOracle,
  sessions: readonly string[],
  stillMs: number,
  ackedBeforeNs?: bigint,
): Promise<string[]> {
  const owed = () =>
    sessions.flatMap((name) =>
      oracle.missing(name, ackedBeforeNs).map((missed) => `${name}: ${formatName(missed)}`),
    );
  let missing = owed();
  let deadline = performance.now() + stillMs;
  while (missing.length > 0 && performance.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    const now = owed();
    if (now.length < missing.length) deadline = performance.now() + stillMs;
    missing = now;
  }
  return missing;
}
