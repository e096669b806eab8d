import { describe, expect, test } from "vitest";
import {
  type DatabaseSpec,
  groupSettingsDefault,
  type LocalStore,
} from "../../../src/store/index.ts";
import { Routes } from "../../../src/store/routes.ts";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { type MachineOptions, StoreMachine } from "../../support/store-machine.ts";

const machine = (store: MachineOptions["store"] = {}): StoreMachine =>
  new StoreMachine({ seed: 5, store: { shards: 2, ...store } });
const metrics: DatabaseSpec = { name: "metrics", shards: 3, topics: ["metrics/#"] };

const put = async (
  m: StoreMachine,
  store: LocalStore,
  topic: string,
  value = topic,
): Promise<void> => {
  await m.clock.complete(append(store, appendRequest(topic, value)));
};
const names = (store: LocalStore): string[] => store.operator.databases().map(({ name }) => name);
const ttvs = async (m: StoreMachine, store: LocalStore, database: string): Promise<number> => {
  await m.clock.complete(store.checkpoint());
  return store.operator.databases().find(({ name }) => name === database)!.ttvs;
};

describe("routes", () => {
  test("the most specific filter wins, whatever the order; of two equal ones the older database", () => {
    const routes = new Routes();
    routes.set("a", ["#", "x/+"]);
    routes.set("b", ["x/1", "y/+/z", "same"]);
    routes.set("c", ["x/#", "y/1/#", "same"]);
    const of = (topic: string): string => routes.databaseOf(topic);
    expect(["x/1", "x/2", "x/2/3", "x", "y/1/z", "y/2/z", "q", "same"].map(of)).toEqual([
      ..."bacccbab",
    ]);
    routes.remove("b");
    expect(["x/1", "y/2/z", "same"].map(of)).toEqual(["a", "a", "c"]);
    routes.set("a", []);
    expect(of("x/1")).toBe("c");
    expect(of("elsewhere")).toBe("messages");
  });
});

describe("a database made at run time", () => {
  test("takes its topics from then on, and readers that were there before get them", async () => {
    const m = machine();
    const { store } = await m.boot();
    const reader = new Reader(store, ["#"], new Map());
    await put(m, store, "metrics/1", "before");
    await m.clock.complete(store.operator.createDatabase(metrics));
    await put(m, store, "metrics/1", "after");
    await put(m, store, "other", "other");
    await m.clock.advance(100);
    expect(reader.values).toEqual(["before", "after", "other"]);
    expect(await ttvs(m, store, "metrics")).toBe(1);
    expect(await ttvs(m, store, "messages")).toBe(2);
    const late = new Reader(store, ["metrics/#"], new Map());
    await m.clock.advance(100);
    expect([...late.values].sort()).toEqual(["after", "before"]);
  });

  test("is there after kill -9, with its TTVs, its routes and its positions", async () => {
    const m = machine();
    const { store } = await m.boot();
    await m.clock.complete(store.operator.createDatabase(metrics));
    const reader = new Reader(store, ["#"], new Map());
    await put(m, store, "metrics/1", "one");
    await m.clock.advance(100);
    const positions = reader.subscriber.positions();
    await put(m, store, "metrics/2", "two");
    m.crash();
    const next = await m.boot();
    expect(names(next.store)).toEqual(["meta", "state", "messages", "metrics"]);
    const later = new Reader(next.store, ["#"], positions);
    await put(m, next.store, "metrics/3", "three");
    await m.clock.advance(100);
    expect(later.values).toEqual(["two", "three"]);
    expect(later.received.every(({ shard }) => shard >= 5)).toBe(true);
  });

  test("is dropped with all it has, others untouched; its name can be used again", async () => {
    const m = machine();
    const { store } = await m.boot();
    await m.clock.complete(store.operator.createDatabase(metrics));
    const reader = new Reader(store, ["#"], new Map());
    await put(m, store, "metrics/1");
    await put(m, store, "other");
    await m.clock.complete(store.operator.dropDatabase("metrics"));
    expect(names(store)).not.toContain("metrics");
    await put(m, store, "metrics/2");
    await m.clock.advance(2_000);
    expect(reader.values).toEqual(["metrics/1", "other", "metrics/2"]);
    expect(reader.subscriber.atTail).toBe(true);
    expect(m.kv.paths.filter((path) => path.includes("/metrics/"))).toEqual([]);
    const again = await m.clock.complete(store.operator.createDatabase(metrics));
    expect(again.shards).toEqual([9, 10, 11]);
    const late = new Reader(store, ["#"], new Map());
    await m.clock.advance(100);
    expect([...late.values].sort()).toEqual(["metrics/2", "other"]);
  });

  test("whose removal was cut off is removed by the next start", async () => {
    for (let round = 0; round < 12; round++) {
      const m = machine();
      const { store } = await m.boot();
      await m.clock.complete(store.operator.createDatabase(metrics));
      await put(m, store, "metrics/1");
      await put(m, store, "other");
      const dropping = store.operator.dropDatabase("metrics");
      dropping.catch(() => undefined);
      await m.clock.advance(round / 4);
      m.crash();
      const next = await m.boot();
      await m.clock.advance(3_000);
      const isThere = names(next.store).includes("metrics");
      const left = m.kv.paths.filter((path) => path.includes("/metrics/"));
      expect(left.length > 0).toBe(isThere);
      const reader = new Reader(next.store, ["#"], new Map());
      await m.clock.advance(100);
      expect([...reader.values].sort()).toEqual(isThere ? ["metrics/1", "other"] : ["other"]);
    }
  });

  test("can be altered: retention, topics, and how topics are learned, which ends generations", async () => {
    const m = machine();
    const { store } = await m.boot();
    const { operator } = store;
    const made = await m.clock.complete(operator.createDatabase(metrics));
    await put(m, store, "metrics/1");
    const change = {
      topics: ["other"],
      retention: { bytes: 5 },
      layoutOptions: { patterns: ["metrics/+"] },
    };
    const altered = await m.clock.complete(operator.alterDatabase("metrics", change));
    expect(altered).toMatchObject({
      topics: ["other"],
      retention: { ageMs: 7 * 86_400_000, bytes: 5 },
    });
    const generations = made.shards.map((shard) => operator.generations(shard).at(-1)?.number);
    expect(generations).toEqual([2, 2, 2]);
    await put(m, store, "other");
    expect(await ttvs(m, store, "metrics")).toBe(2);
  });

  test("of layout map gives shards to write to", async () => {
    const m = machine();
    const { store } = await m.boot();
    const spec: DatabaseSpec = { name: "things", layout: "map", shards: 1 };
    await m.clock.complete(store.operator.createDatabase(spec));
    const shard = store.operator.mapShard("things", "owner");
    await m.clock.complete(shard.transact(async (tx) => tx.put("a", Buffer.from("1"))));
    m.crash();
    const next = await m.boot();
    const found = next.store.operator.mapShard("things", "owner").get("a");
    expect((await m.clock.complete(found))?.value.toString()).toBe("1");
  });
});

