import { describe, expect, test } from "vitest";
import type { LocalStore } from "../../../src/store/index.ts";
import { amount } from "../../support/amount.ts";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { type MachineOptions, StoreMachine } from "../../support/store-machine.ts";

const oneShard = (seed: number, store: MachineOptions["store"] = {}) =>
  new StoreMachine({ seed, store: { shards: 1, ...store } });

type Options = { readonly expiryUs?: (n: number) => number };

/** One sealed generation whose blocks hold one TTV each; the values in order of their times. */
async function sparse(
  m: StoreMachine,
  store: LocalStore,
  count: number,
  { expiryUs = () => 0 }: Options = {},
): Promise<string[]> {
  const values: string[] = [];
  for (let n = 0; n < count; n++) {
    const request = appendRequest(`t/${n % 3}`, `v${n}`, { expiryUs: expiryUs(n) });
    await m.clock.complete(append(store, request));
    await m.clock.complete(store.checkpoint());
    values.push(`v${n}`);
  }
  await m.clock.complete(store.rotate());
  return values;
}

async function readAll(m: StoreMachine, store: LocalStore, filters = ["#"]): Promise<Reader> {
  const reader = new Reader(store, filters, new Map());
  await m.clock.runUntil(() => reader.subscriber.atTail);
  await m.clock.advance(10);
  return reader;
}

const repack = (m: StoreMachine, store: LocalStore, options = {}) =>
  m.clock.complete(store.operator.repack(options), 600_000);

