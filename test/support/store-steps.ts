// Ends a store at every step of one operation: a step is one call of disk or key-value store that
// completes, or one timer. Then something may be lost while the machine is off. Whatever it was, what
// was acked is read once, in order, and the store goes on.

import type { LocalStore } from "../../src/store/index.ts";
import { append, appendRequest, Reader } from "./store-calls.ts";
import { StoreMachine } from "./store-machine.ts";

export type Operation = "checkpoint" | "rotate" | "drop" | "repack";
export type End = "kill" | "crash";
/** Of the shard's own rows, while the machine is off. */
export type Loss = "nothing" | "shard store" | "shard store and copy";
export type StepCase = {
  readonly operation: Operation;
  readonly end: End;
  readonly loss: Loss;
  readonly seed?: number;
};

const dir = "data/db/messages/s0003";
/** What an operation leaves to do behind its answer: folders go. */
const afterMs = 20;
const perGeneration = 4;
/** So that the log lets go of the first generations. */
const valueBytes = 1_500;

type Started = {
  readonly m: StoreMachine;
  readonly store: LocalStore;
  readonly values: readonly string[];
  readonly isAnswered: () => boolean;
};

/** Two generations have ended, a third is written; the operation has just begun. */
async function begin(operation: Operation, seed = 9): Promise<Started> {
  const m = new StoreMachine({ seed, segmentBytes: 8 * 1024, store: { shards: 1 } });
  const { store } = await m.boot();
  const values: string[] = [];
  for (let generation = 0; generation < 3; generation++) {
    if (generation > 0) await m.clock.complete(store.rotate());
    for (let n = 0; n < perGeneration; n++) {
      const value = `v${values.length}`;
      await m.clock.complete(
        append(store, appendRequest(`t/${n % 2}`, value.padEnd(valueBytes, "."))),
      );
      values.push(value);
      if (n % 2 === 0) await m.clock.complete(store.checkpoint());
    }
  }
  // So that folders that go, and those that were made, are on the medium.
  await m.clock.advance(100);
  let isAnswered = false;
  run(store, operation).then(
    () => {
      isAnswered = true;
    },
    () => undefined,
  );
  return { m, store, values, isAnswered: () => isAnswered };
}

function run(store: LocalStore, operation: Operation): Promise<unknown> {
  if (operation === "checkpoint") return store.checkpoint();
  if (operation === "rotate") return store.rotate();
  if (operation === "repack") return store.operator.repack({ all: true });
  const [, second] = store.operator.generations(store.logShards[0]!);
  return store.dropUntil(second!.fromUs - 1);
}

/** Steps from the beginning of an operation until nothing is left of it to do. */
export async function countSteps(operation: Operation): Promise<number> {
  const { m, isAnswered } = await begin(operation);
  let steps = 0;
  let answeredMs: number | undefined;
  await m.clock.runUntil(() => {
    steps++;
    if (isAnswered()) answeredMs ??= m.clock.elapsedMs();
    return m.clock.elapsedMs() >= (answeredMs ?? Number.POSITIVE_INFINITY) + afterMs;
  });
  return steps;
}

/** What was wrong after the end of step `step`; undefined when nothing was. */
export async function endAt(step: number, { operation, end, loss, seed }: StepCase) {
  const { m, values, isAnswered } = await begin(operation, seed);
  let steps = 0;
  await m.clock.runUntil(() => steps++ >= step);
  const mustBeGone = operation === "drop" && isAnswered() ? perGeneration : 0;
  m[end]();
  await lose(m, loss);
  const { store } = await m.boot();
  const reader = await readAll(m, store);
  const dropped = values.length - reader.values.length;
  const mayBeGone = operation === "drop" ? perGeneration : 0;
  const names = reader.values.map((value) => value.replace(/\.+$/, ""));
  if (names.join() !== values.slice(dropped).join()) return `read ${names}`;
  if (dropped !== 0 && dropped !== mayBeGone) return `${dropped} are gone`;
  // Where nothing is left that knows of a drop, a folder that had not gone yet is back.
  if (dropped < mustBeGone && loss !== "shard store and copy") return "what was dropped is back";
  const told = reader.missedReports.reduce((sum, { count }) => sum + count, 0);
  if (told !== dropped && loss !== "shard store and copy")
    return `${dropped} gone, told of ${told}`;
  if (reader.missedReports.some(({ reason }) => reason === "damaged")) return "told of damage";
  return goOn(m, store, reader.values);
}

/** It takes more, ends a generation, and has all of it after one more power cut. */
async function goOn(m: StoreMachine, store: LocalStore, values: readonly string[]) {
  await m.clock.complete(append(store, appendRequest("t/after", "after")));
  await m.clock.complete(store.rotate());
  await m.clock.complete(append(store, appendRequest("t/last", "last")));
  await m.clock.advance(100);
  m.crash();
  const again = (await m.boot()).store;
  const { values: read } = await readAll(m, again);
  if (read.join() !== [...values, "after", "last"].join()) return `read at last ${read}`;
  const { findings } = await m.clock.complete(again.operator.verify());
  if (findings.length > 0) return JSON.stringify(findings);
  const folders = m.kv.paths.flatMap((path) => /^data\/db\/.*\/g(\d+)[p/]/.exec(path)?.[1] ?? []);
  // Two stores each.
  const second = folders.find((name) => folders.filter((each) => each === name).length > 2);
  return second === undefined ? undefined : `two folders of generation ${second}`;
}

async function lose(m: StoreMachine, loss: Loss): Promise<void> {
  if (loss === "nothing") return;
  m.kv.hollow(`${dir}/store`);
  const disk = m.disk.attach();
  const copy = `${dir}/store.copy`;
  if (loss === "shard store and copy" && (await m.clock.complete(disk.exists(copy)))) {
    await m.clock.complete(disk.remove(copy));
  }
}

async function readAll(m: StoreMachine, store: LocalStore): Promise<Reader> {
  const reader = new Reader(store, ["#"], new Map());
  await m.clock.runUntil(() => reader.subscriber.atTail);
  await m.clock.advance(10);
  return reader;
}
