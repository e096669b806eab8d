import { expect, test } from "vitest";
import type { LocalStore } from "../../../src/store/index.ts";
import { ReadAhead } from "../../../src/store/pools/read-ahead.ts";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { StoreMachine } from "../../support/store-machine.ts";

const mib = 1024 * 1024;

test("what is read ahead is bounded for each cursor and for all, and counted where it is refused", () => {
  const counters = { readAheadsRefused: 0 };
  const shared = new ReadAhead(10 * mib, counters);
  for (let cursor = 0; cursor < 2; cursor++) shared.join();
  expect(shared.take(4 * mib, 0)).toBe(true);
  expect(shared.take(1, 4 * mib)).toBe(false);
  expect(shared.take(4 * mib, 0)).toBe(true);
  shared.join();
  expect(shared.take(3 * mib, 0)).toBe(false);
  expect(shared.take(2 * mib, 0)).toBe(true);
  expect([shared.usedBytes, counters.readAheadsRefused]).toEqual([10 * mib, 2]);
  shared.give(4 * mib);
  expect(shared.usedBytes).toBe(6 * mib);
});

test("whoever comes finds room as soon as the others have used up what is above their share", () => {
  const shared = new ReadAhead(8 * mib, { readAheadsRefused: 0 });
  const held = [0, 0, 0, 0];
  const take = (cursor: number): boolean => {
    if (!shared.take(mib, held[cursor]!)) return false;
    held[cursor]! += mib;
    return true;
  };
  for (const cursor of [0, 1]) {
    shared.join();
    while (take(cursor));
  }
  expect(held).toEqual([4 * mib, 4 * mib, 0, 0]);
  for (let late = 2; late < 4; late++) shared.join();
  expect(take(2)).toBe(false);
  // The first ones ask first.
  for (let turn = 0; turn < 8; turn++) {
    const most = held.indexOf(Math.max(...held));
    held[most]! -= mib;
    shared.give(mib);
    for (const cursor of [0, 1, 2, 3]) take(cursor);
  }
  expect(held).toEqual([2 * mib, 2 * mib, 2 * mib, 2 * mib]);
});

const streams = 6;
const perStream = 40;

async function filled(m: StoreMachine, readAheadBytesMax: number): Promise<LocalStore> {
  const { store } = await m.clock.complete(m.open({ readAheadBytesMax }));
  await m.clock.complete(store.start());
  for (let n = 0; n < streams * perStream; n++) {
    const value = `v${n}|`.padEnd(20_000, "x");
    await m.clock.complete(append(store, appendRequest(`s${n % streams}`, value)));
  }
  await m.clock.complete(store.checkpoint());
  return store;
}

for (const [name, bytesMax] of [
  ["none", 0],
  ["one block", 70_000],
  ["plenty", 64 * mib],
] as const) {
  test(`many readers that share ${name} of it come through, and give all of it back`, async () => {
    const m = new StoreMachine({ seed: name, store: { shards: 1, blockCacheBytesMax: 1 } });
    const store = await filled(m, bytesMax);
    let mostBytes = 0;
    const readers = Array.from({ length: 12 }, (_, n) => {
      const reader = new Reader(store, [n % 2 === 0 ? "#" : `s${n % streams}`], new Map());
      reader.onOffer = () => {
        mostBytes = Math.max(mostBytes, store.readAhead.usedBytes);
      };
      return reader;
    });
    // Some go away, or get another filter, in the middle.
    await m.clock.runUntil(() => readers[0]!.received.length > 20);
    readers[0]!.subscriber.close();
    readers[2]!.subscriber.removeFilter("#");
    const others = readers.filter((_, n) => n !== 0 && n !== 2);
    await m.clock.runUntil(() => others.every(({ subscriber }) => subscriber.atTail));
    const counts = others.map(({ received }) => received.length);
    expect(counts).toEqual(
      others.map((reader) => (readers.indexOf(reader) % 2 === 0 ? streams : 1) * perStream),
    );
    expect(mostBytes).toBeLessThanOrEqual(bytesMax);
    expect(mostBytes > 0).toBe(bytesMax > 0);
    expect(store.counters.readAheadsRefused > 0).toBe(bytesMax < mib);
    expect([store.readAhead.usedBytes, store.readAhead.cursors]).toEqual([0, 0]);
  });
}
