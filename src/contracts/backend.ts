// What every backend of the store must do, whatever is under it: a folder, a machine in memory, later
// replicas. It speaks to the store as programs do, and lets its process end in between.

import { deepEqual, equal, ok } from "node:assert/strict";
import type {
  AppendOutcome,
  AppendRequest,
  LocalStore,
  MapShard,
  StoreSettings,
} from "../store/index.ts";
import { type AddRule, type ContractRule, type Rig, refuses, rulesOf } from "./rule.ts";
import { StoreReader } from "./store-reader.ts";

export type BackendRig = Rig & {
  /** Opens and starts the store: the first one ever, or as it was left. */
  open(settings?: Partial<Omit<StoreSettings, "dir" | "quarantineDir">>): Promise<LocalStore>;
  /** Ends the process that has it open, as roughly as the backend can. */
  end(): Promise<void>;
};

/** Rules for a store. */
export function backendContract(openRig: () => Promise<BackendRig>): ContractRule[] {
  return rulesOf(openRig, (add) => {
    addAppendRules(add);
    addReadRules(add);
    addMapRules(add);
    addOnceRules(add);
    addGenerationRules(add);
    addDatabaseRules(add);
    addWorkRules(add);
  });
}

type Add = AddRule<BackendRig>;

function addAppendRules(add: Add): void {
  add("TTVs of one publisher get growing commit times and come in this order", async (rig) => {
    const store = await rig.open();
    const outcomes = await Promise.all(range(100).map((n) => append(store, `a/${n % 7}`, `v${n}`)));
    const times = outcomes.map(timeOf);
    deepEqual(
      times,
      [...new Set(times)].sort((a, b) => a - b),
    );
    const reader = new StoreReader(store, ["#"]);
    await reader.has(100);
    deepEqual(
      reader.values,
      range(100).map((n) => `v${n}`),
    );
    deepEqual(
      reader.received.map(({ timeUs }) => timeUs),
      times,
    );
  });

  add(
    "what was acked is there in the next process, and the one after a checkpoint",
    async (rig) => {
      let store = await rig.open();
      for (let round = 0; round < 3; round++) {
        await Promise.all(range(20).map((n) => append(store, `a/${n % 3}`, `r${round}-${n}`)));
        if (round === 1) await store.checkpoint();
        await rig.end();
        store = await rig.open();
        const reader = new StoreReader(store, ["#"]);
        await reader.has(20 * (round + 1));
        deepEqual(
          reader.values,
          range(round + 1).flatMap((r) => range(20).map((n) => `r${r}-${n}`)),
        );
        reader.subscriber.close();
      }
    },
  );

  add("a TTV comes back with all that was given, however many bytes it has", async (rig) => {
    const store = await rig.open();
    const frame = Buffer.alloc(300_000, "f");
    const odd: Partial<AppendRequest> = { qos: 2, retain: true, form: "v5", expiryUs: 2 ** 51 };
    const { timeUs } = (await appendAs(store, "a//é/$x", frame, odd)) as { timeUs: number };
    await append(store, "a", "");
    await store.checkpoint();
    const reader = new StoreReader(store, ["#"]);
    await reader.has(2);
    const [ttv, empty] = await store.fetch(reader.received.map(({ ref }) => ref));
    ok(ttv !== undefined && frame.equals(ttv.frame));
    const { topic, publisher, form, qos, retain, expiryUs } = ttv;
    deepEqual(
      { topic, publisher, form, qos, retain, expiryUs, timeUs: ttv.timeUs },
      {
        topic: "a//é/$x",
        publisher: "p",
        form: "v5",
        qos: 2,
        retain: true,
        expiryUs: 2 ** 51,
        timeUs,
      },
    );
    equal(empty?.frame.length, 0);
  });

  add("a TTV above the largest entry is refused and leaves nothing", async (rig) => {
    const store = await rig.open();
    const large = Buffer.alloc(9 * 1024 * 1024);
    await refuses("STORE_ENTRY_TOO_LARGE", () => appendAs(store, "a/large", large));
    await append(store, "a", "next");
    const reader = new StoreReader(store, ["#"]);
    await reader.atTail();
    deepEqual(reader.values, ["next"]);
  });
}

