// What every log under a shard must do, replicated or not (the seam in store/shard-log.ts). A log may
// have entries of its own between those of the shard; they are handed on with kind 0.

import { deepEqual, equal, ok } from "node:assert/strict";
import type { ShardEntry, ShardLog } from "../store/index.ts";
import { type ContractRule, type Rig, rulesOf } from "./rule.ts";

/** `stop`: an orderly end. `power`: at once, and only what was durable is there afterwards. */
export type ShardLogEnd = "stop" | "power";

export type ShardLogRig = Rig & {
  /** The log of a shard in this process: the first one ever, or as it was left. Once a shard. */
  open(shard: number): Promise<ShardLog>;
  /** Ends the process; `open` works in the next one. */
  end(how: ShardLogEnd): Promise<void>;
  /** From now on nothing becomes durable any more: the log fails. */
  breakDown(): void;
};

type Opened = {
  readonly log: ShardLog;
  /** What `replay` found, then what was committed. */
  readonly entries: Array<{ index: number; kind: number; version: number; text: string }>;
  /** Indexes of all that was handed on, the log's own entries included. */
  readonly handed: number[];
  readonly failures: Error[];
  /** The index of the entry, if it is committed. */
  propose(text: string | Buffer): number;
  /** Resolves when the last entry proposed is committed; rejects when the log fails before that. */
  settled(): Promise<void>;
};

const firstShard = 3;
const otherShard = 4;

/** Rules for a `ShardLog`. */
export function shardLogContract(openRig: () => Promise<ShardLogRig>): ContractRule[] {
  return rulesOf(openRig, (add) => {
    add("entries are committed once each, in the order of their indexes", async (rig) => {
      const opened = await start(rig);
      const proposed: number[] = [];
      for (let n = 1; n <= 100; n++) {
        const beforeIndex = opened.log.lastIndex;
        proposed.push(opened.propose(`entry ${n}`));
        equal(opened.log.lastIndex, beforeIndex + 1);
        if (n % 7 === 0) await opened.settled();
      }
      await opened.settled();
      deepEqual(indexes(opened), proposed);
      deepEqual(opened.handed, numbers(1, opened.log.lastIndex));
      deepEqual(texts(opened), named(1, 100));
    });

    add("an entry is never committed within the call that proposes it", async (rig) => {
      const opened = await start(rig);
      const index = opened.propose("entry 1");
      deepEqual(opened.entries, []);
      await opened.settled();
      deepEqual(opened.entries, [{ index, kind: 1, version: 1, text: "entry 1" }]);
    });

    for (const how of ["stop", "power"] as const) {
      add(`what was committed is replayed in order after ${endings[how]}`, async (rig) => {
        const first = await start(rig);
        for (let n = 1; n <= 50; n++) first.propose(`entry ${n}`);
        await first.settled();
        for (let n = 51; n <= 60; n++) first.propose(`entry ${n}`);
        await rig.end(how);
        const second = await start(rig);
        const count = second.entries.length;
        ok(count >= 50 && count <= 60, `${count} entries were replayed`);
        deepEqual(texts(second), named(1, count));
        deepEqual(indexes(second).slice(0, 50), indexes(first).slice(0, 50));
        second.propose(`entry ${count + 1}`);
        await second.settled();
        deepEqual(second.handed, numbers(1, second.log.lastIndex));
        await rig.end(how);
        deepEqual(texts(await start(rig)), named(1, count + 1));
      });
    }

    add("a replay begins where it is told to", async (rig) => {
      const first = await start(rig);
      for (let n = 1; n <= 20; n++) first.propose(`entry ${n}`);
      await first.settled();
      await rig.end("power");
      const second = await start(rig, { fromIndex: indexOf(first, 15) });
      deepEqual(texts(second), named(15, 20));
      deepEqual(second.handed, numbers(indexOf(first, 15), second.log.lastIndex));
    });

    add("two shards have their own entries and indexes", async (rig) => {
      const one = await start(rig);
      const other = await start(rig, { shard: otherShard });
      for (let n = 1; n <= 10; n++) {
        one.propose(`entry ${n}`);
        if (n <= 5) other.propose(`other ${n}`);
      }
      await Promise.all([one.settled(), other.settled()]);
      deepEqual([texts(one).length, texts(other).length], [10, 5]);
      for (const { log, handed } of [one, other]) deepEqual(handed, numbers(1, log.lastIndex));
      await rig.end("power");
      deepEqual(texts(await start(rig, { shard: otherShard }))[4], "other 5");
      deepEqual(texts(await start(rig)), named(1, 10));
    });

    add("a payload of the largest size is taken and comes back whole", async (rig) => {
      const first = await start(rig);
      const payload = Buffer.alloc(first.log.payloadBytesMax, "x");
      payload.write("begin");
      payload.write("end", payload.length - 3);
      first.propose(payload);
      first.propose(Buffer.alloc(0));
      await first.settled();
      await rig.end("power");
      const [large, empty] = (await start(rig)).entries;
      ok(large?.text === payload.toString("latin1"));
      equal(empty?.text, "");
    });
    addReleaseRules(add);
    addFailureRules(add);
  });
}

