import { expect, test } from "vitest";
import { storeErrors } from "../../../src/store/errors.ts";
import {
  WriterTable,
  writerIdleUsMax,
  writerResultsMax,
  writersMax,
} from "../../../src/store/writers.ts";
import { KvBench } from "../../support/store-parts.ts";

const stamp = (sequence: number, epoch = 10) => ({ name: "w", epoch, sequence });
const never = (): void => {
  throw new Error("nobody waits here");
};

function opened(): WriterTable {
  const table = new WriterTable();
  table.decideOpen("w", 0);
  table.applyOpen("w", 10);
  return table;
}

test("a repeat gets the first result, at once or when it is durable", () => {
  const table = opened();
  expect(table.decide(stamp(1), never)).toBe("new");
  const told: unknown[] = [];
  expect(table.decide(stamp(1), (error, timeUs) => told.push([error, timeUs]))).toBe("repeat");
  expect(told).toEqual([]);
  table.applyResult(stamp(1), 77);
  expect(told).toEqual([[undefined, 77]]);
  table.decide(stamp(1), (error, timeUs) => told.push([error, timeUs]));
  expect(told).toHaveLength(2);
});

test("whoever repeated an append hears that its entry will never be durable", () => {
  const table = opened();
  table.decide(stamp(1), never);
  const told: unknown[] = [];
  table.decide(stamp(1), (error) => told.push(error?.code));
  table.refuse(stamp(1), storeErrors.closed());
  expect(told).toEqual(["STORE_CLOSED"]);
});

test("an older epoch is refused from the moment the newer opening is proposed", () => {
  const table = opened();
  table.decide(stamp(1), never);
  table.decideOpen("w", 20);
  expect(() => table.decide(stamp(2), never)).toThrow("newer epoch");
  table.applyResult(stamp(1), 15);
  table.applyOpen("w", 20);
  expect(() => table.decide(stamp(2), never)).toThrow("newer epoch");
  expect(table.decide(stamp(1, 20), never)).toBe("new");
});

test("a gap is refused, and a repeat older than the kept results", () => {
  const table = opened();
  expect(() => table.decide(stamp(2), never)).toThrow("skipped");
  for (let sequence = 1; sequence <= writerResultsMax + 1; sequence++) {
    table.decide(stamp(sequence), never);
    table.applyResult(stamp(sequence), 100 + sequence);
  }
  expect(() => table.decide(stamp(1), never)).toThrow("skipped");
  let timeUs = 0;
  table.decide(stamp(2), (_, result) => {
    timeUs = result;
  });
  expect(timeUs).toBe(102);
});

test("writers and their results come back from rows", async () => {
  const kv = new KvBench(1);
  const store = await kv.openShardStore();
  const table = opened();
  table.decide(stamp(1), never);
  table.applyResult(stamp(1), 50);
  await kv.save(store, table);
  const next = await kv.run(WriterTable.open(store));
  let timeUs = 0;
  expect(
    next.decide(stamp(1), (_, result) => {
      timeUs = result;
    }),
  ).toBe("repeat");
  expect(timeUs).toBe(50);
  expect(next.decide(stamp(2), never)).toBe("new");
});

test("what was decided to do nothing is a result, and comes back as one", async () => {
  const kv = new KvBench(1);
  const store = await kv.openShardStore();
  const table = opened();
  table.decide(stamp(1), never);
  table.applyResult(stamp(1), 50, 7);
  await kv.save(store, table);
  const next = await kv.run(WriterTable.open(store));
  for (const each of [table, next]) {
    const told: unknown[] = [];
    expect(each.decide(stamp(1), (...result) => told.push(...result))).toBe("repeat");
    expect(told).toEqual([undefined, 50, 7]);
    expect(each.decide(stamp(2), never)).toBe("new");
    each.undecide(stamp(2));
    expect(each.decide(stamp(2), never)).toBe("new");
  }
  expect(next.states()).toEqual(table.states());
});

test("a full table makes room from writers that were idle for a day, or refuses", async () => {
  const kv = new KvBench(1);
  const store = await kv.openShardStore();
  const table = new WriterTable();
  for (let n = 0; n < writersMax; n++) table.applyOpen(`w${n}`, n < 5 ? 1 : 1_000_000);
  expect(() => table.decideOpen("one more", writerIdleUsMax)).toThrow("limited");
  const laterUs = writerIdleUsMax + 2;
  table.decideOpen("one more", laterUs);
  table.applyOpen("one more", laterUs);
  await kv.save(store, table);
  const next = await kv.run(WriterTable.open(store));
  expect(() => next.decide({ name: "w0", epoch: 1, sequence: 1 }, never)).toThrow("newer epoch");
  expect(next.decide({ name: "w5", epoch: 1_000_000, sequence: 1 }, never)).toBe("new");
});

test("a closed writer is forgotten, durably: its name makes room and its stamps are refused", async () => {
  const kv = new KvBench(1);
  const store = await kv.openShardStore();
  const table = opened();
  table.decide(stamp(1), never);
  table.applyResult(stamp(1), 77);
  expect(table.resultOf(stamp(1))).toBe(77);
  expect(table.resultOf(stamp(1, 9))).toBeUndefined();
  expect(table.resultOf(stamp(2))).toBeUndefined();
  await kv.save(store, table);
  table.applyClose("w");
  expect(table.resultOf(stamp(1))).toBeUndefined();
  expect(() => table.decide(stamp(2), never)).toThrow("newer epoch");
  await kv.save(store, table, 2);
  const again = await kv.run(WriterTable.open(store));
  expect(again.resultOf(stamp(1))).toBeUndefined();
});

test("a process that is deposed forgets sequences that were not applied, and a fence that was not", () => {
  const table = opened();
  table.decide(stamp(1), never);
  table.applyResult(stamp(1), 77);
  table.decide(stamp(2), never);
  const told: unknown[] = [];
  table.decide(stamp(2), (error) => told.push(error?.code));
  table.decideOpen("w", 0);
  table.depose(storeErrors.notLeader({ shard: 1, leader: "node 2" }));
  expect(told).toEqual(["STORE_NOT_LEADER"]);
  expect(table.decide(stamp(2), never)).toBe("new");
  table.depose(storeErrors.notLeader({ shard: 1, leader: "node 2" }));
  // Another leader went further.
  table.applyResult(stamp(2), 80);
  table.applyResult(stamp(3), 81);
  expect(table.decide(stamp(4), never)).toBe("new");
  table.decide(stamp(2), (_, timeUs) => told.push(timeUs));
  expect(told).toEqual(["STORE_NOT_LEADER", 80]);
});