function addReadRules(add: Add): void {
  add("a reader gets what matches its filters once, with all filters that matched", async (rig) => {
    const store = await rig.open();
    for (const topic of ["a/1/x", "a/2/y", "b", "$s/x", "a"]) await append(store, topic, topic);
    const of = async (...filters: string[]): Promise<Record<string, readonly string[]>> => {
      const reader = new StoreReader(store, filters);
      await reader.atTail();
      reader.subscriber.close();
      return Object.fromEntries(reader.received.map(({ topic, filters }) => [topic, filters]));
    };
    deepEqual(await of("a/+/x", "a/#"), {
      "a/1/x": ["a/#", "a/+/x"],
      "a/2/y": ["a/#"],
      a: ["a/#"],
    });
    deepEqual(Object.keys(await of("#")).sort(), ["a", "a/1/x", "a/2/y", "b"]);
    deepEqual(Object.keys(await of("$s/#")), ["$s/x"]);
    deepEqual(await of("nothing/+"), {});
  });

  add("a reader that resumes at any position gets what is behind it", async (rig) => {
    const store = await rig.open({ shards: 1 });
    const [shard = 0] = store.logShards;
    for (let n = 0; n < 60; n++) {
      await append(store, `a/${n % 5}`, `v${n}`);
      if (n % 25 === 24) await store.checkpoint();
    }
    const all = new StoreReader(store, ["a/+"]);
    await all.has(60);
    for (const at of [0, 13, 24, 25, 58]) {
      const positions = new Map([[shard, all.received[at]?.timeUs ?? 0]]);
      const rest = new StoreReader(store, ["a/+"], { positions });
      await rest.atTail();
      deepEqual(rest.values, all.values.slice(at + 1));
      rest.subscriber.close();
    }
  });

  add("a reader with a window misses and repeats nothing while others write", async (rig) => {
    const store = await rig.open();
    const writing: Array<Promise<unknown>> = [];
    for (let n = 0; n < 30; n++) writing.push(append(store, `a/${n % 4}`, `v${n}`));
    const reader = new StoreReader(store, ["a/#"], { room: 3 });
    for (let n = 30; n < 200; n++) {
      writing.push(append(store, `a/${n % 4}`, `v${n}`));
      if (n % 10 === 0) {
        await writing.at(-1);
        reader.giveRoom(n % 20 === 0 ? 25 : 1);
      }
    }
    await Promise.all(writing);
    reader.giveRoom(1_000);
    await reader.has(200);
    deepEqual(
      reader.values,
      range(200).map((n) => `v${n}`),
    );
  });

  add("a filter that is taken away, or has a start, gets nothing outside of it", async (rig) => {
    const store = await rig.open();
    await append(store, "a", "1");
    const reader = new StoreReader(store, ["b"]);
    reader.subscriber.setFilter({ filter: "a", start: store.tail(), durable: true, context: "a" });
    await append(store, "a", "2");
    await reader.has(1);
    reader.subscriber.removeFilter("a");
    await append(store, "a", "3");
    await append(store, "b", "4");
    await reader.has(2);
    deepEqual(reader.values, ["2", "4"]);
  });
}

function addMapRules(add: Add): void {
  add(
    "a map holds the latest value of each key, in key order, over ends of its process",
    async (rig) => {
      let map = (await rig.open()).state("owner");
      for (let n = 0; n < 40; n++) await write(map, `k/${n % 9}`, `v${n}`);
      await write(map, "k/3", undefined);
      await rig.end();
      map = (await rig.open()).state("owner");
      const page = await map.list("k/", { countMax: 100 });
      const keys = [0, 1, 2, 4, 5, 6, 7, 8];
      deepEqual(
        page.map(({ key }) => key),
        keys.map((n) => `k/${n}`),
      );
      deepEqual(
        page.map(({ value }) => value.toString()),
        keys.map((n) => `v${n < 4 ? 36 + n : 27 + n}`),
      );
      equal(await map.get("k/3"), undefined);
      const after = await map.list("k/", { afterKey: "k/5", countMax: 2 });
      deepEqual(
        after.map(({ key }) => key),
        ["k/6", "k/7"],
      );
      const matched = await map.match("k/", "+", { countMax: 3 });
      deepEqual(
        matched.entries.map(({ key }) => key),
        ["k/0", "k/1", "k/2"],
      );
    },
  );

  add("a hundred racing increments add a hundred", async (rig) => {
    const store = await rig.open();
    const map = store.state("owner");
    await Promise.all(
      range(100).map(() =>
        map.transact(async (tx) => {
          const entry = await tx.get("n");
          tx.put("n", Buffer.from(String(Number(entry?.value.toString() ?? 0) + 1)));
        }),
      ),
    );
    equal((await map.get("n"))?.value.toString(), "100");
  });

  add("a write whose guard does not hold, or a precondition, changes nothing", async (rig) => {
    const map = (await rig.open()).state("owner");
    const timeUs = await write(map, "k", "1");
    await refuses("STORE_GUARD_FAILED", () =>
      write(map, "k", "2", [{ key: "k", timeUs: undefined }]),
    );
    await write(map, "k", "3", [{ key: "k", timeUs }]);
    const absent = map.transact(async (tx) => {
      tx.assertAbsent("k");
      tx.put("k", Buffer.from("4"));
    });
    await refuses("STORE_PRECONDITION_FAILED", () => absent);
    equal((await map.get("k"))?.value.toString(), "3");
  });
}

