// What the other persistences of Aedes have stored, written by Aedes itself on the real packages,
// goes over into ours, and Aedes goes on with it: level in a folder, redis in Debian's server.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { Readable } from "node:stream";
import { Aedes } from "aedes";
import { ClassicLevel } from "classic-level";
import mqtt, { type MqttClient } from "mqtt";
import { expect, test } from "vitest";
import {
  type AedesPacket,
  level,
  type MigrationSource,
  migrate,
  openPersistence,
  type RedisDatabase,
  redis,
} from "../../src/aedes/index.ts";
import { withTemporaryFolder } from "../support/temporary-folder.ts";

const require = createRequire(import.meta.url);

/** What is used here of the persistences of aedes-persistence 11. */
type OldPersistence = {
  putWill(client: { id: string }, packet: AedesPacket): Promise<void>;
  incomingStorePacket(client: { id: string }, packet: AedesPacket): Promise<void>;
  createRetainedStream(filter: string): AsyncIterable<{ readonly topic: string }>;
};

type Place = {
  readonly persistence: OldPersistence;
  readonly source: MigrationSource;
  close(): Promise<void>;
};

const away = { clientId: "away/1 é", clean: false, reconnectPeriod: 0 } as const;

async function serve<T>(
  persistence: unknown,
  id: string,
  use: (url: string) => Promise<T>,
): Promise<T> {
  const aedes = await Aedes.createBroker({ id, persistence: persistence as never });
  const server = createServer(aedes.handle).listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    return await use(`mqtt://127.0.0.1:${(server.address() as AddressInfo).port}`);
  } finally {
    server.close();
    await new Promise<void>((resolve) => aedes.close(resolve));
  }
}

const texts = Array.from({ length: 20 }, (_, at) => `${at}`);

async function retainedTopics(persistence: OldPersistence): Promise<string[]> {
  const topics: string[] = [];
  for await (const { topic } of persistence.createRetainedStream("#")) topics.push(topic);
  return topics.sort();
}

/** Queues at QoS 1 and 2, retained messages, a will, and a QoS 2 message that is not released. */
async function fill({ persistence }: Place, url: string): Promise<void> {
  const subscriber = await mqtt.connectAsync(url, away);
  await subscriber.subscribeAsync({ "one/#": { qos: 1 }, "two/+": { qos: 2 } });
  await subscriber.endAsync();
  const publisher = await mqtt.connectAsync(url, { reconnectPeriod: 0 });
  for (const text of texts) {
    await publisher.publishAsync("one/x", text, { qos: 1 });
    await publisher.publishAsync("two/x", text, { qos: 2 });
  }
  await publisher.publishAsync("kept/ü", Buffer.from([0, 255]), { qos: 1, retain: true });
  await publisher.publishAsync("gone", "x", { qos: 1, retain: true });
  // Aedes answers before it has stored, and LevelDB's threads may take what runs at once in any order.
  await expect.poll(() => retainedTopics(persistence)).toEqual(["gone", "kept/ü"]);
  await publisher.publishAsync("gone", "", { qos: 1, retain: true });
  await expect.poll(() => retainedTopics(persistence)).toEqual(["kept/ü"]);
  await publisher.publishAsync("nothing", "x", { qos: 2 });
  await publisher.endAsync();
  const fields = { cmd: "publish", payload: Buffer.from("y"), retain: false, dup: false } as const;
  await persistence.putWill({ id: "w" }, { ...fields, topic: "will", qos: 1 });
  await persistence.incomingStorePacket(
    { id: "sender" },
    { ...fields, topic: "in", qos: 2, messageId: 7, brokerId: "old", brokerCounter: 99 },
  );
}

/** All that the subscriber finds, by topic. */
async function collect(url: string): Promise<Map<string, string[]>> {
  const found = new Map<string, string[]>();
  const client: MqttClient = mqtt.connect(url, away);
  await new Promise<void>((resolve) => {
    client.on("message", (topic, payload) => {
      found.set(topic, [...(found.get(topic) ?? []), payload.toString()]);
      if ([...found.values()].flat().length === 2 * texts.length) resolve();
    });
  });
  await client.endAsync();
  return found;
}

