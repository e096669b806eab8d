import { describe, expect, test } from "vitest";
import { type ByteWriter, SimClock } from "../../../src/base/index.ts";
import type { WriteAheadLog } from "../../../src/log/index.ts";
import { CommitClock, StoreTime } from "../../../src/store/commit-clock.ts";
import { storeErrors } from "../../../src/store/errors.ts";
import type { AppendOutcome, LocalStore } from "../../../src/store/index.ts";
import { Shard, type ShardParts } from "../../../src/store/shard.ts";
import type { ShardLogHandlers } from "../../../src/store/shard-log.ts";
import { firstCheckpoint } from "../../../src/store/shard-store.ts";
import { WriteGate } from "../../../src/store/write-gate.ts";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { type MachineOptions, StoreMachine, withBuffer } from "../../support/store-machine.ts";

const oneShard = (seed: number, store: MachineOptions["store"] = {}) =>
  new StoreMachine({ seed, store: { shards: 1, ...store } });

async function put(m: StoreMachine, store: LocalStore, topic: string): Promise<AppendOutcome> {
  return m.clock.complete(append(store, appendRequest(topic, "x")));
}

const code = (error: unknown): string => (error as { code: string }).code;

describe("callbacks", () => {
  test("one that throws keeps nobody else from hearing, and nothing from being applied", async () => {
    const m = oneShard(1);
    const { store } = await m.boot();
    const reader = new Reader(store, ["#"], store.tail());
    store.append(appendRequest("a", "1"), () => {
      throw new Error("mine");
    });
    const second = append(store, appendRequest("a", "2"));
    expect((await m.clock.complete(second)).kind).toBe("stored");
    expect(reader.values).toEqual(["1", "2"]);
    expect(store.refusal).toBeUndefined();
  });

  test("a subscriber that throws gets its TTV again, others get theirs", async () => {
    const m = oneShard(2);
    const { store } = await m.boot();
    const bad = new Reader(store, ["#"], store.tail());
    const good = new Reader(store, ["#"], store.tail());
    const { offer } = bad;
    let faults = 2;
    bad.offer = (ttv, matches) => {
      if (faults-- > 0) throw new Error("mine");
      return offer.call(bad, ttv, matches);
    };
    for (let n = 0; n < 3; n++) await put(m, store, `t/${n}`);
    expect(good.values).toHaveLength(3);
    await m.clock.advance(1_000);
    expect(bad.values).toHaveLength(3);
    expect(store.counters.offerFailures).toBe(2);
  });

  test("an append made in a callback is stored behind the one it was told of", async () => {
    const m = oneShard(3);
    const { store } = await m.boot();
    const reader = new Reader(store, ["#"], store.tail());
    const chain = new Promise<void>((resolve) => {
      const next = (n: number): void => {
        store.append(appendRequest("a", String(n)), () => (n < 5 ? next(n + 1) : resolve()));
      };
      next(0);
    });
    await m.clock.complete(chain);
    expect(reader.values).toEqual(["0", "1", "2", "3", "4", "5"]);
  });

  test("a reader made, changed or closed in a callback neither misses nor repeats", async () => {
    const m = oneShard(4);
    const { store } = await m.boot();
    const early = new Reader(store, ["a"], store.tail());
    const readers: Reader[] = [];
    const done = new Promise<void>((resolve) => {
      store.append(appendRequest("a", "1"), () => {
        readers.push(new Reader(store, ["#"], new Map()), new Reader(store, ["#"], store.tail()));
        early.subscriber.close();
        resolve();
      });
    });
    await m.clock.complete(done);
    await put(m, store, "a");
    await m.clock.advance(10);
    expect(readers.map(({ values }) => values)).toEqual([["1", "x"], ["x"]]);
    expect(early.values).toEqual([]);
  });
});

