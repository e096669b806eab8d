// Who follows the rows of a map shard knows them, whatever is written while it lists, also when they
// are exchanged for those of another replica in the middle of that.

import fc from "fast-check";
import { expect, test } from "vitest";
import {
  followRows,
  type MapEntry,
  type MapWatcher,
  type RowFollower,
} from "../../src/store/index.ts";
import { amount } from "../support/amount.ts";

const prefix = "sub/";

/** Lists a few rows at a time, each page only when it is asked for, from what lay there before. */
class PagedRows {
  rows = new Map<string, string>();
  readonly #waiting: Array<() => void> = [];
  watcher: MapWatcher | undefined;

  watch(_prefix: string, watcher: MapWatcher): () => void {
    this.watcher = watcher;
    return () => undefined;
  }

  /** Read now, handed out later: what is written meanwhile is not in it. */
  async list(
    under: string,
    { afterKey = "", countMax }: { afterKey?: string; countMax: number },
  ): Promise<MapEntry[]> {
    const keys = [...this.rows.keys()].filter((key) => key.startsWith(under) && key > afterKey);
    const page = keys
      .sort()
      .slice(0, countMax)
      .map((key) => ({ key, timeUs: 1, value: Buffer.from(this.rows.get(key) ?? "") }));
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
    return page;
  }

  write(key: string, value: string | undefined): void {
    if (value === undefined) this.rows.delete(key);
    else this.rows.set(key, value);
    this.watcher?.applied(key, value === undefined ? undefined : Buffer.from(value));
  }

  exchange(rows: Map<string, string>): Promise<void> | undefined {
    this.rows = new Map(rows);
    return this.watcher?.replaced();
  }

  handOut(): boolean {
    const next = this.#waiting.shift();
    next?.();
    return next !== undefined;
  }
}

const key = fc.integer({ min: 0, max: 5 }).map((number) => `${prefix}${number}`);
const value = fc.constantFrom("a", "b", "c");
const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ kind: fc.constant("write" as const), key, value }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("delete" as const), key }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("page" as const) }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("exchange" as const),
      rows: fc.dictionary(key, value, { maxKeys: 4 }),
    }),
  },
);

test("rows that are followed are the rows that are there, through writes and exchanges", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.dictionary(key, value, { maxKeys: 4 }),
      fc.array(step, { maxLength: 30 }),
      async (before, steps) => {
        const shard = new PagedRows();
        shard.rows = new Map(Object.entries(before));
        const known = new Map<string, string>();
        const follower: RowFollower = {
          put: (name, bytes) => known.set(name, bytes.toString()),
          gone: (name) => known.delete(name),
          exchanged: (names) => {
            for (const name of known.keys()) if (!names.has(name)) known.delete(name);
          },
        };
        const first = followRows(shard, prefix, follower, { pageMax: 2 });
        const waits: Array<Promise<unknown> | undefined> = [first];
        for (const each of steps) {
          if (each.kind === "write") shard.write(each.key, each.value);
          else if (each.kind === "delete") shard.write(each.key, undefined);
          else if (each.kind === "exchange") {
            waits.push(shard.exchange(new Map(Object.entries(each.rows))));
          } else {
            shard.handOut();
            for (let turn = 0; turn < 4; turn++) await undefined;
          }
        }
        let settled = false;
        void Promise.all(waits).then(() => {
          settled = true;
        });
        while (!settled) {
          shard.handOut();
          await new Promise((resolve) => setImmediate(resolve));
        }
        expect(Object.fromEntries(known)).toEqual(Object.fromEntries(shard.rows));
      },
    ),
    { numRuns: amount(300, 1_000), endOnFailure: true },
  );
});
