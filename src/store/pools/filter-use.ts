// One subscriber's use of a filter: the shared entry, where its interest begins, and what the
// subscriber wants back with each match.

import type { Positions, ShardNumber, SubscriberFilter } from "../api.ts";
import type { FilterEntry, InterestTable } from "./interest.ts";
import type { SubscriberState } from "./subscriber.ts";

export type UseEntry = FilterEntry<FilterUse>;
export type UseTable = InterestTable<FilterUse>;

export class FilterUse {
  readonly entry: UseEntry;
  readonly subscriber: SubscriberState;
  readonly context: unknown;
  readonly #start: Positions;

  constructor(table: UseTable, subscriber: SubscriberState, filter: SubscriberFilter) {
    this.subscriber = subscriber;
    this.context = filter.context;
    this.#start = filter.start;
    this.entry = table.addUse(filter.filter, filter.start, this);
  }

  /** Exclusive lower bound of what this use wants from a shard. */
  startUs(shard: ShardNumber): number {
    return this.#start.get(shard) ?? 0;
  }
}
