// `backlogMax`: which messages that waited for a client are kept when it comes back. One pass over
// the backlog remembers the times of the newest; what lies before them is counted and passed over.
//
// The pass reads what the client would get and sends nothing. It costs a read of the whole backlog,
// once, and eight bytes for each message that may be kept.

import type {
  DeliverableTtv,
  Positions,
  Subscriber,
  SubscriberFilter,
  SubscriberPort,
} from "../store/index.ts";
import type { Subscription } from "./api.ts";
import type { SessionContext } from "./context.ts";
import { chooseDelivery, isExpired } from "./core/choose.ts";

export type Backlog = {
  readonly clientId: string;
  readonly filters: readonly SubscriberFilter<Subscription>[];
  readonly positions: Positions;
};

/** `positions` lie before the first message that is kept. */
export type Trimmed = { readonly positions: Positions; readonly dropped: number };

export class BacklogTrim implements SubscriberPort<Subscription> {
  readonly #context: SessionContext;
  readonly #backlog: Backlog;
  readonly #done: (trimmed: Trimmed) => void;
  readonly #subscriber: Subscriber<Subscription>;
  readonly #newest = new Map<number, NewestTimes>();
  readonly #left: Set<number>;
  #isOver = false;

  /** `done` is called once, unless it is closed before. */
  constructor(context: SessionContext, backlog: Backlog, done: (trimmed: Trimmed) => void) {
    this.#context = context;
    this.#backlog = backlog;
    this.#done = done;
    const { store } = context;
    this.#left = new Set(store.logShards);
    const { filters, positions } = backlog;
    this.#subscriber = store.subscribe({ filters, positions, port: this });
  }

  offer(ttv: DeliverableTtv, matches: readonly Subscription[]): boolean {
    const { clock, settings } = this.#context;
    const choice = chooseDelivery(ttv, matches, this.#backlog.clientId);
    if (choice === undefined || !choice.owed || isExpired(ttv, clock.wallUs())) return true;
    const { shard } = ttv.ref;
    let newest = this.#newest.get(shard);
    if (newest === undefined) {
      newest = new NewestTimes(settings.backlogMax);
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
    this.#left.delete(shard);
    // Shards may have gone meanwhile, with their database.
    const { logShards } = this.#context.store;
    if (this.#isOver || logShards.some((other) => this.#left.has(other))) return;
    this.#isOver = true;
    const trimmed = this.#cut();
    const { counters, logger, clock } = this.#context;
    if (trimmed.dropped > 0) {
      counters.backlogDropped += trimmed.dropped;
      const { clientId } = this.#backlog;
      logger.warn("session.backlog_dropped", { clientId, count: trimmed.dropped });
    }
    // Within a call of the reader, which must not be closed there.
    clock.soon(() => {
      this.close();
      this.#done(trimmed);
    });
  }

  close(): void {
    this.#subscriber.close();
  }

  #cut(): Trimmed {
    const { backlogMax } = this.#context.settings;
    const times = [...this.#newest.values()].flatMap((newest) => [...newest.times()]);
    times.sort((a, b) => b - a);
    const cutUs = times.length <= backlogMax ? 0 : (times[backlogMax - 1] as number);
    const positions = new Map(this.#backlog.positions);
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