describe("a failed log", () => {
  test("answers everybody, the repeats too, and the store says why", async () => {
    const m = oneShard(5);
    const { store } = await m.boot();
    const claim = { incarnation: 1, ownerEpoch: 1 };
    await m.clock.complete(store.evidence.open("p", claim));
    const epoch = await m.clock.complete(store.openWriter("w", "p"));
    m.disk.inject({ on: "fdatasync", path: "data/log", fails: "EIO" });
    const evidence = { ...claim, packetId: 1 };
    const writer = { name: "w", epoch, sequence: 1 };
    const all = [{}, { evidence }, { evidence }, { writer }, { writer }].map((over) =>
      append(store, appendRequest("a", "x", over)),
    );
    const results = await m.clock.complete(Promise.allSettled(all));
    for (const result of results) {
      expect(result.status === "rejected" && code(result.reason)).toBe("STORE_FAILED");
    }
    expect(store.refusal?.code).toBe("STORE_FAILED");
    await expect(m.clock.complete(store.rotate())).rejects.toMatchObject({ code: "STORE_FAILED" });
    await m.clock.complete(store.close());
  });

  test("a failed sync of a slab ends the store: what the volume kept is not known", async () => {
    const m = oneShard(6);
    const { store } = await m.boot();
    await put(m, store, "a");
    m.kv.inject({ on: "sync", path: "messages", fails: "EIO" });
    await expect(m.clock.complete(store.checkpoint())).rejects.toMatchObject({
      code: "STORE_SYNC_FAILED",
    });
    expect(store.refusal?.code).toBe("STORE_FAILED");
    m.crash();
    m.kv.heal();
    const next = await m.boot();
    const reader = new Reader(next.store, ["#"], new Map());
    await m.clock.advance(100);
    expect(reader.values).toEqual(["x"]);
  });
});

describe("closing", () => {
  test("tells whoever waits, ends what waits for a sick volume, and leaves nothing running", async () => {
    const m = oneShard(7);
    const { store, log } = await m.boot();
    const reader = new Reader(store, ["#"], new Map(), { room: 0 });
    await put(m, store, "a");
    m.kv.inject({ on: "write", fails: "ENOSPC", times: Number.POSITIVE_INFINITY });
    const checkpoint = store.checkpoint();
    checkpoint.catch(() => undefined);
    await m.clock.advance(2_000);
    const late = append(store, appendRequest("a", "late"));
    late.catch(() => undefined);
    await m.clock.complete(store.close(), 100);
    await expect(late).rejects.toMatchObject({ code: "STORE_CLOSED" });
    await expect(checkpoint).rejects.toMatchObject({ code: "STORE_CLOSED" });
    await expect(append(store, appendRequest("a", "x"))).rejects.toMatchObject({
      code: "STORE_CLOSED",
    });
    reader.subscriber.wake();
    await m.clock.complete(log.close());
    await m.clock.advance(60_000);
    expect(m.clock.pendingCount).toBe(0);
  });

  test("in the middle of a rotation frees every store for the next process", async () => {
    const m = oneShard(8);
    for (let round = 0; round < 10; round++) {
      const process = await m.boot();
      process.store.rotate().catch(() => undefined);
      await m.clock.advance(round * 0.05);
      await m.stop(process);
    }
  });
});

describe("a start that fails", () => {
  test("frees every store, so that the next one in this process succeeds", async () => {
    for (const path of ["messages/s0005/g00000001/index", "messages/s0004/store", "state"]) {
      const m = new StoreMachine({ seed: 13, store: { shards: 2 } });
      const first = await m.boot();
      await put(m, first.store, "a");
      await m.clock.complete(first.store.checkpoint());
      await m.stop(first);
      m.kv.inject({ on: "open", path, fails: "EIO" });
      const opening = m.open();
      if (path === "state") {
        await expect(m.clock.complete(opening)).rejects.toMatchObject({ code: "KV_FAILED" });
      } else {
        const { store } = await m.clock.complete(opening);
        await expect(m.clock.complete(store.start())).rejects.toMatchObject({ code: "KV_FAILED" });
        await m.clock.complete(store.close());
      }
      const next = await m.boot();
      const reader = new Reader(next.store, ["#"], new Map());
      await m.clock.advance(100);
      expect(reader.values).toEqual(["x"]);
    }
  });
});