describe("what cannot be is refused with a code", () => {
  test.each([
    [{ name: "" }, "STORE_DATABASE_INVALID"],
    [{ name: "../x" }, "STORE_DATABASE_INVALID"],
    [{ name: "a".repeat(65) }, "STORE_DATABASE_INVALID"],
    [{ name: "messages" }, "STORE_DATABASE_EXISTS"],
    [{ name: "a", shards: 0 }, "STORE_DATABASE_INVALID"],
    [{ name: "a", shards: 1.5 }, "STORE_DATABASE_INVALID"],
    [{ name: "a", shards: 257 }, "STORE_DATABASE_INVALID"],
    [{ name: "a", layout: "heap" as "log" }, "STORE_DATABASE_INVALID"],
    [{ name: "a", replicationFactor: 3 }, "STORE_DATABASE_INVALID"],
    [{ name: "a", topics: ["x/#/y"] }, "STORE_DATABASE_INVALID"],
    [{ name: "a", layout: "map" as const, topics: ["x"] }, "STORE_DATABASE_INVALID"],
    [{ name: "a", retention: { ageMs: -1 } }, "STORE_DATABASE_INVALID"],
    [{ name: "a", layoutOptions: { streamsMax: 2 } }, "STORE_DATABASE_INVALID"],
    [{ name: "a", layoutOptions: { patterns: ["+x"] } }, "STORE_DATABASE_INVALID"],
  ] as Array<[DatabaseSpec, string]>)("create %j: %s", async (spec, code) => {
    const m = machine();
    const { store } = await m.boot();
    const made = m.clock.complete(store.operator.createDatabase(spec));
    await expect(made).rejects.toMatchObject({ code });
    expect(names(store)).toEqual(["meta", "state", "messages"]);
  });

  test("built-in databases stay, unknown ones are not there, shards are fixed", async () => {
    const m = machine({ databases: [metrics] });
    const { store } = await m.boot();
    const refused = (work: Promise<unknown>, code: string) =>
      expect(m.clock.complete(work)).rejects.toMatchObject({ code });
    for (const name of ["meta", "state", "messages"]) {
      await refused(store.operator.dropDatabase(name), "STORE_DATABASE_BUILT_IN");
    }
    await refused(store.operator.dropDatabase("nothing"), "STORE_DATABASE_NOT_FOUND");
    await refused(store.operator.alterDatabase("nothing", {}), "STORE_DATABASE_NOT_FOUND");
    expect(() => store.operator.generations(99)).toThrow("no log shard 99");
  });

  test.each([
    [{ databases: [{ ...metrics, shards: 5 }] }, "STORE_SHARDS_FIXED"],
    [{ databases: [{ ...metrics, layout: "map" as const, topics: [] }] }, "STORE_LAYOUT_FIXED"],
    [{ shards: 7 }, "STORE_SHARDS_FIXED"],
  ])("a start with %j ends with %s, and a right one goes on", async (wrong, code) => {
    const m = machine({ databases: [metrics] });
    const first = await m.boot();
    await put(m, first.store, "metrics/1");
    await m.stop(first);
    const bad = m.clock.complete(m.open(wrong));
    await expect(bad).rejects.toMatchObject({ code });
    const { store } = await m.boot();
    const reader = new Reader(store, ["#"], new Map());
    await m.clock.advance(100);
    expect(reader.values).toEqual(["metrics/1"]);
  });
});

