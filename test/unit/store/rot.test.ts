// Rotten bytes in the log, above the last checkpoint: what an intact copy exists of comes back, also
// where the lost entry taught a structure or began a generation that later entries rely on.

import { expect, test } from "vitest";
import type { Store } from "../../../src/store/index.ts";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { StoreMachine } from "../../support/store-machine.ts";

/** Path and offset of bytes that stand in the log once. */
async function placeInLog(m: StoreMachine, text: string): Promise<{ path: string; at: number }> {
  const entries = await m.clock.complete(m.disk.attach().list("data/log"));
  const places = entries.flatMap(({ name }) => {
    const path = `data/log/${name}`;
    const at = m.disk.peek(path).indexOf(text);
    return at < 0 ? [] : [{ path, at }];
  });
  expect(places).toHaveLength(1);
  return places[0] as { path: string; at: number };
}

async function publish(m: StoreMachine, store: Store, topics: readonly string[]): Promise<void> {
  for (const topic of topics) {
    await m.clock.complete(append(store, appendRequest(topic, `<${topic}>`)));
  }
}

async function booted(m: StoreMachine) {
  const { store } = await m.boot();
  store.interest.add("#", new Map());
  return store;
}

async function readAll(m: StoreMachine, store: Store): Promise<Reader> {
  const reader = new Reader(store, ["#"], new Map());
  await m.clock.advance(1_000);
  return reader;
}

test("an entry that taught a structure is lost: later TTVs below it come back and go on", async () => {
  const m = new StoreMachine({ seed: 21 });
  let store = await booted(m);
  const later = ["lost/b", "other/x", "lost/a/deep", "first/b", "lost/c/deep"];
  await publish(m, store, ["first/a", "lost/a", ...later]);
  const before = await readAll(m, store);
  const { path, at } = await placeInLog(m, "<lost/a>");
  m.disk.flipBit(path, 8 * at);
  m.kill();

  store = await booted(m);
  const values = ["first/a", ...later].map((topic) => `<${topic}>`);
  expect((await readAll(m, store)).values).toEqual(values);
  // References that sessions stored before the loss still lead to their TTVs.
  const refs = before.received.map(({ ref }) => ref).filter((_, index) => index !== 1);
  const fetched = await m.clock.complete(store.fetch(refs));
  expect(fetched.map((ttv) => ttv?.frame.toString())).toEqual(values);

  // What is learned from here on fits what was learned anew, also for the start after the next.
  await publish(m, store, ["lost/d", "new/x"]);
  for (let start = 0; start < 2; start++) {
    m.kill();
    store = await booted(m);
    expect((await readAll(m, store)).values).toEqual([...values, "<lost/d>", "<new/x>"]);
  }
});

test("a rotation is lost: its TTVs come back, later generations keep their numbers", async () => {
  const m = new StoreMachine({ seed: 22 });
  let store = await booted(m);
  // No checkpoint comes about: all of it is replayed.
  m.kv.inject({ on: "sync", path: "/blocks", fails: "ENOSPC", times: Number.POSITIVE_INFINITY });
  const rotate = async () => {
    await expect(m.clock.complete(store.rotate())).rejects.toThrow("no space left");
    // One shard's failure ends the call; the other shards go on.
    await m.clock.advance(100);
  };
  await publish(m, store, ["one/a", "one/b"]);
  await rotate();
  await publish(m, store, ["two/a", "two/b", "two/c"]);
  await rotate();
  await publish(m, store, ["three/a", "two/b/deep"]);
  const before = await readAll(m, store);
  const from = await placeInLog(m, "<one/b>");
  const to = await placeInLog(m, "<two/a>");
  expect(to.path).toBe(from.path);
  // From behind the last TTV of the first generation to the first one of the second.
  for (let at = from.at + 32; at < to.at; at += 8) m.disk.flipBit(from.path, 8 * at);
  m.kill();
  m.kv.heal();

  store = await booted(m);
  const after = await readAll(m, store);
  expect(after.values).toEqual(before.values.filter((value) => value !== "<two/a>"));
  const generationOf = (reader: Reader, value: string): number | undefined =>
    reader.received.find((each) => each.value === value)?.ref.generation;
  expect(generationOf(before, "<two/b>")).toBe(2);
  expect(generationOf(after, "<two/b>")).toBe(1);
  expect(generationOf(after, "<three/a>")).toBe(3);
  const refs = before.received.filter(({ value }) => value !== "<two/a>").map(({ ref }) => ref);
  const fetched = await m.clock.complete(store.fetch(refs));
  expect(fetched.map((ttv) => ttv?.frame.toString())).toEqual(after.values);

  await m.clock.complete(store.rotate());
  await publish(m, store, ["four/a"]);
  expect(generationOf(await readAll(m, store), "<four/a>")).toBe(4);
});
