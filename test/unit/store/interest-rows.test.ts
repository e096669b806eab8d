// Rows of last matches: what waits for a checkpoint, which may never come.

import { describe, expect, test } from "vitest";
import { SeededRandom } from "../../../src/base/index.ts";
import type { KvBatch } from "../../../src/kv/index.ts";
import { InterestTable } from "../../../src/store/pools/interest.ts";
import type { ShardStore } from "../../../src/store/shard-store.ts";

const nowhere: ReadonlyMap<number, number> = new Map();

function createTable(shards = 1): InterestTable<object> {
  const table = new InterestTable<object>(() => 0);
  for (let shard = 1; shard <= shards; shard++) table.addShard(shard);
  return table;
}

const lasting = (topic: string) => ({ topic, expiryUs: 0 });

/** The rows of one shard's store, by filter. */
class Rows {
  readonly rows = new Map<string, Buffer>();

  readonly batch = {
    put: (key: Buffer, value: Buffer) => this.rows.set(key.toString("utf8", 1), value),
    delete: (key: Buffer) => this.rows.delete(key.toString("utf8", 1)),
  } as unknown as KvBatch;

  readonly store = {
    checkpoint: { timeUs: 0 },
    scan: async (prefix: Buffer, visit: (key: Buffer, value: Buffer) => void) => {
      for (const [text, value] of this.rows) {
        visit(Buffer.concat([prefix, Buffer.from(text)]), value);
      }
    },
  } as unknown as ShardStore;

  /** A checkpoint that comes about. */
  takeFrom(table: InterestTable<object>): void {
    table.capture(0)(this.batch);
    table.finish(0, true);
  }
}

test("filters that come and go while no checkpoint is taken leave nothing behind", () => {
  const table = createTable(3);
  const use = {};
  for (let n = 0; n < 10_000; n++) {
    const filter = `a/${n}/+`;
    const entry = table.addUse(filter, nowhere, use);
    // Every other is granted QoS 0, and not counted.
    if (n % 2 === 0) {
      table.add(filter, nowhere);
      table.match(0, lasting(`a/${n}/x`), n + 1, []);
      table.remove(filter);
    }
    table.removeUse(entry, use);
  }
  expect([table.filterCount, table.dirtyCount]).toEqual([0, 0]);
});

test("topics of more than a kilobyte are matched and not remembered", () => {
  const table = createTable();
  table.add("t/+", nowhere);
  for (const length of [1022, 1023, 60_000]) {
    expect(table.wants(`t/${"x".repeat(length)}`)).toBe(true);
  }
  expect(table.cachedCount).toBe(1);
});

test("a filter that has a row waits until it is removed, once in each shard", () => {
  const table = createTable();
  const rows = new Rows();
  table.add("a", nowhere);
  rows.takeFrom(table);
  expect([...rows.rows.keys()]).toEqual(["a"]);
  for (let n = 0; n < 100; n++) {
    table.remove("a");
    expect(table.dirtyCount).toBe(1);
    table.add("a", nowhere);
  }
  table.remove("a");
  rows.takeFrom(table);
  expect([rows.rows.size, table.dirtyCount]).toEqual([0, 0]);
});

test("a row of an earlier start goes with its filter, though that was counted before it was read", async () => {
  const rows = new Rows();
  const before = createTable();
  for (const filter of ["kept", "given up", "never met", "only used"]) before.add(filter, nowhere);
  rows.takeFrom(before);
  const table = createTable();
  for (const filter of ["kept", "given up"]) table.add(filter, nowhere);
  table.addUse("only used", nowhere, {});
  await table.load(0, rows.store);
  table.remove("given up");
  rows.takeFrom(table);
  expect([...rows.rows.keys()]).toEqual(["kept"]);
});

describe("after any history, a checkpoint leaves exactly the rows of the filters that are counted", () => {
  test.each([1, 2, 3, 4, 5, 6, 7, 8])("seed %i", async (seed) => {
    const random = new SeededRandom(seed);
    const rows = new Rows();
    const filters = ["a", "b", "c", "+", "#"];
    let table = createTable();
    let refs = new Map<string, number>();
    let write: ((batch: KvBatch) => void) | undefined;
    const step: Record<string, () => Promise<void> | void> = {
      add: () => {
        const filter = random.pick(filters);
        table.add(filter, nowhere);
        refs.set(filter, (refs.get(filter) ?? 0) + 1);
      },
      remove: () => {
        const filter = random.pick(filters);
        const count = refs.get(filter) ?? 0;
        if (count === 0) return;
        table.remove(filter);
        refs.set(filter, count - 1);
      },
      match: () => table.match(0, lasting(random.pick(["a", "b", "c"])), 1, []),
      capture: () => {
        write ??= table.capture(0);
      },
      finish: () => {
        if (write === undefined) return;
        const committed = random.chance(0.5);
        // One that is told to have failed may have been written all the same.
        if (committed || random.chance(0.5)) write(rows.batch);
        write = undefined;
        table.finish(0, committed);
      },
      start: async () => {
        table = createTable();
        write = undefined;
        refs = new Map();
        for (const filter of filters) {
          if (random.chance(0.5)) continue;
          table.add(filter, nowhere);
          refs.set(filter, 1);
        }
        await table.load(0, rows.store);
      },
    };
    const names = ["add", "add", "remove", "remove", "match", "capture", "finish", "start"];
    for (let n = 0; n < 5000; n++) {
      await step[random.pick(names)]?.();
      if (n % 50 !== 0 || write !== undefined) continue;
      rows.takeFrom(table);
      const counted = filters.filter((filter) => (refs.get(filter) ?? 0) > 0);
      expect([...rows.rows.keys()].sort()).toEqual(counted.sort());
      expect(table.dirtyCount).toBe(0);
    }
  });
});

describe("what has expired does not wait", () => {
  const waits = (table: InterestTable<object>, afterUs: number, nowUs: number) =>
    table.mayWait("a", 1, { afterUs, nowUs });

  test("nor is it waited for behind a start; what lasts and what is newer does", async () => {
    let table = createTable();
    const rows = new Rows();
    table.add("a", nowhere);
    table.match(0, lasting("a"), 10, []);
    table.match(0, { topic: "a", expiryUs: 500 }, 20, []);
    table.match(0, { topic: "a", expiryUs: 400 }, 30, []);
    for (const how of ["now", "behind a start"]) {
      expect(waits(table, 9, 999), how).toBe(true);
      expect(waits(table, 10, 499), how).toBe(true);
      expect(waits(table, 10, 500), how).toBe(false);
      expect(waits(table, 30, 0), how).toBe(false);
      rows.takeFrom(table);
      table = createTable();
      table.add("a", nowhere);
      await table.load(0, rows.store);
    }
  });

  test("a row from before expiries were saved, and one that is missing, say that it lasts", async () => {
    const rows = new Rows();
    const row = Buffer.alloc(8);
    row.writeBigUInt64BE(20n);
    rows.rows.set("a", row);
    const table = createTable();
    table.add("a", nowhere);
    await table.load(0, rows.store);
    expect([waits(table, 19, 999), waits(table, 20, 0)]).toEqual([true, false]);
    expect(table.mayWait("b", 1, { afterUs: 0, nowUs: 0 })).toBeUndefined();
  });
});