type Add = Parameters<Parameters<typeof rulesOf<ShardLogRig>>[1]>[0];

function addReleaseRules(add: Add): void {
  add("what was released is forgotten, what is above it stays", async (rig) => {
    const first = await start(rig);
    for (let n = 1; n <= 20; n++) first.propose(`entry ${n}`);
    await first.settled();
    const before = first.log.bytesSinceRelease;
    ok(before > 0);
    first.log.release(indexOf(first, 12));
    first.log.release(indexOf(first, 5));
    ok(first.log.bytesSinceRelease <= before);
    first.log.release(indexOf(first, 20));
    equal(first.log.bytesSinceRelease, 0);
    const fromIndex = first.propose("entry 21");
    await first.settled();
    ok(first.log.bytesSinceRelease > 0);
    await rig.end("power");
    deepEqual(texts(await start(rig, { fromIndex })), ["entry 21"]);
  });

  add("a shard whose entries were all released goes on behind them", async (rig) => {
    const first = await start(rig);
    for (let n = 1; n <= 3; n++) first.propose(`entry ${n}`);
    await first.settled();
    const lastIndex = indexOf(first, 3);
    first.log.release(lastIndex);
    await rig.end("stop");
    const second = await start(rig, { fromIndex: lastIndex + 1 });
    deepEqual(second.entries, []);
    const index = second.propose("entry 4");
    ok(index > lastIndex);
    await second.settled();
    deepEqual(second.handed, numbers(lastIndex + 1, index));
    await rig.end("power");
    deepEqual(texts(await start(rig, { fromIndex: lastIndex + 1 })), ["entry 4"]);
  });

  add("entries copied elsewhere are replayed, and those behind them", async (rig) => {
    const first = await start(rig);
    for (let n = 1; n <= 10; n++) first.propose(`entry ${n}`);
    await first.settled();
    const range = await first.log.copyBacklog();
    const lastIndex = indexOf(first, 10);
    if (range !== undefined) deepEqual(range, { firstIndex: 1, lastIndex });
    ok(!first.log.pins);
    for (let n = 11; n <= 15; n++) first.propose(`entry ${n}`);
    await first.settled();
    await rig.end("power");
    const second = await start(rig);
    deepEqual(texts(second), named(1, 15));
    deepEqual(second.log.gaps, []);
  });
}

function addFailureRules(add: Add): void {
  add("a log that fails says so once, and commits nothing more", async (rig) => {
    const opened = await start(rig);
    for (let n = 1; n <= 5; n++) opened.propose(`entry ${n}`);
    await opened.settled();
    rig.breakDown();
    for (let n = 6; n <= 9; n++) opened.propose(`entry ${n}`);
    await opened.settled().then(
      () => ok(false, "an entry was committed by a log that had failed"),
      () => undefined,
    );
    opened.propose("entry 10");
    equal(opened.failures.length, 1);
    deepEqual(texts(opened), named(1, 5));
  });
}

const endings: Readonly<Record<ShardLogEnd, string>> = {
  stop: "an orderly end",
  power: "a power cut",
};

async function start(
  rig: ShardLogRig,
  options: { readonly shard?: number; readonly fromIndex?: number } = {},
): Promise<Opened> {
  const { shard = firstShard, fromIndex = 1 } = options;
  const log = await rig.open(shard);
  equal(log.shard, shard);
  const entries: Opened["entries"] = [];
  const handed: number[] = [];
  const failures: Error[] = [];
  const listeners = new Set<() => void>();
  const note = ({ index, kind, version, payload }: ShardEntry): undefined => {
    handed.push(index);
    if (kind !== 0) entries.push({ index, kind, version, text: payload.toString("latin1") });
    for (const listener of [...listeners]) listener();
  };
  await log.replay(fromIndex, note);
  log.start((handed.at(-1) ?? fromIndex - 1) + 1, {
    onCommitted: note,
    onForeign: note,
    onFailed: (error) => {
      failures.push(error);
      for (const listener of [...listeners]) listener();
    },
  });
  const propose = (text: string | Buffer): number => {
    log.propose(1, 1, typeof text === "string" ? Buffer.from(text) : text);
    return log.lastIndex;
  };
  const settled = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const look = (): void => {
        const failure = failures[0];
        const isDone = (handed.at(-1) ?? fromIndex - 1) >= log.lastIndex;
        if (failure === undefined && !isDone) return;
        listeners.delete(look);
        if (failure !== undefined) reject(failure);
        else resolve();
      };
      listeners.add(look);
      look();
    });
  return { log, entries, handed, failures, propose, settled };
}

const numbers = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, at) => from + at);
const named = (from: number, to: number): string[] => numbers(from, to).map((n) => `entry ${n}`);
/** Where the n-th entry of the shard stands, counted from 1. */
const indexOf = ({ entries }: Opened, n: number): number => entries[n - 1]?.index ?? 0;
const indexes = ({ entries }: Opened): number[] => entries.map(({ index }) => index);
const texts = ({ entries }: Opened): string[] => entries.map(({ text }) => text);