const copied = { subscription: 2, queued: 40, inbound: 1, retained: 1, will: 1, skipped: 0 };

async function check(place: Place, folder: string): Promise<void> {
  await serve(place.persistence, "old", (url) => fill(place, url));
  const target = await openPersistence({ dir: join(folder, "target") });
  await target.setup({ id: "new" });
  const told: number[] = [];
  const onProgress = ({ queued }: { readonly queued: number }): unknown => told.push(queued);
  const options = { onProgress, progressEvery: 10 };
  await expect.poll(() => migrate(place.source, target, { dryRun: true })).toEqual(copied);
  expect(await migrate(place.source, target, { ...options, dryRun: true })).toEqual(copied);
  expect(await target.countOffline()).toEqual({ subsCount: 0, clientsCount: 0 });
  expect(await migrate(place.source, target, options)).toEqual(copied);
  expect(told).toEqual([8, 18, 28, 38, 40, 8, 18, 28, 38, 40]);
  const [kept, ...others] = await target.createRetainedStream("#").toArray();
  expect(others).toEqual([]);
  expect(kept).toMatchObject({ topic: "kept/ü", payload: Buffer.from([0, 255]), retain: true });
  expect(await target.getWill({ id: "w" })).toMatchObject({ topic: "will", brokerId: "old" });
  expect(await target.incomingGetPacket({ id: "sender" }, { messageId: 7 })).toMatchObject({
    ...{ topic: "in", payload: Buffer.from("y") },
  });
  const found = await serve(target, "new", collect);
  expect(Object.fromEntries(found)).toEqual({ "one/x": texts, "two/x": texts });
  await target.destroy();
}

test("a level database that Aedes wrote goes over, and Aedes goes on with it", () =>
  withTemporaryFolder(async (folder) => {
    const Persistence = require("aedes-persistence-level/asyncPersistence.js");
    const db = new ClassicLevel(join(folder, "level"));
    const close = (): Promise<void> => db.close();
    const place = { persistence: new Persistence(db), source: level(db as never), close };
    await check(place, folder);
    await place.close();
  }));

type Streaming = new (
  options: object,
) => Record<
  "outgoingStream" | "streamWill" | "createRetainedStreamCombi" | "createRetainedStream",
  (...args: unknown[]) => AsyncIterable<unknown>
>;

/** Aedes 1.2 wants streams where the package has iterators; its own wrapper makes callbacks besides. */
function withStreams(Persistence: Streaming): new (options: object) => OldPersistence {
  const names = [
    "outgoingStream",
    "streamWill",
    "createRetainedStreamCombi",
    "createRetainedStream",
  ] as const;
  class Streams extends Persistence {}
  for (const name of names) {
    Object.defineProperty(Streams.prototype, name, {
      value(...args: unknown[]) {
        return Readable.from(Persistence.prototype[name].apply(this, args));
      },
    });
  }
  return Streams as unknown as new (
    options: object,
  ) => OldPersistence;
}

type RedisClient = RedisDatabase & {
  ping(): Promise<string>;
  disconnect(): void;
  on(event: "error", listener: () => void): unknown;
};

async function startRedis(folder: string): Promise<{ child: ChildProcess; socket: string }> {
  const socket = join(folder, "redis.sock");
  const options = ["--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder];
  const child = spawn("redis-server", options, { stdio: "ignore" });
  return { child, socket };
}

test("a redis database that Aedes wrote goes over, and Aedes goes on with it", () =>
  withTemporaryFolder(async (folder) => {
    const Persistence = withStreams(require("aedes-persistence-redis/asyncPersistence.js"));
    const Redis = require("ioredis");
    const { child, socket } = await startRedis(folder);
    const client: RedisClient = new Redis(socket, { retryStrategy: () => 20 });
    client.on("error", () => undefined); // the server is not up yet
    try {
      await client.ping();
      const persistence: OldPersistence = new Persistence({ conn: client });
      await check({ persistence, source: redis(client), close: async () => undefined }, folder);
    } finally {
      client.disconnect();
      child.kill("SIGKILL");
      await once(child, "exit");
    }
  }));
