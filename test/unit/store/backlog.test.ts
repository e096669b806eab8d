// A shard that cannot take checkpoints has its entries copied out of the log, which all shards share.

import { expect, test } from "vitest";
import type { LocalStore } from "../../../src/store/index.ts";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { StoreMachine } from "../../support/store-machine.ts";

const dir = "data/db/messages/s0003";
const segmentBytes = 16 * 1024;
const pad = "x".repeat(500);

const oneShard = (seed: number) => new StoreMachine({ seed, store: { shards: 1 }, segmentBytes });

async function put(m: StoreMachine, store: LocalStore, from: number, count: number) {
  for (let n = from; n < from + count; n++) {
    await m.clock.complete(append(store, appendRequest(`t/${n % 3}`, `${n} ${pad}`)));
  }
}

async function numbers(m: StoreMachine, store: LocalStore): Promise<[number[], Reader]> {
  const reader = new Reader(store, ["#"], new Map());
  await m.clock.runUntil(() => reader.subscriber.atTail);
  await m.clock.advance(10);
  return [reader.values.map((value) => Number.parseInt(value, 10)), reader];
}

const upTo = (end: number): number[] => Array.from({ length: end }, (_, n) => n);
const count = (m: StoreMachine, event: string): number =>
  m.events.filter((each) => each.event === event).length;

/** Its slab takes nothing, for long. */
async function stuck(m: StoreMachine, copies: number): Promise<void> {
  const { store, log } = await m.boot();
  await put(m, store, 0, 20);
  await m.clock.complete(store.checkpoint());
  m.kv.inject({ on: "write", path: "/blocks", fails: "ENOSPC", times: Number.POSITIVE_INFINITY });
  for (let copy = 0; copy < copies; copy++) {
    await put(m, store, 20 + 100 * copy, 100);
    expect(log.pinnedBy()?.shard).toBe(3);
    await m.clock.runUntil(() => count(m, "store.backlog_copied") > copy, 20 * 60_000);
    expect(log.pinnedBy()?.shard).not.toBe(3);
  }
}

const backlogFiles = async (m: StoreMachine): Promise<string[]> =>
  (await m.clock.complete(m.disk.attach().list(dir)))
    .map(({ name }) => name)
    .filter((name) => name.startsWith("backlog"));

test("a shard without a checkpoint for long pins the log no more, and loses nothing", async () => {
  for (const death of ["kill", "crash"] as const) {
    const m = oneShard(1);
    await stuck(m, 2);
    expect(await backlogFiles(m)).toEqual(["backlog-00000001", "backlog-00000002", "backlog-end"]);
    m[death]();
    m.kv.heal();
    for (let start = 0; start < 2; start++) {
      const { store } = await m.boot();
      const [values, reader] = await numbers(m, store);
      expect(values).toEqual(upTo(220 + start));
      expect(reader.missedReports).toEqual([]);
      await put(m, store, 220 + start, 1);
      m[death]();
    }
    const { store } = await m.boot();
    await m.clock.complete(store.checkpoint());
    await m.clock.advance(100);
    expect(await backlogFiles(m)).toEqual([]);
    expect((await numbers(m, store))[0]).toEqual(upTo(222));
  }
});

test("a process that ends while it copies has lost nothing", async () => {
  for (let step = 0; step < 12; step++) {
    const m = oneShard(100 + step);
    const { store } = await m.boot();
    m.kv.inject({ on: "write", path: "/blocks", fails: "ENOSPC", times: Number.POSITIVE_INFINITY });
    await put(m, store, 0, 60);
    const isCopying = () => {
      try {
        return m.disk.peek(`${dir}/backlog-00000001.new`).length >= step * 4096;
      } catch {
        return count(m, "store.backlog_copied") > 0; // not there yet, or there for good
      }
    };
    await m.clock.runUntil(isCopying, 20 * 60_000);
    if (step % 2 === 0) m.kill();
    else m.crash();
    m.kv.heal();
    const next = await m.boot();
    const [values, reader] = await numbers(m, next.store);
    expect(values).toEqual(upTo(60));
    expect(reader.missedReports).toEqual([]);
  }
});

const damages: Array<[string, (m: StoreMachine) => Promise<void> | void]> = [
  ["flipped", (m) => m.disk.flipBit(`${dir}/backlog-00000001`, 8 * 20_000)],
  ["gone", (m) => m.clock.complete(m.disk.attach().remove(`${dir}/backlog-00000001`))],
];
test.each(damages)("a backlog file that is %s: what is lost is told, once", async (_, damage) => {
  for (const copies of [1, 2]) {
    const m = oneShard(3);
    await stuck(m, copies);
    m.kill();
    m.kv.heal();
    await damage(m);
    const end = 20 + 100 * copies;
    let told = 0;
    for (let start = 0; start < 2; start++) {
      const { store } = await m.boot();
      const [values, reader] = await numbers(m, store);
      expect(values).toEqual(upTo(end).filter((n) => values.includes(n)));
      const missed = reader.missedReports.reduce((sum, report) => sum + report.count, 0);
      expect(values.length + missed).toBeGreaterThanOrEqual(end);
      // Most of it is still in the log, as it happens.
      expect(values.length).toBeGreaterThan(40);
      expect(missed > 0).toBe(values.length < end);
      if (start === 0) told = count(m, "store.entries_lost");
      expect(count(m, "store.entries_lost")).toBe(told);
      m.crash();
    }
  }
});
