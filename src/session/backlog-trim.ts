// `backlogMax`: which messages that waited for a client are kept when it comes back. One pass over
// the backlog remembers the times of the newest; what lies before them is counted and passed over.
//
// The pass reads what the client would get and sends nothing. It costs a read of the whole backlog,
// once, and eight bytes for each message that may be kept.

import type {
  DeliverableTtv,
  Positions,
  Store,
  Subscriber,
  SubscriberFilter,
  SubscriberPort,
} from "../store/index.ts";
import type { Subscription } from "./api.ts";
import { chooseDelivery, isExpired } from "./core/choose.ts";

export type TrimOptions = {
  readonly store: Store;
  readonly clientId: string;
  readonly filters: readonly SubscriberFilter<Subscription>[];
  readonly positions: Positions;
  readonly keepMax: number;
  readonly nowUs: () => number;
  /** The pass is over. `positions` lie before the first message that is kept. */
  readonly done: (trimmed: { positions: Positions; dropped: number }) => void;
};

export class BacklogTrim implements SubscriberPort<Subscription> {
  readonly #options: TrimOptions;
  readonly #subscriber: Subscriber<Subscription>;
  readonly #newest = new Map<number, NewestTimes>();
  readonly #left: Set<number>;

  constructor(options: TrimOptions) {
    this.#options = options;
    const { store, filters, positions } = options;
    this.#left = new Set(store.logShards);
    this.#subscriber = store.subscribe({ filters, positions, port: this });
  }

  offer(ttv: DeliverableTtv, matches: readonly Subscription[]): boolean {
    const { clientId, nowUs, keepMax } = this.#options;
    const choice = chooseDelivery(ttv, matches, clientId);
    if (choice === undefined || !choice.owed || isExpired(ttv, nowUs())) return true;
    const { shard } = ttv.ref;
    let newest = this.#newest.get(shard);
    if (newest === undefined) {
      newest = new NewestTimes(keepMax);
      this.#newest.set(shard, newest);
    }
    newest.add(ttv.timeUs);
    return true;
  }

  moved(): void {
    // Only what matches counts.
  }

  missed(): void {
    // The session's own reader is told.
  }

  reachedTail(shard: number): void {
    if (!this.#left.delete(shard) || this.#left.size > 0) return;
    this.#options.done(this.#cut());
  }

  close(): void {
    this.#subscriber.close();
  }

  #cut(): { positions: Positions; dropped: number } {
    const { keepMax } = this.#options;
    const times = [...this.#newest.values()].flatMap((newest) => [...newest.times()]);
    const cutUs =
      times.length <= keepMax ? 0 : (times.sort((a, b) => b - a)[keepMax - 1] as number);
    const positions = new Map(this.#options.positions);
    let dropped = 0;
    for (const [shard, newest] of this.#newest) {
      const { count, lastUs } = newest.before(cutUs);
      if (count === 0) continue;
      dropped += count;
      positions.set(shard, Math.max(lastUs, positions.get(shard) ?? 0));
    }
    return { positions, dropped };
  }
}

/** The last times of a growing sequence, and how many came before them. */
class NewestTimes {
  readonly #max: number;
  #times: number[] = [];
  #at = 0;
  #forgotten = 0;
  #forgottenUs = 0;

  constructor(max: number) {
    this.#max = max;
  }

  add(timeUs: number): void {
    if (this.#times.length < this.#max) {
      this.#times.push(timeUs);
      return;
    }
    this.#forgotten++;
    this.#forgottenUs = this.#times[this.#at] as number;
    this.#times[this.#at] = timeUs;
    this.#at = (this.#at + 1) % this.#max;
  }

  times(): readonly number[] {
    return this.#times;
  }

  /** Those earlier than `cutUs`: how many, and the time of the last. */
  before(cutUs: number): { count: number; lastUs: number } {
    let count = this.#forgotten;
    let lastUs = this.#forgottenUs;
    for (const timeUs of this.#times) {
      if (timeUs >= cutUs) continue;
      count++;
      lastUs = Math.max(lastUs, timeUs);
    }
    return { count, lastUs };
  }
}
