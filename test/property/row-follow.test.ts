// Who follows the rows of a map shard knows them, whatever is written while it lists, also when they
// are exchanged for those of another replica in the middle of that.

import fc from "fast-check";
import { expect, test } from "vitest";
import { followRows, type RowFollower } from "../../src/store/index.ts";
import { amount } from "../support/amount.ts";
import { PagedRows } from "../support/paged-rows.ts";

const prefix = "sub/";

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
        await shard.handOutUntil(Promise.all(waits));
        expect(Object.fromEntries(known)).toEqual(Object.fromEntries(shard.rows));
      },
    ),
    { numRuns: amount(300, 1_000), endOnFailure: true },
  );
});
