// `level.json`: keys and values (base64) of a database that aedes-persistence-level 9.2.0 wrote.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import {
  createPersistence,
  level,
  migrate,
  mongodb,
  redis,
  type StorePersistence,
} from "../../../src/aedes/index.ts";
import { decodeMsgpack } from "../../../src/aedes/msgpack.ts";
import { systemClock } from "../../../src/base/index.ts";
import { MemoryMachine, openLocalStore } from "../../../src/store/index.ts";

const fixture = JSON.parse(readFileSync(new URL("./level.json", import.meta.url), "utf8")) as Array<
  [string, string]
>;
const values = new Map(fixture.map(([key, text]) => [key, Buffer.from(text, "base64")]));

const levelDatabase = {
  async *iterator({ gte, lt }: { gte: string; lt: string }) {
    for (const entry of values) if (entry[0] >= gte && entry[0] < lt) yield entry;
  },
};

async function openTarget(): Promise<StorePersistence> {
  const { store } = await openLocalStore({ memory: new MemoryMachine(systemClock) });
  const persistence = createPersistence(store);
  await persistence.setup({ id: "new-broker" });
  return persistence;
}

const all = { subscription: 3, queued: 24, inbound: 1, retained: 2, will: 1, skipped: 0 };

async function checkCopied(target: StorePersistence): Promise<void> {
  const [c, z] = [{ id: "a/b c" }, { id: "z" }];
  expect(await target.subscriptionsByClient(c)).toMatchObject([
    { topic: "x/#", qos: 1, rap: true },
    { topic: "y", qos: 0 },
  ]);
  expect(await target.subscriptionsByClient(z)).toMatchObject([
    { topic: "#", qos: 2, subscriptionIdentifier: 7 },
  ]);
  const queued = await target.outgoingStream(c).toArray();
  const texts = Array.from({ length: 12 }, (_, at) => `m${at + 1}`);
  expect(queued.map(({ payload }) => payload.toString())).toEqual(texts);
  expect(queued[0]).toMatchObject({ messageId: 31, brokerId: "old-broker", brokerCounter: 1 });
  expect(queued[1].messageId).toBeUndefined();
  const others = await target.outgoingStream(z).toArray();
  expect(others[1]).toEqual({ cmd: "pubrel", messageId: 32 });
  expect(await target.outgoingClearMessageId(z, { messageId: 32 })).toBeDefined();
  const inbound = await target.incomingGetPacket(c, { messageId: 5 });
  expect(inbound).toMatchObject({ topic: "in", payload: Buffer.from([0, 255]) });
  const retained = await target.createRetainedStream("#").toArray();
  expect(retained).toMatchObject([
    { topic: "r/1", properties: { userProperties: { a: "b" } } },
    { topic: "r/ü", payload: "text" },
  ]);
  expect(await target.getWill(c)).toMatchObject({ topic: "will", brokerId: "old-broker" });
}

test("everything of a level database is copied, in order, with progress", async () => {
  const target = await openTarget();
  const told: number[] = [];
  const onProgress = ({ queued }: { queued: number }) => told.push(queued);
  expect(await migrate(level(levelDatabase), target, { progressEvery: 10, onProgress })).toEqual(
    all,
  );
  await checkCopied(target);
  expect(told).toEqual([7, 17, 24, 24]);
});

test("a dry run counts and writes nothing", async () => {
  const target = await openTarget();
  expect(await migrate(level(levelDatabase), target, { dryRun: true })).toEqual(all);
  expect(await target.countOffline()).toEqual({ subsCount: 0, clientsCount: 0 });
  expect(await target.createRetainedStream("#").toArray()).toEqual([]);
  expect(await target.outgoingStream({ id: "z" }).toArray()).toEqual([]);
});

test("copying again doubles no queue", async () => {
  const target = await openTarget();
  await migrate(level(levelDatabase), target);
  const again = await migrate(level(levelDatabase), target);
  expect(again).toEqual({ ...all, queued: 0, skipped: 24 });
  expect(await target.outgoingStream({ id: "z" }).toArray()).toHaveLength(12);
});

function valuesUnder(prefix: string): Array<[string, Buffer]> {
  return [...values].filter(([key]) => key.startsWith(prefix));
}