function addOnceRules(add: Add): void {
  add("a repeat under the same evidence is stored once, until it is released", async (rig) => {
    let store = await rig.open();
    const claim = { incarnation: 7, ownerEpoch: 8 };
    const publish = (value: string): Promise<AppendOutcome> =>
      appendAs(store, "a", Buffer.from(value), { qos: 2, evidence: { ...claim, packetId: 5 } });
    await store.evidence.open("p", claim);
    equal((await publish("1")).kind, "stored");
    equal((await publish("1")).kind, "repeat");
    await rig.end();
    store = await rig.open();
    await store.evidence.open("p", claim);
    deepEqual(store.evidence.list("p", claim), [5]);
    equal((await publish("1")).kind, "repeat");
    await new Promise<void>((resolve, reject) => {
      store.evidence.release("p", claim, 5, (error) => (error ? reject(error) : resolve()));
    });
    equal((await publish("2")).kind, "stored");
    const reader = new StoreReader(store, ["#"]);
    await reader.atTail();
    deepEqual(reader.values, ["1", "2"]);
  });

  add(
    "a writer's repeat is answered as it was, a gap and an older epoch are refused",
    async (rig) => {
      let store = await rig.open();
      let epoch = await store.openWriter("w", "p");
      const stamped = (sequence: number): Promise<AppendOutcome> =>
        appendAs(store, "a", Buffer.from(`s${sequence}`), {
          writer: { name: "w", epoch, sequence },
        });
      const first = await stamped(1);
      deepEqual(await stamped(1), first);
      await refuses("STORE_WRITER_GAP", () => stamped(3));
      await rig.end();
      store = await rig.open();
      deepEqual(await stamped(1), first);
      equal(store.writerResult({ name: "w", epoch, sequence: 1 }, "p"), timeOf(first));
      const newer = await store.openWriter("w", "p");
      await refuses("STORE_WRITER_FENCED", () => stamped(2));
      epoch = newer;
      await stamped(1);
      const reader = new StoreReader(store, ["#"]);
      await reader.atTail();
      deepEqual(reader.values, ["s1", "s1"]);
    },
  );
}

function addGenerationRules(add: Add): void {
  add("what was dropped is gone, readers are told how much, the rest is there", async (rig) => {
    let store = await rig.open({ shards: 1 });
    for (let n = 0; n < 10; n++) await append(store, "a", `old${n}`);
    const lastUs = timeOf(await append(store, "a", "old"));
    await store.rotate();
    await append(store, "a", "new");
    await store.dropUntil(lastUs);
    // It ends later than its last TTV: nothing of it may go.
    await store.dropUntil(Number.MAX_SAFE_INTEGER);
    for (let process = 0; process < 2; process++) {
      const reader = new StoreReader(store, ["#"]);
      await reader.has(1);
      await reader.atTail();
      deepEqual(reader.values, ["new"]);
      deepEqual(
        reader.missedReports.map(({ count, estimated, reason }) => ({ count, estimated, reason })),
        [{ count: 11, estimated: false, reason: "expired" }],
      );
      await rig.end();
      store = await rig.open({ shards: 1 });
    }
  });

  add("a hold keeps its generations from a drop that is not forced", async (rig) => {
    let store = await rig.open({ shards: 1 });
    await append(store, "a", "held");
    await store.operator.hold("keep");
    await store.rotate();
    equal(await store.operator.dropUntil(Number.MAX_SAFE_INTEGER), 0);
    await rig.end();
    store = await rig.open({ shards: 1 });
    deepEqual(
      store.operator.holds().map(({ name }) => name),
      ["keep"],
    );
    equal(await store.operator.dropUntil(Number.MAX_SAFE_INTEGER, { force: true }), 1);
    equal(store.operator.holds()[0]?.lostTtvs, 1);
    await store.operator.releaseHold("keep");
    deepEqual(store.operator.holds(), []);
  });
}

