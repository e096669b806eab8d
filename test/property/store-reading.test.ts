// Reading a shard: in one piece or resumed anywhere, behind or at the tail, with writers at work.

import * as fc from "fast-check";
import { expect, test } from "vitest";
import type { LocalStore } from "../../src/store/index.ts";
import { matches, parseTopicFilter, splitTopic } from "../../src/topic/index.ts";
import { append, appendRequest, Reader, type Received } from "../support/store-calls.ts";
import { StoreMachine } from "../support/store-machine.ts";

const topics = ["a/1/x", "a/2/x", "a/2/y", "b", "b/c", "$s/x", "a", ""];
const filters = ["#", "a/+/x", "+", "b/#", "$s/#", "+/2/#", "a/2/y"];

const step = fc.oneof(
  { weight: 12, arbitrary: fc.record({ kind: fc.constant("append"), at: fc.nat(7) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("checkpoint"), at: fc.constant(0) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("rotate"), at: fc.constant(0) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("wake"), at: fc.nat(9) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("pass"), at: fc.nat(9) }) },
);
const history = fc.array(step, { minLength: 20, maxLength: 80 });
const filterSet = fc.subarray(filters, { minLength: 1 });

const wanted = (filterTexts: readonly string[], topic: string): boolean =>
  filterTexts.some((text) => matches(parseTopicFilter(text), splitTopic(topic)));

const oneShard = (seed: number): StoreMachine =>
  new StoreMachine({ seed, store: { shards: 1, openSlabsMax: 1, blockCacheBytesMax: 4_096 } });

async function play(
  m: StoreMachine,
  store: LocalStore,
  steps: ReadonlyArray<{ kind: string; at: number }>,
  onWake: (room: number) => void,
): Promise<string[]> {
  const sent: string[] = [];
  const work: Array<Promise<unknown>> = [];
  for (const { kind, at } of steps) {
    if (kind === "append") {
      const topic = topics[at]!;
      const value = `${topic} ${sent.length}`;
      sent.push(value);
      work.push(append(store, appendRequest(topic, value)));
    } else if (kind === "checkpoint") work.push(store.checkpoint());
    else if (kind === "rotate") work.push(store.rotate());
    else if (kind === "wake") onWake(at);
    else await m.clock.advance(at / 10);
  }
  await m.clock.complete(Promise.all(work));
  return sent;
}

const topicOf = (value: string): string => value.slice(0, value.lastIndexOf(" "));

async function readFrom(
  m: StoreMachine,
  store: LocalStore,
  filterTexts: readonly string[],
  fromUs: number,
): Promise<Received[]> {
  const positions = new Map(store.logShards.map((shard) => [shard, fromUs]));
  const reader = new Reader(store, filterTexts, positions);
  await m.clock.runUntil(() => reader.subscriber.atTail);
  reader.subscriber.close();
  return reader.received;
}

test("a reader that resumes at any position gets exactly what is behind it, in order", async () => {
  const property = fc.asyncProperty(fc.nat(1_000), history, filterSet, async (seed, steps, set) => {
    const m = oneShard(seed);
    const { store } = await m.boot();
    const sent = await play(m, store, steps, () => undefined);
    const all = await readFrom(m, store, set, 0);
    expect(all.map(({ value }) => value)).toEqual(
      sent.filter((value) => wanted(set, topicOf(value))),
    );
    const cuts = [0, all.length >> 1, all.length - 1].filter((cut) => all[cut] !== undefined);
    for (const cut of cuts) {
      const rest = await readFrom(m, store, set, all[cut]!.timeUs);
      expect(rest).toEqual(all.slice(cut + 1));
    }
  });
  await fc.assert(property, { numRuns: 60 });
});

test("hand-over under writes has no gap, no repeat and keeps the order", async () => {
  const property = fc.asyncProperty(fc.nat(1_000), history, filterSet, async (seed, steps, set) => {
    const m = oneShard(seed);
    const { store } = await m.boot();
    const early = await play(m, store, steps.slice(0, 15), () => undefined);
    const reader = new Reader(store, set, new Map(), { room: 3 });
    const late = await play(m, store, steps.slice(15), (room) => {
      reader.room = room;
      reader.subscriber.wake();
    });
    reader.room = 1_000;
    reader.subscriber.wake();
    await m.clock.runUntil(() => reader.subscriber.atTail);
    const end = await play(m, store, [{ kind: "append", at: 3 }], () => undefined);
    await m.clock.runUntil(() => reader.subscriber.atTail);
    const expected = [...early, ...late, ...end].filter((value) => wanted(set, topicOf(value)));
    expect(reader.values).toEqual(expected);
    for (const { topic, filters: matched } of reader.received) {
      expect([...matched].sort()).toEqual(set.filter((text) => wanted([text], topic)).sort());
    }
  });
  await fc.assert(property, { numRuns: 60 });
});