test("a redis database in its documented form is copied", async () => {
  const lists = new Map<string, string[]>();
  const strings = new Map<string, Buffer>();
  const hashes = new Map<string, Record<string, Buffer>>();
  const put = (hash: string, field: string, bytes: Buffer) =>
    hashes.set(hash, { ...hashes.get(hash), [field]: bytes });
  const push = (list: string, key: string, bytes: Buffer) => {
    lists.set(list, [...(lists.get(list) ?? []), key]);
    strings.set(key, bytes);
  };
  for (const [key, bytes] of valuesUnder("subscriptions:")) {
    const [, client, topic] = key.split(":") as [string, string, string];
    put(`client:${client}`, topic, bytes);
  }
  for (const [key, bytes] of valuesUnder("outgoing:"))
    push(`outgoing:${key.split(":")[1]}`, key, bytes);
  for (const [key, bytes] of valuesUnder("incoming:"))
    put(`incoming:${key.split(":")[1]}`, "5", bytes);
  for (const [key, bytes] of valuesUnder("retained:")) put("retained", key.slice(9), bytes);
  for (const [key, bytes] of valuesUnder("will:")) push("will", `will:old-broker:${key}`, bytes);
  const keys = [...lists.keys(), ...strings.keys(), ...hashes.keys()];
  const target = await openTarget();
  const database = {
    async *scanStream({ match }: { match: string }) {
      const found = keys.filter((key) => key.startsWith(match.slice(0, -1)));
      yield found;
      yield found;
    },
    hgetallBuffer: async (key: string) => hashes.get(key) ?? {},
    lrange: async (key: string) => lists.get(key) ?? [],
    getBuffer: async (key: string) => strings.get(key) ?? null,
  };
  expect(await migrate(redis(database), target)).toEqual(all);
  await checkCopied(target);
});

test("the id in a redis packet that several clients share is nobody's", async () => {
  const [, bytes] = valuesUnder("outgoing:a%2Fb%20c:")[0] as [string, Buffer];
  expect(decodeMsgpack(bytes)).toMatchObject({ messageId: 31 });
  const database = {
    async *scanStream({ match }: { match: string }) {
      if (match === "outgoing:*") yield ["outgoing:one", "outgoing:other"];
    },
    hgetallBuffer: async () => ({}),
    lrange: async (key: string) => (key.startsWith("outgoing:") ? ["packet:old-broker:1"] : []),
    getBuffer: async () => bytes,
  };
  const target = await openTarget();
  expect(await migrate(redis(database), target)).toMatchObject({ queued: 2 });
  for (const id of ["one", "other"]) {
    const [packet] = await target.outgoingStream({ id }).toArray();
    expect(packet).toMatchObject({ brokerId: "old-broker", brokerCounter: 1 });
    expect(packet.messageId).toBeUndefined();
  }
});

test("a mongodb database in its documented form is copied", async () => {
  const collections = new Map<string, Array<Record<string, unknown>>>();
  const insert = (name: string, document: Record<string, unknown>) =>
    collections.set(name, [...(collections.get(name) ?? []), document]);
  const clientOf = (key: string) => decodeURIComponent(key.split(":")[1] as string);
  const packetOf = (bytes: Buffer) => {
    const { payload, ...fields } = decodeMsgpack(bytes) as { payload?: unknown };
    // As a BSON Binary, with room behind its bytes; what was undefined is null.
    const binary = (bytes: Uint8Array) => ({
      buffer: Buffer.concat([bytes, Buffer.alloc(7)]),
      position: bytes.length,
    });
    const content = payload instanceof Uint8Array ? binary(payload) : payload;
    const others = { added: new Date(0), properties: null };
    return { ...others, ...fields, ...(payload !== undefined && { payload: content }) };
  };
  for (const [, bytes] of valuesUnder("subscriptions:")) {
    insert("p_subscriptions", { _id: 1, ...(decodeMsgpack(bytes) as object) });
  }
  for (const kind of ["outgoing", "incoming", "will"]) {
    for (const [key, bytes] of valuesUnder(`${kind}:`)) {
      insert(`p_${kind}`, { clientId: clientOf(key), packet: packetOf(bytes) });
    }
  }
  for (const [, bytes] of valuesUnder("retained:")) insert("p_retained", packetOf(bytes));
  const target = await openTarget();
  const database = {
    collection: (name: string) => ({
      find: () => ({
        async *sort() {
          yield* collections.get(name) ?? [];
        },
      }),
    }),
  };
  expect(await migrate(mongodb(database, "p_"), target)).toEqual(all);
  await checkCopied(target);
});

test("a record that is no MessagePack is told with a code", () => {
  const invalid = "AEDES_MIGRATION_SOURCE_INVALID";
  const [, bytes] = fixture[0] as [string, string];
  const whole = Buffer.from(bytes, "base64");
  for (let end = 0; end < whole.length; end++) {
    expect(() => decodeMsgpack(whole.subarray(0, end))).toThrow(
      expect.objectContaining({ code: invalid }),
    );
  }
  expect(() => decodeMsgpack(Buffer.concat([whole, whole]))).toThrow();
  expect(() => decodeMsgpack(Buffer.alloc(100, 0x91))).toThrow("nested");
});
