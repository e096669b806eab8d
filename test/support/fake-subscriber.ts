// Subscribers of the fake store: they look for the next match with every step.

import type {
  DeliverableTtv,
  ShardNumber,
  Subscriber,
  SubscriberFilter,
  SubscriberOptions,
} from "../../src/store/index.ts";
import { matches, parseTopicFilter, splitTopic } from "../../src/topic/index.ts";
import type { FakeStore } from "./fake-store.ts";

export type Row = DeliverableTtv;

export class FakeSubscriber<T> implements Subscriber<T> {
  readonly #store: FakeStore;
  readonly #options: SubscriberOptions<T>;
  readonly #filters = new Map<string, SubscriberFilter<T>>();
  readonly #positions: Map<ShardNumber, number>;
  readonly #atTail = new Set<ShardNumber>();
  readonly #leave: () => void;
  #blocked = false;
  #closed = false;
  #inOffer = false;
  #turn = 0;

  constructor(store: FakeStore, options: SubscriberOptions<T>, leave: () => void) {
    this.#store = store;
    this.#options = options;
    this.#leave = leave;
    this.#positions = new Map(options.positions);
    for (const filter of options.filters) this.#filters.set(filter.filter, filter);
  }

  get atTail(): boolean {
    return this.#store.logShards.every((shard) => this.#next(shard) === undefined);
  }

  position(shard: ShardNumber): number {
    return this.#positions.get(shard) ?? 0;
  }

  positions(): Map<ShardNumber, number> {
    return new Map(this.#positions);
  }

  wake(): void {
    this.#refuseReentry("wake");
    this.#blocked = false;
    if (this.#store.options.wake === "soon") {
      this.#store.clock.soon(() => this.#store.run(() => this.pump()));
    } else {
      this.pump();
    }
  }

  setFilter(filter: SubscriberFilter<T>): void {
    this.#refuseReentry("setFilter");
    this.#filters.set(filter.filter, filter);
    this.#store.clock.soon(() => this.#store.run(() => this.pump()));
  }

  removeFilter(filter: string): void {
    this.#refuseReentry("removeFilter");
    this.#filters.delete(filter);
  }

  close(): void {
    this.#closed = true;
    this.#leave();
  }

  dropped(shard: ShardNumber, untilUs: number): void {
    const from = this.position(shard);
    const count = this.#store.data.logs
      .get(shard)!
      .filter(
        (row) => row.timeUs > from && row.timeUs <= untilUs && this.#matching(row).length > 0,
      );
    if (count.length === 0) return;
    this.#options.port.missed({
      shard,
      fromUs: from + 1,
      toUs: untilUs,
      count: count.length,
      estimated: false,
      reason: "expired",
    });
  }

  /** One message of each shard in turn, until none is left or there is no room. */
  pump(): void {
    let idle = 0;
    const shards = this.#store.logShards;
    while (!this.#closed && !this.#blocked && idle < shards.length) {
      const shard = shards[this.#turn++ % shards.length]!;
      idle = this.#offerNext(shard) ? 0 : idle + 1;
    }
  }

  #offerNext(shard: ShardNumber): boolean {
    const next = this.#next(shard);
    if (next === undefined) {
      const tail = this.#store.data.lastUs.get(shard) ?? 0;
      if (tail > this.position(shard)) {
        this.#positions.set(shard, tail);
        this.#options.port.moved(shard, tail);
      }
      if (!this.#atTail.has(shard)) {
        this.#atTail.add(shard);
        this.#options.port.reachedTail?.(shard);
      }
      return false;
    }
    this.#inOffer = true;
    const taken = this.#options.port.offer(next.row, next.contexts);
    this.#inOffer = false;
    if (taken) {
      this.#positions.set(shard, next.row.timeUs);
    } else {
      this.#blocked = true;
      this.#atTail.delete(shard);
    }
    return taken;
  }

  #next(shard: ShardNumber): { row: Row; contexts: T[] } | undefined {
    const from = this.position(shard);
    for (const row of this.#store.data.logs.get(shard)!) {
      if (row.timeUs <= from) continue;
      const contexts = this.#matching(row);
      if (contexts.length > 0) return { row, contexts };
    }
    return undefined;
  }

  #matching(row: Row): T[] {
    const shard = row.ref.shard;
    return [...this.#filters.values()]
      .filter((filter) => row.timeUs > (filter.start.get(shard) ?? 0))
      .filter((filter) => topicMatches(filter.filter, row.topic))
      .map((filter) => filter.context);
  }

  #refuseReentry(what: string): void {
    if (this.#inOffer) throw new Error(`${what} was called from within an offer`);
  }
}

export function topicMatches(filter: string, topic: string): boolean {
  return matches(parseTopicFilter(filter), splitTopic(topic));
}