const noWatermarks = {
  low: { usedShare: 1, freeBytes: 0 },
  critical: { usedShare: 1, freeBytes: 0 },
};

describe("the write gate", () => {
  test("refuses at the brim, seals what is open, and opens again by itself", async () => {
    const m = oneShard(9, withBuffer(64 * 1024));
    const { store } = await m.boot();
    m.kv.inject({ on: "write", path: "blocks", delayMs: 10, times: Infinity });
    let refused = 0;
    for (let round = 0; round < 20; round++) {
      const burst: Array<Promise<AppendOutcome>> = [];
      while (burst.length < 100 && store.refusal === undefined) {
        const topic = `topic/${burst.length % 40}/x`;
        burst.push(append(store, appendRequest(topic, "x".repeat(1_000))));
        await m.clock.advance(0.2);
      }
      await m.clock.complete(Promise.all(burst));
      if (store.refusal === undefined) continue;
      refused++;
      expect(store.refusal.code).toBe("STORE_WRITE_BUFFER_FULL");
      await m.clock.complete(new Promise<void>((resolve) => store.onceWritable(resolve)), 5_000);
    }
    expect(refused).toBeGreaterThan(0);
  });

  test("a full disk refuses; freeing space is enough", async () => {
    const m = oneShard(10, { watermarks: noWatermarks });
    const { store } = await m.boot();
    m.disk.setCapacity(2 ** 40 - m.disk.freeBytes + 1_000);
    const waiting: Array<Promise<AppendOutcome>> = [];
    while (store.refusal === undefined) {
      waiting.push(append(store, appendRequest("a", "x".repeat(2_000))));
      await m.clock.advance(2);
    }
    expect(store.refusal.code).toBe("STORE_DISK_FULL");
    let writable = false;
    store.onceWritable(() => {
      writable = true;
    });
    await m.clock.advance(1_000);
    expect(writable).toBe(false);
    m.disk.setCapacity(2 ** 40);
    await m.clock.complete(Promise.all(waiting));
    await m.clock.runUntil(() => writable);
    expect(store.refusal).toBeUndefined();
  });
});

test("retained values that the disk does not take count against the write buffer", async () => {
  const m = oneShard(12, withBuffer(100_000));
  const { store } = await m.boot();
  const heal = m.kv.inject({ on: "write", path: "map", fails: "EIO", times: Infinity });
  const put = (value: number): Promise<void> =>
    new Promise((resolve) => {
      const writes = [{ key: `retained/${value % 50}`, value: Buffer.alloc(5_000, value) }];
      store.state("owner").write(writes, [], () => resolve());
    });
  for (let n = 0; n < 15; n++) await m.clock.complete(put(n));
  expect(store.refusal).toBeUndefined();
  for (let n = 15; n < 25; n++) await m.clock.complete(put(n));
  expect(store.refusal?.code).toBe("STORE_WRITE_BUFFER_FULL");
  heal();
  await m.clock.complete(new Promise<void>((resolve) => store.onceWritable(resolve)), 20_000);
  for (let n = 0; n < 100; n++) await m.clock.complete(put(n));
  await m.clock.advance(1_000);
  expect(store.refusal).toBeUndefined();
});

test("a gate calls whoever waits once, and not those who went away", async () => {
  const clock = new SimClock();
  const log = { failure: undefined, full: true, pendingBytes: 0 };
  const settings = { writeBufferBytesMax: 1_000, pendingBytesMax: 1_000 };
  const parts = { settings, log: log as unknown as WriteAheadLog, clock, relieve: () => undefined };
  const gate = new WriteGate(parts);
  const told: string[] = [];
  const cancel = gate.onceWritable(() => told.push("gone"));
  gate.onceWritable(() => {
    told.push("first");
    log.full = true;
  });
  gate.onceWritable(() => told.push("second"));
  cancel();
  log.full = false;
  await clock.advance(20);
  expect(told).toEqual(["first"]);
  log.full = false;
  await clock.advance(20);
  expect(told).toEqual(["first", "second"]);
});