function addDatabaseRules(add: Add): void {
  add("a database made at run time takes its topics, and goes with what it has", async (rig) => {
    let store = await rig.open();
    await append(store, "m/1", "before");
    await store.operator.createDatabase({ name: "metrics", shards: 2, topics: ["m/#"] });
    await append(store, "m/1", "after");
    await append(store, "o", "other");
    await rig.end();
    store = await rig.open();
    const of = (name: string) => store.operator.databases().find((each) => each.name === name);
    deepEqual(of("metrics")?.topics, ["m/#"]);
    const all = new StoreReader(store, ["#"]);
    await all.has(3);
    deepEqual([...all.values].sort(), ["after", "before", "other"]);
    all.subscriber.close();
    await store.operator.alterDatabase("metrics", { retention: { bytes: 1_000_000 } });
    equal(of("metrics")?.retention.bytes, 1_000_000);
    await store.operator.dropDatabase("metrics");
    equal(of("metrics"), undefined);
    await rig.end();
    store = await rig.open();
    const rest = new StoreReader(store, ["#"]);
    await rest.atTail();
    deepEqual([...rest.values].sort(), ["before", "other"]);
    await refuses("STORE_DATABASE_NOT_FOUND", () => store.operator.dropDatabase("metrics"));
    await refuses("STORE_DATABASE_BUILT_IN", () => store.operator.dropDatabase("messages"));
  });
}

function addWorkRules(add: Add): void {
  add("verify finds nothing, compact and a restart change no logical hash", async (rig) => {
    let store = await rig.open({ shards: 2 });
    for (let round = 0; round < 2; round++) {
      await Promise.all(
        range(300).map((n) => append(store, `a/${n % 30}/x`, `v${n}`, `p${n % 5}`)),
      );
      await store.rotate();
    }
    await Promise.all(range(20).map((n) => append(store, "b", `v${n}`, `p${n % 5}`)));
    const hashes = (): Promise<string[]> =>
      Promise.all(store.logShards.map((shard) => store.operator.logicalHash(shard)));
    const before = await hashes();
    equal(new Set(before).size, 2);
    const report = await store.operator.verify();
    deepEqual(report.findings, []);
    ok(report.ttvs >= 600);
    equal((await store.operator.compact()).slabs, 4);
    deepEqual(await hashes(), before);
    await rig.end();
    store = await rig.open({ shards: 2 });
    deepEqual(await hashes(), before);
    const { streams, isComplete } = await store.operator.explain("a/7/+");
    ok(isComplete && streams.length > 0);
  });

  add("a store that is closed answers with STORE_CLOSED", async (rig) => {
    const store = await rig.open();
    await store.close();
    await refuses("STORE_CLOSED", () => append(store, "a", "1"));
    await refuses("STORE_CLOSED", () => write(store.state("owner"), "k", "1"));
  });
}

// ---------------------------------------------------------------- short ways

const range = (count: number): number[] => Array.from({ length: count }, (_, at) => at);

function timeOf(outcome: AppendOutcome): number {
  return outcome.kind === "stored" ? outcome.timeUs : 0;
}

function append(
  store: LocalStore,
  topic: string,
  value: string,
  publisher = "p",
): Promise<AppendOutcome> {
  return appendAs(store, topic, Buffer.from(value), { publisher });
}

function appendAs(
  store: LocalStore,
  topic: string,
  frame: Uint8Array,
  over: Partial<AppendRequest> = {},
): Promise<AppendOutcome> {
  const request: AppendRequest = {
    ...{ topic, frame, publisher: "p", form: "raw", qos: 1, retain: false },
    ...{ expiryUs: 0, expiryOffset: 0, keep: true, evidence: undefined },
    ...over,
  };
  return new Promise((resolve, reject) => {
    store.append(request, (error, outcome) => {
      if (outcome === undefined) reject(error);
      else resolve(outcome);
    });
  });
}

function write(
  map: MapShard,
  key: string,
  value: string | undefined,
  guards: Parameters<MapShard["write"]>[1] = [],
): Promise<number> {
  const writes = [{ key, value: value === undefined ? undefined : Buffer.from(value) }];
  return new Promise((resolve, reject) => {
    map.write(writes, guards, (error, timeUs) => (error ? reject(error) : resolve(timeUs)));
  });
}
