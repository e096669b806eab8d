// Schedules of hand-over on one simulated store: many readers with small windows, each with its own
// filters, beginning, moments of room and moments of pause, while publishers write, blocks are sealed
// and generations end. A schedule is one reader; they share the store's writes.
//
// What a reader must get is known from the acks: all that matches behind its beginning, once, in the
// order of commit times, each with the filters that matched.

import { SeededRandom } from "../../src/base/index.ts";
import type { LocalStore } from "../../src/store/index.ts";
import { matches, parseTopicFilter, splitTopic } from "../../src/topic/index.ts";
import { append, appendRequest, Reader } from "./store-calls.ts";
import { StoreMachine } from "./store-machine.ts";

export const schedulesPerStore = 50;
const steps = 150;
const topics = ["a/1/x", "a/2/x", "a/2/y", "b", "b/c", "$s/x", "a", ""];
const filters = ["#", "a/+/x", "+", "b/#", "$s/#", "+/2/#", "a/2/y"];
const parsed = new Map(filters.map((filter) => [filter, parseTopicFilter(filter)]));
const wantedBy = new Map(
  topics.map((topic) => [
    topic,
    filters.filter((filter) => matches(parsed.get(filter)!, splitTopic(topic))),
  ]),
);

export type HandOverCounts = {
  schedules: number;
  ttvs: number;
  handOvers: number;
  fallBehinds: number;
  catchUpTtvs: number;
  realtimeTtvs: number;
};

type Truth = { readonly timeUs: number; readonly topic: string; readonly value: string };

type Schedule = {
  readonly startStep: number;
  readonly filters: readonly string[];
  readonly fromTail: boolean;
  readonly random: SeededRandom;
  reader: Reader | undefined;
  from: ReadonlyMap<number, number>;
};

/** Plays `schedulesPerStore` schedules of this seed. @throws with the first that got it wrong. */
export async function runSchedules(seed: number): Promise<HandOverCounts> {
  const random = new SeededRandom(`hand-over ${seed}`);
  const m = new StoreMachine({
    seed,
    store: { shards: 1 + (seed % 2), openSlabsMax: 1, blockCacheBytesMax: 4_096 },
  });
  const { store } = await m.boot();
  const truths = new Map<number, Truth[]>(store.logShards.map((shard) => [shard, []]));
  const schedules = Array.from({ length: schedulesPerStore }, (_, at) =>
    drawSchedule(random.split(`schedule ${at}`)),
  );
  const work: Array<Promise<unknown>> = [];
  for (let step = 0; step < steps; step++) {
    const dice = random.below(100);
    if (dice < 80) work.push(publish(store, truths, random, step));
    else if (dice < 84) work.push(store.checkpoint());
    else if (dice < 86) work.push(store.rotate());
    else await m.clock.advance(random.below(30) / 10);
    for (const schedule of schedules) turn(schedule, store, step);
  }
  await m.clock.complete(Promise.all(work));
  for (const { reader } of schedules) giveRoom(reader, Number.MAX_SAFE_INTEGER);
  const isDone = (): boolean => schedules.every(({ reader }) => reader?.subscriber.atTail);
  await m.clock.runUntil(isDone);
  // What comes now comes to all of them from the realtime pool.
  await m.clock.complete(publish(store, truths, random, steps));
  await m.clock.runUntil(isDone);
  let ttvs = 0;
  for (const schedule of schedules) ttvs += judge(schedule, truths, seed);
  const { handOvers, fallBehinds, catchUpTtvs, realtimeTtvs } = store.counters;
  m.kill();
  const counts = { handOvers, fallBehinds, catchUpTtvs, realtimeTtvs };
  return { schedules: schedules.length, ttvs, ...counts };
}

function drawSchedule(random: SeededRandom): Schedule {
  const chosen = filters.filter(() => random.chance(0.35));
  return {
    startStep: random.below(steps - 10),
    filters: chosen.length > 0 ? chosen : [random.pick(filters)],
    fromTail: random.chance(0.2),
    random,
    reader: undefined,
    from: new Map(),
  };
}

/** What this reader does between two steps of the publishers: begin, take some, take nothing. */
function turn(schedule: Schedule, store: LocalStore, step: number): void {
  const { random, startStep, reader } = schedule;
  if (step === startStep) {
    if (schedule.fromTail) schedule.from = store.tail();
    const room = random.below(6);
    schedule.reader = new Reader(store, schedule.filters, schedule.from, { room });
    return;
  }
  const dice = random.below(20);
  if (dice < 4) giveRoom(reader, random.below(5));
  else if (dice < 5) giveRoom(reader, 100);
  else if (dice < 6 && reader !== undefined) reader.room = 0;
}

function giveRoom(reader: Reader | undefined, room: number): void {
  if (reader === undefined) return;
  reader.room = room;
  reader.subscriber.wake();
}

async function publish(
  store: LocalStore,
  truths: ReadonlyMap<number, Truth[]>,
  random: SeededRandom,
  step: number,
): Promise<void> {
  const topic = random.pick(topics);
  const publisher = `p${random.below(4)}`;
  const value = `${step}`;
  const shard = store.shardOf(topic, publisher);
  const outcome = await append(store, appendRequest(topic, value, { publisher }));
  if (outcome.kind !== "stored") throw new Error("an append was taken for a repeat");
  truths.get(shard)?.push({ timeUs: outcome.timeUs, topic, value });
}

function judge(schedule: Schedule, truths: ReadonlyMap<number, Truth[]>, seed: number): number {
  const { reader, from } = schedule;
  let count = 0;
  for (const [shard, list] of truths) {
    const expected = list
      .filter(({ timeUs }) => timeUs > (from.get(shard) ?? 0))
      .sort((a, b) => a.timeUs - b.timeUs)
      .map(
        ({ value, topic }) =>
          [value, schedule.filters.filter((f) => wantedBy.get(topic)?.includes(f))] as const,
      )
      .filter(([, wanted]) => wanted.length > 0)
      .map(([value, wanted]) => `${value}:${[...wanted].sort().join("|")}`);
    const got = (reader?.received ?? [])
      .filter((each) => each.shard === shard)
      .map((each) => `${each.value}:${[...each.filters].sort().join("|")}`);
    const at = expected.findIndex((each, index) => got[index] !== each);
    if (at >= 0 || got.length !== expected.length) {
      const place = at >= 0 ? at : expected.length;
      throw new Error(
        `seed ${seed}, filters [${schedule.filters}], from step ${schedule.startStep}, shard ${shard}: ` +
          `TTV ${place} is ${got[place]} instead of ${expected[place]}`,
      );
    }
    count += got.length;
  }
  return count;
}