describe("QoS 2 over databases", () => {
  const claim = { incarnation: 7, ownerEpoch: 9 };
  const publish = (store: LocalStore, topic: string, packetId: number, value: string) =>
    append(store, appendRequest(topic, value, { qos: 2, evidence: { ...claim, packetId } }));
  const release = (m: StoreMachine, store: LocalStore, packetId: number): Promise<boolean> =>
    m.clock.complete(
      new Promise((resolve, reject) => {
        store.evidence.release("p", claim, packetId, (error, known) =>
          error === undefined ? resolve(known) : reject(error),
        );
      }),
    );

  test("a repeat is stored once, through kill -9 at any moment, and a release frees the id", async () => {
    for (let round = 0; round < 20; round++) {
      const m = machine();
      const { store } = await m.boot();
      await m.clock.complete(store.operator.createDatabase(metrics));
      await m.clock.complete(store.evidence.open("p", claim));
      publish(store, "metrics/1", 1, "once").catch(() => undefined);
      await m.clock.advance(round / 5);
      m.crash();
      const next = await m.boot();
      await m.clock.complete(next.store.evidence.open("p", claim));
      await m.clock.complete(publish(next.store, "metrics/1", 1, "once"));
      const again = await m.clock.complete(publish(next.store, "metrics/1", 1, "once"));
      expect(again).toEqual({ kind: "repeat" });
      expect(next.store.evidence.list("p", claim)).toEqual([1]);
      expect(await release(m, next.store, 1)).toBe(true);
      expect(next.store.evidence.list("p", claim)).toEqual([]);
      expect(await m.clock.complete(publish(next.store, "metrics/1", 1, "two"))).toMatchObject({
        kind: "stored",
      });
      const reader = new Reader(next.store, ["#"], new Map());
      await m.clock.advance(100);
      expect(reader.values).toEqual(["once", "two"]);
    }
  });

  test("a repeat of what was stored before its topic was routed elsewhere stores nothing", async () => {
    const m = machine();
    const { store } = await m.boot();
    await m.clock.complete(store.evidence.open("p", claim));
    await m.clock.complete(publish(store, "metrics/1", 1, "once"));
    await m.clock.complete(store.operator.createDatabase(metrics));
    const again = await m.clock.complete(publish(store, "metrics/1", 1, "once"));
    expect(again).toEqual({ kind: "repeat" });
    const reader = new Reader(store, ["#"], new Map());
    await m.clock.advance(100);
    expect(reader.values).toEqual(["once"]);
  });

  test("what a publisher sends next to the same database does not overtake it", async () => {
    const m = machine();
    const { store } = await m.boot();
    await m.clock.complete(store.operator.createDatabase(metrics));
    await m.clock.complete(store.evidence.open("p", claim));
    const all = [
      publish(store, "metrics/1", 1, "1"),
      append(store, appendRequest("metrics/1", "2")),
      publish(store, "metrics/2", 2, "3"),
      append(store, appendRequest("metrics/3", "4")),
    ];
    await m.clock.complete(Promise.all(all));
    const reader = new Reader(store, ["#"], new Map());
    await m.clock.advance(100);
    expect(reader.values).toEqual(["1", "2", "3", "4"]);
  });
});

test("a database in a group of its own is refused by its own quota, others go on", async () => {
  const quotaBytes = 32 * 2 ** 20;
  const small = { ...groupSettingsDefault, name: "small", databases: ["metrics"], quotaBytes };
  const m = machine({ databases: [metrics], groups: [groupSettingsDefault, small] });
  const { store } = await m.boot();
  for (let n = 0; n < 8_000 && store.refusalOf("metrics/1") === undefined; n++) {
    void append(store, appendRequest("metrics/1", "x".repeat(8_000), { publisher: `p${n % 9}` }));
    if (n % 8 === 7) await m.clock.advance(20);
  }
  expect(store.refusalOf("metrics/1")?.code).toBe("STORE_QUOTA_EXCEEDED");
  expect(store.refusalOf("other")).toBeUndefined();
  expect(store.refusal).toBeUndefined();
  await put(m, store, "other");
  const states = store.operator
    .groups()
    .map(({ name, state, databases }) => [name, state, databases]);
  expect(states).toEqual([
    ["default", "open", ["meta", "state", "messages"]],
    ["small", "full", ["metrics"]],
  ]);
});
