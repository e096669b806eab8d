// Random transaction histories on a map shard, judged by a model: what was committed must be what
// these transactions would have done one after the other, in the order of their commit times.

import * as fc from "fast-check";
import { expect, test } from "vitest";
import type { MapShard, MapTransaction } from "../../src/store/index.ts";
import { StoreMachine } from "../support/store-machine.ts";

const keys = ["a/1", "a/2", "b/1", "c"];
const prefixes = ["a/", "b/", ""];

const action = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("get"), at: fc.nat(3) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("list"), at: fc.nat(2) }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("put"), at: fc.nat(3) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("delete"), at: fc.nat(3) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("present"), at: fc.nat(3) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("absent"), at: fc.nat(3) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("turns"), at: fc.nat(8) }) },
  // Around the 5 s that the window of recent writes goes back.
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("pass"), at: fc.nat(4) }) },
);
type Action = { readonly kind: string; readonly at: number };
const passMs = [1, 2_500, 4_999, 5_000, 5_001];

const transaction = fc.array(action, { minLength: 1, maxLength: 8 });
const blind = fc.record({ key: fc.nat(3), isDelete: fc.boolean(), gapMs: fc.nat(4) });
const history = fc.record({
  transactions: fc.array(fc.record({ actions: transaction, startMs: fc.nat(6) }), {
    minLength: 2,
    maxLength: 10,
  }),
  writes: fc.array(blind, { maxLength: 8 }),
});

type Read = { readonly key?: string; readonly prefix?: string; readonly found: string };
type Committed = {
  readonly timeUs: number;
  readonly reads: readonly Read[];
  readonly present: readonly string[];
  readonly absent: readonly string[];
  readonly writes: ReadonlyMap<string, string | undefined>;
};

/** One run's own corner of the shard. */
type Corner = {
  readonly m: StoreMachine;
  readonly map: MapShard;
  readonly root: string;
  readonly committed: Committed[];
  readonly refused: string[];
  attempts: number;
};

function wait(m: StoreMachine, ms: number): Promise<void> {
  return new Promise((resolve) => {
    if (ms > 0) m.clock.schedule(ms, resolve);
    else m.clock.soon(resolve);
  });
}

async function act(
  corner: Corner,
  tx: MapTransaction,
  { kind, at }: Action,
  seen: {
    reads: Read[];
    present: string[];
    absent: string[];
    writes: Map<string, string | undefined>;
  },
): Promise<void> {
  const { m, root } = corner;
  const key = `${root}${keys[at % keys.length]}`;
  if (kind === "get") {
    const entry = await tx.get(key);
    seen.reads.push({ key, found: entry?.value.toString() ?? "-" });
  } else if (kind === "list") {
    const prefix = `${root}${prefixes[at]}`;
    const entries = await tx.list(prefix, 100);
    const found = entries.map((entry) => `${entry.key}=${entry.value}`).join();
    seen.reads.push({ prefix, found });
  } else if (kind === "put") {
    const value = `v${corner.attempts}`;
    tx.put(key, Buffer.from(value));
    seen.writes.set(key, value);
  } else if (kind === "delete") {
    tx.delete(key);
    seen.writes.set(key, undefined);
  } else if (kind === "present") {
    tx.assertPresent(key);
    seen.present.push(key);
  } else if (kind === "absent") {
    tx.assertAbsent(key);
    seen.absent.push(key);
  } else if (kind === "turns") {
    for (let turn = 0; turn < at; turn++) await wait(m, 0);
  } else await wait(m, passMs[at]!);
}

async function transact(
  corner: Corner,
  actions: readonly Action[],
  startMs: number,
): Promise<void> {
  await wait(corner.m, startMs / 4);
  let seen = { reads: [], present: [], absent: [], writes: new Map() } as Parameters<typeof act>[3];
  try {
    const { timeUs } = await corner.map.transact(async (tx) => {
      corner.attempts++;
      seen = { reads: [], present: [], absent: [], writes: new Map() };
      for (const each of actions) await act(corner, tx, each, seen);
    });
    corner.committed.push({ timeUs, ...seen });
  } catch (error) {
    corner.refused.push((error as { code: string }).code);
  }
}

async function blindWrite(
  corner: Corner,
  { key: at, isDelete, gapMs }: { key: number; isDelete: boolean; gapMs: number },
): Promise<void> {
  await wait(corner.m, gapMs);
  const key = `${corner.root}${keys[at]}`;
  const value = isDelete ? undefined : `blind${corner.attempts}`;
  const bytes = value === undefined ? undefined : Buffer.from(value);
  const timeUs = await new Promise<number>((resolve, reject) => {
    corner.map.write([{ key, value: bytes }], [], (error, time) => {
      if (error === undefined) resolve(time);
      else reject(error);
    });
  });
  const writes = new Map([[key, value]]);
  corner.committed.push({ timeUs, reads: [], present: [], absent: [], writes });
}

/** What a transaction that writes nothing reads lies behind the write of the same time. */
function inOrder(committed: readonly Committed[]): Committed[] {
  const writesFirst = (each: Committed): number => (each.writes.size > 0 ? 0 : 1);
  return [...committed].sort((a, b) => a.timeUs - b.timeUs || writesFirst(a) - writesFirst(b));
}

function judge(committed: readonly Committed[]): Map<string, string> {
  const model = new Map<string, string>();
  for (const { reads, present, absent, writes } of inOrder(committed)) {
    for (const { key, prefix, found } of reads) {
      if (key !== undefined) expect(found).toBe(model.get(key) ?? "-");
      if (prefix === undefined) continue;
      const listed = [...model].filter(([name]) => name.startsWith(prefix)).sort();
      expect(found).toBe(listed.map(([name, value]) => `${name}=${value}`).join());
    }
    for (const key of present) expect(model.has(key)).toBe(true);
    for (const key of absent) expect(model.has(key)).toBe(false);
    for (const [key, value] of writes) {
      if (value === undefined) model.delete(key);
      else model.set(key, value);
    }
  }
  return model;
}

test("random transactions, writes and deletes are serialisable in the order of their commit times", async () => {
  const m = new StoreMachine({ seed: 3, store: { shards: 1 } });
  const { store } = await m.boot();
  const map = store.state("owner");
  const total = { committed: 0, retried: 0, refused: new Map<string, number>() };
  let run = 0;
  const property = fc.asyncProperty(history, async ({ transactions, writes }) => {
    const root = `r${run++}/`;
    const corner: Corner = { m, map, root, committed: [], refused: [], attempts: 0 };
    const work = [
      ...transactions.map(({ actions, startMs }) => transact(corner, actions, startMs)),
      (async () => {
        for (const each of writes) await blindWrite(corner, each);
      })(),
    ];
    await m.clock.complete(Promise.all(work), 600_000);
    const model = judge(corner.committed);
    const entries = await m.clock.complete(map.list(root, { countMax: 100 }));
    const found = entries.map(({ key, value }) => [key, value.toString()]);
    expect(found).toEqual([...model].sort());
    total.committed += corner.committed.length;
    total.retried += corner.attempts - transactions.length;
    for (const code of corner.refused) total.refused.set(code, (total.refused.get(code) ?? 0) + 1);
  });
  await fc.assert(property, { numRuns: 150 });
  expect(total.committed).toBeGreaterThan(500);
  expect(total.retried).toBeGreaterThan(30);
  expect(total.refused.get("STORE_PRECONDITION_FAILED")).toBeGreaterThan(5);
  // Whoever lost goes on in turn: nobody is given up in so small a crowd.
  expect([...total.refused.keys()]).toEqual(["STORE_PRECONDITION_FAILED"]);
});
