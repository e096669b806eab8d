// The copy of a shard's rows that is older than its shard store: it could not be written, or the
// process ended before it was. What it names must be there as long as it may be all that is left, and
// what has gone since must not come back by it.

import { describe, expect, test } from "vitest";
import type { LocalStore } from "../../../src/store/index.ts";
import { append, appendRequest, Reader } from "../../support/store-calls.ts";
import { StoreMachine, turnLogOver } from "../../support/store-machine.ts";

const oneShard = (seed: number) => new StoreMachine({ seed, store: { shards: 1 } });
const shardDir = "data/db/messages/s0003";
const endless = { times: Number.POSITIVE_INFINITY };

class Run {
  readonly m: StoreMachine;
  readonly values: string[] = [];
  store!: LocalStore;

  constructor(seed: number) {
    this.m = oneShard(seed);
  }

  async boot(): Promise<void> {
    this.store = (await this.m.boot()).store;
  }

  async some(count: number): Promise<void> {
    for (let n = 0; n < count; n++) {
      const value = `v${this.values.length}`;
      const frame = Buffer.from(value.padEnd(3_000, "."));
      const request = appendRequest(`t/${this.values.length % 3}`, "", { frame });
      await this.m.clock.complete(append(this.store, request));
      this.values.push(value);
    }
  }

  /** From here on the copy stays as it is. */
  failCopy(): void {
    this.m.disk.inject({
      on: "write",
      path: `${shardDir}/store.copy`,
      fails: "ENOSPC",
      ...endless,
    });
  }

  async read(): Promise<Reader> {
    const reader = new Reader(this.store, ["#"], new Map());
    await this.m.clock.runUntil(() => reader.subscriber.atTail);
    await this.m.clock.advance(10);
    return reader;
  }

  /** The process ends, and the shard store is lost with all that it held. */
  async loseStore(how: "damage" | "hollow"): Promise<void> {
    this.m.disk.heal();
    this.m.crash();
    this.m.kv[how](`${shardDir}/store`);
    await this.boot();
  }

  async expectAll(values = this.values): Promise<Reader> {
    const reader = await this.read();
    expect(reader.values.map((value) => value.replace(/\.+$/, ""))).toEqual(values);
    return reader;
  }
}

/** Three generations; two are sealed, and as the copy says. */
async function threeGenerations(seed: number): Promise<Run> {
  const run = new Run(seed);
  await run.boot();
  await run.some(30);
  await run.m.clock.complete(run.store.rotate());
  await run.some(30);
  await run.m.clock.complete(run.store.rotate());
  await run.some(10);
  await run.m.clock.complete(run.store.checkpoint());
  return run;
}

describe.each(["damage", "hollow"] as const)("a copy that is older than its store (%s)", (how) => {
  test("than a checkpoint: what came since is in the log still", async () => {
    const run = await threeGenerations(1);
    run.failCopy();
    await run.some(40);
    await run.m.clock.complete(run.store.checkpoint());
    await turnLogOver(run.m, run.store);
    await run.loseStore(how);
    expect((await run.expectAll()).missedReports).toEqual([]);
  });

  test("than a packing: the slab that it names is there still", async () => {
    const run = await threeGenerations(2);
    run.failCopy();
    expect((await run.m.clock.complete(run.store.operator.repack({ all: true }))).packed).toBe(2);
    await run.m.clock.advance(1_000);
    await run.loseStore(how);
    expect((await run.expectAll()).missedReports).toEqual([]);
    await run.some(5);
    run.m.crash();
    await run.boot();
    await run.expectAll();
  });

  test("than a rotation and a packing of what it ended", async () => {
    const run = await threeGenerations(3);
    run.failCopy();
    await run.m.clock.complete(run.store.rotate());
    expect((await run.m.clock.complete(run.store.operator.repack({ all: true }))).packed).toBe(3);
    await turnLogOver(run.m, run.store);
    await run.loseStore(how);
    expect((await run.expectAll()).missedReports).toEqual([]);
  });

  test("than a drop: nothing that was dropped comes back, and readers are told", async () => {
    const run = await threeGenerations(4);
    run.failCopy();
    const { fromUs } = run.store.operator.generations(3)[1]!;
    await run.m.clock.complete(run.store.dropUntil(fromUs));
    await turnLogOver(run.m, run.store);
    await run.loseStore(how);
    const reader = await run.expectAll(run.values.slice(30));
    expect(reader.missedReports.map(({ count, reason }) => [count, reason])).toEqual([
      [30, "expired"],
    ]);
  });

  test("since the process ended before it: the next start writes it, then removes", async () => {
    const run = await threeGenerations(5);
    run.failCopy();
    await run.m.clock.complete(run.store.operator.repack({ all: true }));
    run.m.disk.heal();
    run.m.crash();
    await run.boot();
    await run.loseStore(how);
    expect((await run.expectAll()).missedReports).toEqual([]);
  });
});

test("a copy that failed is made again by itself, and the log goes on", async () => {
  const run = await threeGenerations(6);
  run.failCopy();
  await run.some(5);
  await run.m.clock.complete(run.store.checkpoint());
  run.m.disk.heal();
  const stale = Buffer.from(run.m.disk.peek(`${shardDir}/store.copy`));
  const before = run.m.events.length;
  await run.m.clock.advance(130_000);
  expect(run.m.disk.peek(`${shardDir}/store.copy`)).not.toEqual(stale);
  await run.loseStore("hollow");
  expect(run.m.events.slice(before).map(({ event }) => event)).not.toContain("store.entries_lost");
  await run.expectAll();
});

test("the volume is full and the copy cannot be written: a drop frees room all the same", async () => {
  const run = await threeGenerations(7);
  run.failCopy();
  const before = run.m.kv.paths.length;
  const { toUs } = run.store.operator.generations(3)[1]!;
  await run.m.clock.complete(run.store.dropUntil(toUs! - 1));
  await run.m.clock.advance(1_000);
  expect(run.m.kv.paths.length).toBe(before - 4);
});

describe("folders that only an older copy names", () => {
  async function folders({ m }: Run): Promise<readonly string[]> {
    const entries = await m.clock.complete(m.disk.list(shardDir));
    return entries.map(({ name }) => name).filter((name) => /^g\d/.test(name));
  }

  test.each(["in the same life", "over a start"])("go with the next copy, %s", async (when) => {
    const run = await threeGenerations(5);
    run.failCopy();
    expect((await run.m.clock.complete(run.store.operator.repack({ all: true }))).packed).toBe(2);
    await run.m.clock.advance(1_000);
    const both = ["g00000001", "g00000001p1", "g00000002", "g00000002p1", "g00000003"];
    expect(await folders(run)).toEqual(both);
    if (when === "over a start") {
      run.m.crash();
      await run.boot();
      await run.m.clock.advance(1_000);
      expect(await folders(run)).toEqual(both);
    }
    run.m.disk.heal();
    await run.m.clock.complete(run.store.checkpoint());
    await run.m.clock.advance(1_000);
    expect(await folders(run)).toEqual(["g00000001p1", "g00000002p1", "g00000003"]);
    await run.expectAll();
  });
});
