// What a mended slab has lost is told to whoever it concerns: its reads wait for the checkpoint that
// knows who that is.

import { expect, test } from "vitest";
import type { LocalStore } from "../../../src/store/index.ts";
import { loseTheFifth, put, shardDir } from "../../support/lost-block.ts";
import { Reader } from "../../support/store-calls.ts";

test("a slab that lost what a reader passed tells it, also where the power is cut before anything else", async () => {
  const { m, times } = await loseTheFifth(({ interest }) => interest.add("t/0", new Map()));
  const open = async (): Promise<LocalStore> => {
    const opened = await m.clock.complete(m.open());
    opened.store.interest.add("t/0", new Map());
    await m.clock.complete(opened.store.start());
    return opened.store;
  };
  let store = await open();
  const shard = store.logShards[0]!;
  // It ends with the last match in hand, before it comes to the end of what is gone.
  const first: Reader = new Reader(store, ["t/0"], new Map(), { room: 5 });
  first.onOffer = () => {
    if (first.room === 0) first.subscriber.close();
  };
  await m.clock.runUntil(() => first.room === 0);
  m.crash();
  store = await open();
  const rest = new Reader(store, ["t/0"], new Map([[shard, times[10]!]]));
  await m.clock.runUntil(() => rest.subscriber.atTail);
  await m.clock.advance(10);
  const told = [...first.missedReports, ...rest.missedReports];
  expect(told).toMatchObject([{ count: 1, reason: "damaged" }]);
});

test("a slab that was mended is read once a checkpoint comes about, however often it fails", async () => {
  const { m } = await loseTheFifth();
  const { store } = await m.boot();
  await m.clock.advance(5_000);
  // It is opened while a checkpoint is under way, which knows nothing of it.
  await put(m, store, "u", "last");
  m.kv.inject({ on: "sync", path: `${shardDir(m)}/store`, delayMs: 1_000 });
  const underWay = store.checkpoint();
  await m.clock.advance(100);
  const often = { fails: "ENOSPC", times: Number.POSITIVE_INFINITY } as const;
  // Behind the two of its mending.
  m.kv.inject({ on: "sync", path: `${shardDir(m)}/g00000001`, skip: 2, ...often });
  const reader = new Reader(store, ["t/#"], new Map());
  await m.clock.complete(underWay);
  await m.clock.advance(20_000);
  expect(reader.values).toEqual([]);
  expect(m.events.some(({ event }) => event === "store.checkpoint_failed")).toBe(true);
  m.kv.heal();
  // Nothing else makes its shard dirty.
  await m.clock.advance(5_000);
  expect(reader.values).toHaveLength(11);
  expect(reader.missedReports).toMatchObject([{ count: 1, reason: "damaged" }]);
});

test("a slab that was mended and is closed with readers waiting closes", async () => {
  const { m } = await loseTheFifth();
  const process = await m.boot();
  await m.clock.advance(5_000);
  m.kv.inject({ on: "sync", path: "/store", fails: "ENOSPC", times: Number.POSITIVE_INFINITY });
  const reader = new Reader(process.store, ["t/#"], new Map());
  await m.clock.advance(500);
  expect(reader.values).toEqual([]);
  const explaining = process.store.operator.explain("t/#").catch(({ code }) => code);
  await m.clock.advance(10);
  await m.stop(process);
  expect(await m.clock.complete(explaining)).toBe("KV_CLOSED");
});
