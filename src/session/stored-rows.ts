// What the stored subscriptions say, followed as their rows are applied here, whichever node wrote
// them: the interest that messages are kept for, and the filters of each session.
//
// Keeps: a filter of a session counts once, however often its row comes, and for as long as the row is
// there. What is on its way to the store is counted by who writes it, and a shared group by itself; one
// that another node deals for is counted by its claim.

import { followRows, type MapShard, unescapeLevel } from "../store/index.ts";
import type { SessionContext } from "./context.ts";
import { decodeGroup, decodeSubscription, type SubscriptionRecord } from "./core/records.ts";
import { sharedTopicFilter } from "./groups/member.ts";
import type { SessionTable } from "./inspect/table.ts";
import {
  clientLevelOf,
  filterLevelOf,
  groupClaimSuffix,
  groupPrefix,
  isHashedLevel,
  keyLevel,
  subscriptionPrefix,
} from "./keys.ts";

export type StoredRowsParts = {
  readonly context: Pick<SessionContext, "store" | "table" | "counters" | "logger">;
  /** A shared subscription above QoS 0, met before the store serves; `level` is its client's. */
  readonly shared: (level: string, record: SubscriptionRecord) => void;
};

export class StoredRows {
  readonly #parts: StoredRowsParts;
  #isLoading = true;

  constructor(parts: StoredRowsParts) {
    this.#parts = parts;
  }

  /** Resolves when everything that is stored has been met. */
  async load(): Promise<void> {
    const { stateShards, isShared } = this.#parts.context.store;
    await Promise.all(stateShards.map((shard) => this.#follow(shard)));
    if (isShared) await Promise.all(stateShards.map((shard) => this.#followGroups(shard)));
    this.#isLoading = false;
  }

  get #table(): SessionTable {
    return this.#parts.context.table;
  }

  async #follow(shard: MapShard): Promise<void> {
    await followRows(shard, subscriptionPrefix, {
      put: (key, value) => this.#put(shard, key, value),
      gone: (key) => this.#gone(key),
      exchanged: (keys) => {
        for (const { level, filter } of this.#table.filtersOf(shard.number)) {
          const key = `${subscriptionPrefix}${level}/${keyLevel(filter)}`;
          if (!keys.has(key)) this.#drop(level, filter);
        }
      },
    });
  }

  #put(shard: MapShard, key: string, value: Buffer): void {
    const { context, shared } = this.#parts;
    const record = this.#readable(key, () => decodeSubscription(value));
    if (record === undefined) return;
    const level = clientLevelOf(key);
    const { filter, qos } = record.subscription;
    const isCounted = qos > 0 && sharedTopicFilter(filter) === undefined;
    if (qos > 0 && !isCounted && this.#isLoading) shared(level, record);
    const { interest } = context.store;
    const wasCounted = this.#table.isCounted(level, filter);
    if (wasCounted === isCounted) return;
    if (isCounted) interest.add(filter, record.start);
    else if (wasCounted === true) interest.remove(filter);
    const times = isCounted ? interest.timesOf(filter) : undefined;
    this.#table.setFilter(shard.number, level, filter, times);
  }

  #gone(key: string): void {
    const level = clientLevelOf(key);
    const filterLevel = filterLevelOf(key);
    if (!isHashedLevel(filterLevel)) return this.#drop(level, unescapeLevel(filterLevel));
    for (const filter of this.#table.filtersAt(level)) {
      if (keyLevel(filter) === filterLevel) return this.#drop(level, filter);
    }
  }

  #drop(level: string, filter: string): void {
    const wasCounted = this.#table.isCounted(level, filter);
    this.#table.deleteFilter(level, filter);
    if (wasCounted === true) this.#parts.context.store.interest.remove(filter);
  }

  async #followGroups(shard: MapShard): Promise<void> {
    const { interest } = this.#parts.context.store;
    /** By the keys of their claims. */
    const filters = new Map<string, string>();
    const drop = (key: string): void => {
      const filter = filters.get(key);
      if (filter === undefined) return;
      filters.delete(key);
      interest.remove(filter);
    };
    await followRows(shard, groupPrefix, {
      put: (key, value) => {
        if (!key.endsWith(groupClaimSuffix) || filters.has(key)) return;
        const name = this.#readable(key, () => decodeGroup(value));
        const filter = name === undefined ? undefined : sharedTopicFilter(name);
        if (filter === undefined) return;
        filters.set(key, filter);
        interest.add(filter, new Map());
      },
      gone: drop,
      exchanged: (keys) => {
        for (const key of [...filters.keys()]) if (!keys.has(key)) drop(key);
      },
    });
  }

  /** The broker starts all the same; the session tells its client when it connects. */
  #readable<T>(key: string, read: () => T): T | undefined {
    try {
      return read();
    } catch (error) {
      this.#parts.context.counters.recordsCorrupt++;
      this.#parts.context.logger.error("session.record_corrupt", { key, error });
      return undefined;
    }
  }
}
