import { describe, expect, test } from "vitest";
import type { AppendRun, AppendRunSpan, LocalStore } from "../../../src/store/index.ts";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { StoreMachine } from "../../support/store-machine.ts";

const oneShard = { store: { shards: 1 } };

function runOf(topics: readonly string[], values: readonly string[]): AppendRun {
  const frames = values.map((value) => Buffer.from(value));
  const starts = [0];
  for (const frame of frames) starts.push(starts.at(-1)! + frame.length);
  const bytes = Buffer.concat(frames);
  return { publisher: "p", form: "raw", qos: 1, topics, bytes, starts };
}

type Told = AppendRunSpan & { readonly code: string | undefined };

/** Resolves with all spans once they make up the run. */
function appendRun(store: LocalStore, run: AppendRun): Promise<Told[]> {
  const told: Told[] = [];
  return new Promise((resolve) => {
    store.appendRun(run, (error, span) => {
      told.push({ ...span, code: error?.code });
      if (told.reduce((sum, { count }) => sum + count, 0) === run.topics.length) resolve(told);
    });
  });
}

async function boot(m: StoreMachine): Promise<LocalStore> {
  const { store } = await m.clock.complete(m.open());
  await m.clock.complete(store.start());
  return store;
}

async function readAll(m: StoreMachine, store: LocalStore, filter = "#"): Promise<Reader> {
  const reader = new Reader(store, [filter], new Map());
  await m.clock.runUntil(() => reader.subscriber.atTail);
  return reader;
}

const seen = ({ received }: Reader): Array<readonly [string, string, number]> =>
  received.map(({ topic, value, timeUs }) => [topic, value, timeUs]);

describe("a run", () => {
  const topics = Array.from({ length: 700 }, (_, n) => `s${n % 3}/h${n % 40}`);
  const values = topics.map((_, n) => `v${n}`);

  test("is stored as its appends, under the times that it was told, also after kill -9", async () => {
    const m = new StoreMachine({ seed: 1, ...oneShard });
    const store = await boot(m);
    const told = await m.clock.complete(appendRun(store, runOf(topics, values)));
    const times = told.flatMap(({ timeUs, count }) =>
      Array.from({ length: count }, (_, at) => timeUs + at),
    );
    const wanted = topics.map((topic, n) => [topic, values[n], times[n]]);
    expect(told.map(({ from }) => from)).toEqual([0, 256, 512]);
    expect(seen(await readAll(m, store))).toEqual(wanted);
    m.kill();
    expect(seen(await readAll(m, await boot(m)))).toEqual(wanted);
  });

  test("is in the log what its appends one by one would be", async () => {
    const entries: string[] = [];
    for (const asRun of [true, false]) {
      const m = new StoreMachine({ seed: 2, ...oneShard });
      const store = await boot(m);
      if (asRun) await m.clock.complete(appendRun(store, runOf(topics, values)));
      else {
        const all = topics.map((topic, n) => append(store, appendRequest(topic, `v${n}`)));
        await m.clock.complete(Promise.all(all));
      }
      entries.push(await m.clock.complete(store.operator.logicalHash(store.logShards[0]!)));
    }
    expect(entries[0]).toEqual(entries[1]);
  });

  test("reaches readers at the tail in order, each behind the ack of the run", async () => {
    const m = new StoreMachine({ seed: 3, ...oneShard });
    const store = await boot(m);
    const reader = new Reader(store, ["s1/#"], new Map());
    await m.clock.runUntil(() => reader.subscriber.atTail);
    const before: number[] = [];
    store.appendRun(runOf(topics.slice(0, 30), values), () => {
      before.push(reader.received.length);
    });
    await m.clock.runUntil(() => reader.received.length === 10);
    expect(before).toEqual([0]);
    expect(reader.received.map(({ value }) => value)).toEqual(
      values.slice(0, 30).filter((_, n) => n % 3 === 1),
    );
  });

  test("finds the databases of its topics", async () => {
    const m = new StoreMachine({ seed: 4, ...oneShard });
    const store = await boot(m);
    const other = { name: "other", topics: ["s1/#"] };
    await m.clock.complete(store.operator.createDatabase(other));
    await m.clock.complete(appendRun(store, runOf(topics.slice(0, 6), values)));
    await m.clock.complete(store.checkpoint());
    const counts = store.operator.databases().map(({ name, ttvs }) => [name, ttvs]);
    expect(Object.fromEntries(counts)).toMatchObject({ messages: 4, other: 2 });
  });

  test("loses one append that no entry can hold, and no other", async () => {
    const m = new StoreMachine({ seed: 5, ...oneShard });
    const store = await boot(m);
    const large = "x".repeat(9 * 1024 * 1024);
    const told = await m.clock.complete(
      appendRun(store, runOf(["a", "b", "c"], ["1", large, "3"])),
    );
    expect(told.map(({ from, count, code }) => [from, count, code]).sort()).toEqual([
      [0, 1, undefined],
      [1, 1, "STORE_ENTRY_TOO_LARGE"],
      [2, 1, undefined],
    ]);
    expect((await readAll(m, store)).received.map(({ value }) => value)).toEqual(["1", "3"]);
  });

  test("hears of the failure of its log", async () => {
    const m = new StoreMachine({ seed: 6, ...oneShard });
    const store = await boot(m);
    const appended = appendRun(store, runOf(topics, values));
    m.disk.inject({ on: "fdatasync", path: "data/log", fails: "EIO" });
    const told = await m.clock.complete(appended);
    expect(new Set(told.map(({ code }) => code))).toEqual(new Set(["STORE_FAILED"]));
  });
});
