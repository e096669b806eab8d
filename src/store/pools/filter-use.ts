// One subscriber's use of a filter: the shared entry, where its interest begins, and what the
// subscriber wants back with each match.

import type { DeliverableTtv, Positions, ShardNumber, SubscriberFilter } from "../api.ts";
import type { FilterEntry, InterestTable } from "./interest.ts";

export type UseEntry = FilterEntry<FilterUse>;
export type UseTable = InterestTable<FilterUse>;

/** Who reads with a filter, as the realtime pool sees it. */
export interface UseOwner {
  /** Notes a match of the TTV being dispatched; true for the first one of this owner. */
  collect(use: FilterUse, shard: ShardNumber, timeUs: number): boolean;
  /** All matches are noted: takes the TTV if the shard's reader is at the tail. */
  offerLive(ordinal: number, ttv: DeliverableTtv): void;
}

export class FilterUse {
  readonly entry: UseEntry;
  readonly subscriber: UseOwner;
  readonly context: unknown;
  /** The matches of a TTV that only this use matches. */
  readonly alone: readonly unknown[];
  readonly #table: UseTable;
  readonly #start: Positions;

  constructor(table: UseTable, subscriber: UseOwner, filter: SubscriberFilter) {
    this.subscriber = subscriber;
    this.context = filter.context;
    this.alone = [filter.context];
    this.#table = table;
    this.#start = filter.start;
    this.entry = table.addUse(filter.filter, filter.start, this);
  }

  /** When something matched last. */
  lastMatchUs(ordinal: number): number {
    return this.#table.lastMatchOf(this.entry, ordinal);
  }

  /** Exclusive lower bound of what this use wants from a shard. */
  startUs(shard: ShardNumber): number {
    return this.#start.get(shard) ?? 0;
  }
}
