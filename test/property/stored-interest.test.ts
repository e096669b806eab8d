// What subscriptions keep messages for, here, is what the rows say, whoever writes them and however often:
// counted again from the rows, through listings, repeats and exchanges for the rows of another replica.

import fc from "fast-check";
import { expect, test } from "vitest";
import { encodeGroup, encodeSubscription } from "../../src/session/core/records.ts";
import { sharedTopicFilter } from "../../src/session/groups/member.ts";
import { SessionTable } from "../../src/session/inspect/table.ts";
import { groupKeys, keyLevel, sessionKeys } from "../../src/session/keys.ts";
import { createSessionCounters } from "../../src/session/settings.ts";
import { StoredRows } from "../../src/session/stored-rows.ts";
import type { MapShard, MatchTimes, Store } from "../../src/store/index.ts";
import { amount } from "../support/amount.ts";
import { PagedRows } from "../support/paged-rows.ts";

const clients = ["a", "b/c", "%41", "x".repeat(2_000)];
const filters = ["t", "t/#", "a/+/b", "$share/g/t", "$share/g/t/#", `long/${"y".repeat(1_500)}`];
type Qos = 0 | 1 | 2;
type Row = { readonly client: string; readonly filter: string; readonly qos: Qos };

const row = fc.record({
  client: fc.constantFrom(...clients),
  filter: fc.constantFrom(...filters),
  qos: fc.constantFrom<Qos>(0, 1, 2),
});
const group = fc.constantFrom(...filters.filter((filter) => filter.startsWith("$share/")));

function subRow({ client, filter, qos }: Row): readonly [string, string] {
  const options = { noLocal: false, retainAsPublished: false, identifier: 0 };
  const subscription = { filter, qos, retainHandling: 0 as const, ...options };
  const record = { subscription, start: new Map() };
  return [sessionKeys(client).sub(filter), encodeSubscription(record).toString("latin1")];
}

function groupRow(name: string): readonly [string, string] {
  return [groupKeys(name).claim, encodeGroup(name).toString("latin1")];
}

const rows = fc.record({
  subs: fc.array(row, { maxLength: 6 }),
  groups: fc.array(group, { maxLength: 2 }),
});
type Rows = typeof rows extends fc.Arbitrary<infer T> ? T : never;

function rowsOf({ subs, groups }: Rows): Map<string, string> {
  return new Map([...subs.map(subRow), ...groups.map(groupRow)]);
}

const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("put" as const), row }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("delete" as const), row }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("group" as const), group }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("ungroup" as const), group }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("page" as const) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("exchange" as const), rows }) },
);

class Counts {
  readonly refs = new Map<string, number>();

  add(filter: string): void {
    this.refs.set(filter, (this.refs.get(filter) ?? 0) + 1);
  }

  remove(filter: string): void {
    const left = (this.refs.get(filter) ?? 0) - 1;
    if (left < 0) throw new Error(`${filter} was not counted`);
    if (left === 0) this.refs.delete(filter);
    else this.refs.set(filter, left);
  }

  timesOf(filter: string): MatchTimes {
    return { filter: { text: filter } };
  }
}

/** What the rows say. */
function expected(shard: PagedRows): { refs: Record<string, number>; subs: string[] } {
  const counts = new Counts();
  const subs: string[] = [];
  for (const client of clients) {
    for (const filter of filters) {
      for (const qos of [0, 1, 2] as const) {
        const [key, value] = subRow({ client, filter, qos });
        if (shard.rows.get(key) !== value) continue;
        const isCounted = qos > 0 && sharedTopicFilter(filter) === undefined;
        if (isCounted) counts.add(filter);
        subs.push(`${keyLevel(client)} ${filter} ${isCounted}`);
      }
    }
  }
  for (const name of filters) {
    if (shard.rows.has(groupKeys(name).claim)) counts.add(sharedTopicFilter(name) ?? "");
  }
  return { refs: Object.fromEntries(counts.refs), subs: subs.sort() };
}

test("interest is what the rows of all nodes say, each counted once", async () => {
  await fc.assert(
    fc.asyncProperty(rows, fc.array(step, { maxLength: 40 }), async (before, steps) => {
      const shard = new PagedRows();
      shard.rows = rowsOf(before);
      const counts = new Counts();
      const table = new SessionTable();
      const stateShards = [shard as unknown as MapShard];
      const parts = { isShared: true, stateShards, interest: counts } as unknown as Store;
      const quiet = (): undefined => undefined;
      const logger = { debug: quiet, info: quiet, warn: quiet, error: quiet };
      const context = { store: parts, table, counters: createSessionCounters(), logger };
      const stored = new StoredRows({ context, shared: () => undefined });
      const waits: Array<Promise<unknown>> = [stored.load()];
      for (const each of steps) {
        if (each.kind === "put") shard.write(...subRow(each.row));
        else if (each.kind === "delete") shard.write(subRow(each.row)[0], undefined);
        else if (each.kind === "group") shard.write(...groupRow(each.group));
        else if (each.kind === "ungroup") shard.write(groupRow(each.group)[0], undefined);
        else if (each.kind === "exchange") waits.push(shard.exchange(rowsOf(each.rows)));
        else {
          shard.handOut();
          for (let turn = 0; turn < 4; turn++) await undefined;
        }
      }
      await shard.handOutUntil(Promise.all(waits));
      const subs = [...table.filtersOf(shard.number)].map(({ level, filter }) => {
        return `${level} ${filter} ${table.isCounted(level, filter)}`;
      });
      const here = { refs: Object.fromEntries(counts.refs), subs: subs.sort() };
      expect(here).toEqual(expected(shard));
    }),
    { numRuns: amount(100, 500), endOnFailure: true },
  );
});