test("everybody hears of a log that fails between two entries of one turn", () => {
  let handlers: ShardLogHandlers | undefined;
  let failed = false;
  const log = {
    ...{ shard: 1, lastIndex: 0, gaps: [], payloadBytesMax: 1e6, bytesSinceRelease: 0 },
    start: (_next: number, given: ShardLogHandlers) => {
      handlers = given;
    },
    propose: () => {
      if (!failed) handlers?.onFailed(new Error("EIO"));
      failed = true;
    },
    ...{ replay: () => Promise.resolve(), release: () => undefined },
  };
  const say = () => undefined;
  const quiet = { debug: say, info: say, warn: say, error: say };
  const parts = {
    ...{ log, store: { checkpoint: firstCheckpoint }, machine: {}, logger: quiet },
    time: new CommitClock(new StoreTime(new SimClock(), quiet)),
    ...{ endTurn: () => undefined, phase: () => undefined, onFailure: () => undefined },
  };
  const shard = new Shard(parts as unknown as ShardParts);
  parts.time.claim();
  log.start(1, { onCommitted: () => undefined, onFailed: () => shard.fail(storeErrors.closed()) });
  const told: unknown[] = [];
  const item = {
    ...{ kind: 1, sizeBytes: 200_000, encode: (to: ByteWriter) => void to.raw(big) },
    done: (error: unknown) => void told.push(error),
  };
  shard.cook(item);
  shard.cook(item);
  shard.flush();
  expect(told).toHaveLength(2);
  expect(told.every((error) => error !== undefined)).toBe(true);
});

const big = Buffer.alloc(200_000);

describe("checkpoints", () => {
  test("come by age and by bytes, and one that fails does not keep the others from theirs", async () => {
    const checkpoint = { bytesMax: 20_000, ageMsMax: 5_000 };
    const m = new StoreMachine({ seed: 11, store: { shards: 2, checkpoint } });
    const { store } = await m.boot();
    const publishers = ["p", "q", "r", "s", "t"];
    for (const publisher of publishers) {
      await m.clock.complete(append(store, appendRequest("a", "x", { publisher })));
    }
    m.phases.clear();
    m.kv.inject({
      ...{ on: "write", path: "s0004", fails: "EIO" },
      times: Number.POSITIVE_INFINITY,
    } as const);
    await m.clock.advance(30_000);
    expect(m.phases.get("checkpoint.committed")).toBeGreaterThanOrEqual(1);
    m.kv.heal();
    m.phases.clear();
    await m.clock.advance(30_000);
    expect(m.phases.get("checkpoint.committed")).toBe(1);
    m.phases.clear();
    const large = appendRequest("a", "x".repeat(30_000));
    await m.clock.complete(append(store, large));
    await m.clock.advance(2_500);
    expect(m.phases.get("checkpoint.committed")).toBe(1);
  });

  test("an item above the largest entry is refused before anything is decided", async () => {
    const m = oneShard(12);
    const { store } = await m.boot();
    const claim = { incarnation: 1, ownerEpoch: 1 };
    await m.clock.complete(store.evidence.open("p", claim));
    const evidence = { ...claim, packetId: 1 };
    const large = appendRequest("a", "x".repeat(9 * 1024 * 1024), { evidence });
    await expect(append(store, large)).rejects.toMatchObject({ code: "STORE_ENTRY_TOO_LARGE" });
    expect(store.evidence.list("p", claim)).toEqual([]);
    // Two that are large, and small ones around them, each fit an entry.
    const sizes = [10, 8 * 1024 * 1024, 200_000, 8 * 1024 * 1024, 10];
    const all = sizes.map((size) => append(store, appendRequest("a", "x".repeat(size))));
    await m.clock.complete(Promise.all(all));
  });
});
