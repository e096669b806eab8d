// Readers of what other Aedes persistences have stored, for `migrate`: level as version
// 9 writes it, redis as 11 and 12 (both MessagePack), mongodb as 9. Each takes an open database of its
// kind; only what is named here is used of it, and nothing is written.

import type { MigrationItem, MigrationSource } from "./migrate.ts";
import { decodeMsgpack } from "./msgpack.ts";
import type { AedesPacket, AedesSubscription } from "./types.ts";

/** An abstract-level database with texts as keys, such as `new Level(path)`. */
export type LevelDatabase = {
  iterator(options: {
    readonly gte: string;
    readonly lt: string;
    readonly keyEncoding: "utf8";
    readonly valueEncoding: "buffer";
  }): AsyncIterable<[string, Uint8Array]>;
};

/** A database of aedes-persistence-level. */
export function level(db: LevelDatabase): MigrationSource {
  return { name: "level", items: () => levelItems(db) };
}

async function* levelItems(db: LevelDatabase): AsyncGenerator<MigrationItem> {
  for await (const { value } of under(db, "subscriptions")) {
    const { clientId, ...subscription } = value as AedesSubscription & { clientId: string };
    yield { kind: "subscription", clientId, subscription };
  }
  for await (const { key, value } of under(db, "outgoing")) {
    yield { kind: "queued", clientId: clientOf(key), packet: value as AedesPacket };
  }
  for await (const { key, value } of under(db, "incoming")) {
    yield { kind: "inbound", clientId: clientOf(key), packet: value as AedesPacket };
  }
  for await (const { value } of under(db, "retained")) {
    yield { kind: "retained", packet: value as AedesPacket };
  }
  for await (const { key, value } of under(db, "will")) {
    yield { kind: "will", clientId: clientOf(key), packet: value as AedesPacket };
  }
}

/** Keys read `kind:client:rest`, the client in percent encoding. */
async function* under(
  db: LevelDatabase,
  kind: string,
): AsyncGenerator<{ readonly key: string; readonly value: unknown }> {
  const range = { gte: `${kind}:`, lt: `${kind};` };
  const encodings = { keyEncoding: "utf8", valueEncoding: "buffer" } as const;
  for await (const [key, bytes] of db.iterator({ ...range, ...encodings })) {
    yield { key, value: decodeMsgpack(Buffer.from(bytes)) };
  }
}

function clientOf(key: string): string {
  return decodeURIComponent(key.split(":")[1] ?? "");
}

/** A client of ioredis. */
export type RedisDatabase = {
  scanStream(options: { readonly match: string }): AsyncIterable<string[]>;
  hgetallBuffer(key: string): Promise<Record<string, Buffer>>;
  lrange(key: string, start: number, stop: number): Promise<string[]>;
  getBuffer(key: string): Promise<Buffer | null>;
};

/** A database of aedes-persistence-redis. */
export function redis(db: RedisDatabase): MigrationSource {
  return { name: "redis", items: () => redisItems(db) };
}

async function* redisItems(db: RedisDatabase): AsyncGenerator<MigrationItem> {
  for await (const key of scan(db, "client:*")) {
    const clientId = clientOf(key);
    for (const [topic, bytes] of Object.entries(await db.hgetallBuffer(key))) {
      yield { kind: "subscription", clientId, subscription: redisSubscription(topic, bytes) };
    }
  }
  // Beside the lists, which are read here, there are keys of single packets that begin so.
  for await (const key of scan(db, "outgoing:*")) {
    if (key.split(":").length > 2) continue;
    for await (const packet of redisPackets(db, key)) {
      yield { kind: "queued", clientId: clientOf(key), packet };
    }
  }
  for await (const key of scan(db, "incoming:*")) {
    for (const bytes of await redisInbound(db, key)) {
      const packet = decodeMsgpack(bytes) as AedesPacket;
      yield { kind: "inbound", clientId: clientOf(key), packet };
    }
  }
  for (const bytes of Object.values(await db.hgetallBuffer("retained"))) {
    yield { kind: "retained", packet: decodeMsgpack(bytes) as AedesPacket };
  }
  for await (const packet of redisPackets(db, "will")) {
    yield { kind: "will", clientId: packet.clientId ?? "", packet };
  }
}