const folders = (m: StoreMachine): string[] => [
  ...new Set(m.kv.paths.flatMap((path) => /\/(g\d+(?:p\d+)?)\//.exec(path)?.[1] ?? [])),
];

const hashes = (m: StoreMachine, store: LocalStore): Promise<string> =>
  m.clock.complete(store.operator.logicalHash(store.logShards[0]!));

describe("packing a generation anew", () => {
  test("makes few full blocks of many small ones and changes nothing else", async () => {
    const m = oneShard(1);
    const { store } = await m.boot();
    const values = await sparse(m, store, 60);
    const before = await hashes(m, store);
    const positions = (await readAll(m, store)).received.map(({ timeUs }) => timeUs);
    const report = await repack(m, store);
    expect(report).toMatchObject({ slabs: 1, packed: 1, blocksBefore: 60, blocksAfter: 3 });
    expect(await hashes(m, store)).toBe(before);
    const after = await readAll(m, store);
    expect(after.values).toEqual(values);
    expect(after.received.map(({ timeUs }) => timeUs)).toEqual(positions);
    expect((await readAll(m, store, ["t/1"])).values).toHaveLength(20);
    const verified = await m.clock.complete(store.operator.verify());
    expect(verified).toMatchObject({ ttvs: 60, findings: [] });
    await m.clock.advance(100);
    expect(folders(m)).toEqual(["g00000001p1", "g00000002"]);
    expect(store.operator.generations(store.logShards[0]!)[0]!.folder).toContain("g00000001p1");
  });

  test("is not done again where nothing is gained, unless all is asked for", async () => {
    const m = oneShard(2);
    const { store } = await m.boot();
    await sparse(m, store, 60);
    await repack(m, store);
    expect(await repack(m, store)).toMatchObject({ slabs: 1, packed: 0 });
    expect(await repack(m, store, { all: true })).toMatchObject({ packed: 1, blocksAfter: 3 });
    expect(store.operator.generations(store.logShards[0]!)[0]!.folder).toContain("g00000001p2");
  });

  test("survives a restart, and a power cut right after it", async () => {
    for (const end of ["kill", "crash"] as const) {
      const m = oneShard(3);
      const { store } = await m.boot();
      const values = await sparse(m, store, 30);
      await repack(m, store);
      m[end]();
      const again = (await m.boot()).store;
      expect((await readAll(m, again)).values).toEqual(values);
      expect(folders(m)).toEqual(["g00000001p1", "g00000002"]);
    }
  });

  test("ended by a kill or power cut at any step leaves one slab whole and no second one", async () => {
    const steps = ["begun", "window", "synced", "switched"].map((step) => `repack.${step}`);
    steps.push("checkpoint.prepared", "checkpoint.committed");
    for (const step of steps) {
      for (const end of ["kill", "crash"] as const) {
        const m = oneShard(4);
        const { store } = await m.boot();
        const values = await sparse(m, store, 9);
        let ended = false;
        m.onPhase = (name) => {
          if (name !== step || ended) return;
          ended = true;
          m[end]();
        };
        void store.operator.repack({ all: true }).catch(() => undefined);
        await m.clock.advance(500);
        expect(ended, step).toBe(true);
        m.onPhase = undefined;
        const again = (await m.boot()).store;
        expect((await readAll(m, again)).values, `${end} at ${step}`).toEqual(values);
        const left = folders(m).filter((name) => name.startsWith("g00000001"));
        const isSwitched = step === "repack.switched" || step === "checkpoint.committed";
        expect(left, `${end} at ${step}`).toEqual([isSwitched ? "g00000001p1" : "g00000001"]);
        const verified = await m.clock.complete(again.operator.verify());
        expect(verified.findings).toEqual([]);
        await repack(m, again, { all: true });
        expect((await readAll(m, again)).values).toEqual(values);
      }
    }
  });

  test("readers in the middle of it keep their positions and get each TTV once", async () => {
    const m = oneShard(5, { blockCacheBytesMax: 1 });
    const { store } = await m.boot();
    const values = await sparse(m, store, 60);
    const readers = [3, 17, 42].map((room) => new Reader(store, ["t/#"], new Map(), { room }));
    await m.clock.advance(100);
    const packing = store.operator.repack();
    for (let n = 0; n < 12; n++) {
      await m.clock.advance(1);
      for (const reader of readers) {
        reader.room += 2;
        reader.subscriber.wake();
      }
    }
    await m.clock.complete(packing);
    for (const reader of readers) {
      reader.room = 1_000;
      reader.subscriber.wake();
      await m.clock.runUntil(() => reader.subscriber.atTail);
      expect(reader.values).toEqual(values);
      expect(reader.missedReports).toEqual([]);
    }
  });

  test("references to TTVs hold", async () => {
    const m = oneShard(6);
    const { store } = await m.boot();
    const values = await sparse(m, store, 30);
    const { refs } = await readAll(m, store);
    const packing = store.operator.repack();
    const during = await m.clock.complete(store.fetch(refs));
    await m.clock.complete(packing);
    for (const found of [during, await m.clock.complete(store.fetch(refs))]) {
      expect(found.map((ttv) => ttv?.frame.toString())).toEqual(values);
    }
  });

  test("a drop in the middle of it wins, and nothing of either slab stays", async () => {
    for (const step of ["begun", "window", "synced"]) {
      const m = oneShard(7);
      const { store } = await m.boot();
      await sparse(m, store, 30);
      let dropping: Promise<unknown> | undefined;
      m.onPhase = (name) => {
        if (name === `repack.${step}`) dropping ??= store.dropUntil(Number.MAX_SAFE_INTEGER);
      };
      await repack(m, store);
      await m.clock.complete(dropping!);
      await m.clock.advance(1_000);
      expect(folders(m), step).toEqual(["g00000002"]);
      const reader = await readAll(m, store);
      expect(reader.missedReports).toMatchObject([{ count: 30, reason: "expired" }]);
    }
  });

  test("what a slab has learned is not forgotten while it is packed, though others are read", async () => {
    const m = oneShard(13, { openSlabsMax: 1, restingTriesBytesMax: 1 });
    const { store } = await m.boot();
    const soonUs = m.clock.wallUs() + 1_000_000;
    await sparse(m, store, 9, { expiryUs: () => soonUs });
    const values = await sparse(m, store, 9);
    await m.clock.advance(10_000);
    // No block is left of the first generation: nothing reads its topics anew with the next packing.
    expect(await repack(m, store, { all: true })).toMatchObject({ ttvsExpired: 9 });
    m.kv.inject({ on: "open", path: "g00000001p2", delayMs: 300 });
    const packing = store.operator.repack({ all: true });
    await m.clock.advance(100);
    const { triesForgotten } = store.openSlabs.counters;
    expect((await readAll(m, store)).values).toEqual(values);
    expect(await m.clock.complete(packing)).toMatchObject({ slabs: 2, packed: 2 });
    expect(store.openSlabs.counters.triesForgotten).toBeGreaterThan(triesForgotten);
    expect((await readAll(m, store)).values).toEqual(values);
  });

  test("a slab that is compacted is replaced when that is done", async () => {
    const m = oneShard(14);
    const { store } = await m.boot();
    const values = await sparse(m, store, 30);
    const packing = store.operator.repack();
    let compacting: Promise<unknown> | undefined;
    m.onPhase = (name) => {
      if (name !== "repack.synced" || compacting !== undefined) return;
      m.kv.inject({ on: "read", path: "g00000001/blocks", delayMs: 5_000 });
      compacting = store.operator.compact();
    };
    expect(await m.clock.complete(packing)).toMatchObject({ packed: 1 });
    await m.clock.complete(compacting!, 60_000);
    await m.clock.advance(100);
    expect(folders(m)).toEqual(["g00000001p1", "g00000002"]);
    expect((await readAll(m, store)).values).toEqual(values);
  });

  test("a store that closes in the middle of it leaves nothing open", async () => {
    for (const [step, phase] of ["repack.begun", "repack.window", "repack.synced"].entries()) {
      const m = oneShard(60 + step);
      const process = await m.boot();
      await sparse(m, process.store, 30);
      m.kv.inject({ on: "write", path: "g00000001p1", delayMs: 300 });
      m.kv.inject({ on: "sync", path: "g00000001p1", delayMs: 300 });
      let isReached = false;
      m.onPhase = (name) => {
        isReached ||= name === phase;
      };
      process.store.operator.repack({}).catch(() => undefined);
      await m.clock.runUntil(() => isReached);
      await m.stop(process);
      const { store } = await m.boot();
      expect((await readAll(m, store)).values).toHaveLength(30);
      expect(folders(m)).toHaveLength(2);
    }
  });

  test("what has expired goes, and readers that come after are told how much", async () => {
    const m = oneShard(8);
    const { store } = await m.boot();
    const soonUs = m.clock.wallUs() + 1_000_000;
    await sparse(m, store, 90, { expiryUs: (n) => (n < 60 ? soonUs : 0) });
    await m.clock.advance(10_000);
    const report = await repack(m, store);
    expect(report).toMatchObject({ packed: 1, ttvsExpired: 60 });
    const reader = await readAll(m, store);
    expect(reader.values).toEqual(Array.from({ length: 30 }, (_, n) => `v${n + 60}`));
    expect(reader.missedReports.reduce((sum, { count }) => sum + count, 0)).toBe(60);
    for (const missed of reader.missedReports) expect(missed.reason).toBe("expired");
    const verified = await m.clock.complete(store.operator.verify());
    expect(verified).toMatchObject({ ttvs: 30, findings: [] });
    // Packed once more, what is gone is still told.
    await repack(m, store, { all: true });
    const later = await readAll(m, store);
    expect(later.missedReports.reduce((sum, { count }) => sum + count, 0)).toBe(60);
  });

  test("a few expired ones among others stay: they would cut blocks for nothing", async () => {
    const m = oneShard(9);
    const { store } = await m.boot();
    const soonUs = m.clock.wallUs() + 1_000_000;
    await sparse(m, store, 60, { expiryUs: (n) => (n % 12 === 0 ? soonUs : 0) });
    await m.clock.advance(10_000);
    expect(await repack(m, store)).toMatchObject({ packed: 1, ttvsExpired: 0, blocksAfter: 3 });
    expect((await readAll(m, store)).values).toHaveLength(60);
  });

  test("a slab with a block that cannot be read stays as it is", async () => {
    const m = oneShard(10);
    const { store } = await m.boot();
    const values = await sparse(m, store, 30);
    const path = m.kv.paths.find((each) => each.includes("g00000001/blocks"))!;
    m.kv.inject({ on: "read", path, skip: 3, times: 1, fails: "EBADMSG" });
    expect(await repack(m, store, { all: true })).toMatchObject({ slabs: 1, packed: 0 });
    await m.clock.advance(100);
    expect(folders(m)).toEqual(["g00000001", "g00000002"]);
    // Nothing of it is lost: it was read wrongly, once.
    expect((await readAll(m, store)).values).toEqual(values);
    expect(await repack(m, store)).toMatchObject({ packed: 1 });
  });

  test("keeps to its speed and can be cancelled between two blocks", async () => {
    const m = oneShard(11);
    const { store } = await m.boot();
    const values = await sparse(m, store, 60);
    const beginMs = m.clock.elapsedMs();
    await repack(m, store, { bytesPerSecondMax: 1_000 });
    expect(m.clock.elapsedMs() - beginMs).toBeGreaterThan(1_000);
    let asked = 0;
    const cancelled = store.operator.repack({ all: true, isCancelled: () => ++asked > 2 });
    await expect(m.clock.complete(cancelled)).rejects.toMatchObject({
      code: "STORE_WORK_CANCELLED",
    });
    await m.clock.advance(100);
    expect(folders(m)).toEqual(["g00000001p1", "g00000002"]);
    expect((await readAll(m, store)).values).toEqual(values);
  });

  test("a slab that its group has no room for twice stays as it is and is counted", async () => {
    const quotaBytes = 400_000;
    const groups = [{ name: "default", databases: [], quotaBytes, onFull: "refuse" as const }].map(
      (each) => ({ ...each, writeBufferBytesMax: 1_000_000, workSlots: 1 }),
    );
    const m = oneShard(12, { groups });
    const { store } = await m.boot();
    await sparse(m, store, 30);
    const [group] = store.operator.groups();
    const frame = Buffer.alloc((quotaBytes * 0.9 - group!.physicalBytes) / 4);
    for (let n = 0; n < 4; n++) {
      await m.clock.complete(append(store, appendRequest("big", "", { frame })));
    }
    await m.clock.complete(store.checkpoint());
    await m.clock.advance(2_000);
    const report = await repack(m, store);
    expect(report).toMatchObject({ packed: 0, withoutRoom: 1 });
    expect(folders(m)).toEqual(["g00000001", "g00000002"]);
  });
});

describe("windows", () => {
  const many = amount(1_000, 5_000);
  test(`a reader of everything over ${many} streams does not seek ${many} times`, async () => {
    const layoutOptions = { thresholds: [10_000] as [number], streamsMax: 16_384 };
    const databases = [{ name: "wide", shards: 1, topics: ["w/#"], layoutOptions }];
    const m = oneShard(20, { databases });
    let { store } = await m.boot();
    for (let round = 0; round < 2; round++) {
      const requests = Array.from({ length: many }, (_, n) => appendRequest(`w/${n}`, `${n}`));
      await m.clock.complete(Promise.all(requests.map((each) => append(store, each))));
      await m.clock.complete(store.checkpoint());
    }
    const shard = store.logShards.at(-1)!;
    expect(store.operator.generations(shard).at(-1)!.streams).toBe(many);
    m.kill();
    store = (await m.boot()).store;
    const reader = await readAll(m, store);
    expect(reader.values).toHaveLength(2 * many);
    const { rowSeeks, windowSeeks } = store.slabCounters;
    expect(rowSeeks + windowSeeks).toBeLessThan(10);
  });

  const streams = 300;

  /** Two generations of many streams, in several checkpoints, and some that are open. */
  async function wide(m: StoreMachine): Promise<LocalStore> {
    const { store } = await m.boot();
    for (let round = 0; round < 5; round++) {
      const requests = Array.from({ length: streams }, (_, n) =>
        appendRequest(`s${n}/x`, `${round}-${n}`),
      );
      await m.clock.complete(Promise.all(requests.map((each) => append(store, each))));
      if (round === 2) await m.clock.complete(store.rotate());
      else if (round < 4) await m.clock.complete(store.checkpoint());
    }
    return store;
  }
  const exact = { layoutOptions: { thresholds: [1_000] as [number], streamsMax: 4_000 } };
  const manyStreams = (seed: number) => {
    const m = oneShard(seed);
    return { m, alter: (store: LocalStore) => store.operator.alterDatabase("messages", exact) };
  };

  test("a reader of all streams seeks once for each window, not for each stream", async () => {
    const { m, alter } = manyStreams(21);
    const first = await m.boot();
    await m.clock.complete(alter(first.store));
    m.kill();
    const store = await wide(m);
    const info = store.operator.generations(store.logShards[0]!);
    expect(info.at(-1)!.streams).toBeGreaterThanOrEqual(streams);
    const before = { ...store.slabCounters };
    const all = await readAll(m, store);
    const expected = [0, 1, 2, 3, 4].flatMap((r) =>
      Array.from({ length: streams }, (_, n) => `${r}-${n}`),
    );
    expect(all.values).toEqual(expected);
    expect(store.slabCounters.rowSeeks - before.rowSeeks).toBe(0);
    expect(store.slabCounters.windowSeeks - before.windowSeeks).toBeLessThan(12);
    // After a restart, when everything is on disk, it is the same.
    m.kill();
    const again = (await m.boot()).store;
    expect((await readAll(m, again)).values).toEqual(expected);
    expect(again.slabCounters.rowSeeks).toBe(0);
  });

  test("from any position on a reader by windows gets what one by streams gets", async () => {
    const { m, alter } = manyStreams(22);
    const first = await m.boot();
    await m.clock.complete(alter(first.store));
    m.kill();
    const store = await wide(m);
    const all = await readAll(m, store);
    for (const at of [0, 1, 299, 300, 450, 899, 900, 1_200, 1_499]) {
      const from = new Map(store.logShards.map((shard) => [shard, all.received[at]!.timeUs]));
      const reader = new Reader(store, ["#"], from);
      await m.clock.runUntil(() => reader.subscriber.atTail);
      expect(reader.values).toEqual(all.values.slice(at + 1));
    }
  });

  test("a damaged window sends its readers to the rows of the streams", async () => {
    const { m, alter } = manyStreams(23);
    const first = await m.boot();
    await m.clock.complete(alter(first.store));
    m.kill();
    const store = await wide(m);
    const expected = (await readAll(m, store)).values;
    m.kv.inject({ on: "read", path: "g00000002/index", times: 1, fails: "EBADMSG" });
    const { windowSeeks } = store.slabCounters;
    expect((await readAll(m, store)).values).toEqual(expected);
    expect(store.slabCounters.windowSeeks).toBeGreaterThan(windowSeeks);
    expect(store.slabCounters.rowSeeks).toBeGreaterThan(streams / 2);
  });
});