/** Version 11 has a key for each packet, `incoming:client:id`; version 12 a hash for each client. */
async function redisInbound(db: RedisDatabase, key: string): Promise<readonly Buffer[]> {
  if (key.split(":").length <= 2) return Object.values(await db.hgetallBuffer(key));
  const bytes = await db.getBuffer(key);
  return bytes === null ? [] : [bytes];
}

/** SCAN may give a key more than once. */
async function* scan(db: RedisDatabase, match: string): AsyncGenerator<string> {
  const seen = new Set<string>();
  for await (const keys of db.scanStream({ match })) {
    for (const key of keys) {
      if (seen.has(key)) continue;
      seen.add(key);
      yield key;
    }
  }
}

async function* redisPackets(db: RedisDatabase, list: string): AsyncGenerator<AedesPacket> {
  for (const key of await db.lrange(list, 0, -1)) {
    const bytes = await db.getBuffer(key);
    // Its time to live is over.
    if (bytes === null) continue;
    const packet = decodeMsgpack(bytes) as AedesPacket;
    // One value for all its receivers: the id in it is that of whoever was sent it last.
    if (key.startsWith("packet:")) delete packet.messageId;
    yield packet;
  }
}

/** Older versions kept the digit of the QoS alone. */
function redisSubscription(topic: string, bytes: Buffer): AedesSubscription {
  if (bytes.length === 1) return { topic, qos: Number(bytes.toString()) as 0 | 1 | 2 };
  return { ...(decodeMsgpack(bytes) as AedesSubscription), topic };
}

type MongoDocument = Readonly<Record<string, unknown>>;

/** A `Db` of the driver. */
export type MongoDatabase = {
  collection(name: string): {
    find(filter: object): { sort(by: object): AsyncIterable<MongoDocument> };
  };
};

/** A database of aedes-persistence-mongodb; `prefix` is its `collectionPrefix`. */
export function mongodb(db: MongoDatabase, prefix = ""): MigrationSource {
  return { name: "mongodb", items: () => mongoItems(db, prefix) };
}

async function* mongoItems(db: MongoDatabase, prefix: string): AsyncGenerator<MigrationItem> {
  // Object ids grow with the time of insertion.
  const all = (name: string) =>
    db
      .collection(prefix + name)
      .find({})
      .sort({ _id: 1 });
  for await (const document of all("subscriptions")) {
    const { clientId, topic, qos, rh, rap, nl, subscriptionIdentifier } =
      document as unknown as AedesSubscription & { readonly clientId: string };
    const subscription = given({ topic, qos, rh, rap, nl, subscriptionIdentifier });
    yield { kind: "subscription", clientId, subscription: subscription as AedesSubscription };
  }
  for (const [name, kind] of [
    ["outgoing", "queued"],
    ["incoming", "inbound"],
    ["will", "will"],
  ] as const) {
    for await (const document of all(name)) {
      const { clientId } = document as { clientId?: string };
      const packet = mongoPacket(document.packet as MongoDocument);
      yield { kind, clientId: clientId ?? packet.clientId ?? "", packet };
    }
  }
  for await (const document of all("retained")) {
    const { _id, added, ...packet } = document;
    yield { kind: "retained", packet: mongoPacket(packet) };
  }
}

function mongoPacket({ added, payload, ...fields }: MongoDocument): AedesPacket {
  return { ...given(fields), payload: contentOf(payload) } as AedesPacket;
}

/** Payloads are BSON binaries, whose bytes are the first `position` of `buffer`. */
function contentOf(payload: unknown): string | Buffer {
  if (typeof payload === "string") return payload;
  if (payload instanceof Uint8Array) return Buffer.from(payload);
  const { buffer = new Uint8Array(), position = buffer.length } = (payload ?? {}) as {
    readonly buffer?: Uint8Array;
    readonly position?: number;
  };
  return Buffer.from(buffer.subarray(0, position));
}

/** BSON has null for what was undefined. */
function given(fields: object): Record<string, unknown> {
  const entries: Array<[string, unknown]> = Object.entries(fields);
  return Object.fromEntries(entries.filter(([, value]) => value !== null && value !== undefined));
}
