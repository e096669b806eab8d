// Looks at what waits for a session without taking it: a reader of its own, from the session's cursor,
// that stops when it has enough.

import type { Clock } from "../../base/index.ts";
import type {
  DeliverableTtv,
  Positions,
  Store,
  Subscriber,
  SubscriberFilter,
  SubscriberPort,
} from "../../store/index.ts";
import type { BacklogMessage, Subscription } from "../api.ts";
import { chooseDelivery, isExpired } from "../core/choose.ts";
import { keepMessage } from "../core/kept-message.ts";

export type PeekOptions = {
  readonly clientId: string;
  readonly filters: readonly SubscriberFilter<Subscription>[];
  readonly positions: Positions;
  readonly countMax: number;
};

export type Peeked = {
  readonly messages: readonly BacklogMessage[];
  /** Where to go on; undefined at the tail. */
  readonly next: Positions | undefined;
};

/** Damage or a slow disk must not hold up who looks: what was found by then is the answer. */
const peekMsMax = 10_000;

export function peekBacklog(store: Store, clock: Clock, options: PeekOptions): Promise<Peeked> {
  return new Promise((resolve) => {
    new Peek(store, clock, options, resolve).begin();
  });
}

class Peek implements SubscriberPort<Subscription> {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #options: PeekOptions;
  readonly #resolve: (peeked: Peeked) => void;
  readonly #messages: BacklogMessage[] = [];
  readonly #positions: Map<number, number>;
  readonly #left: Set<number>;
  #subscriber: Subscriber<Subscription> | undefined;
  #isOver = false;

  constructor(store: Store, clock: Clock, options: PeekOptions, resolve: (peeked: Peeked) => void) {
    this.#store = store;
    this.#clock = clock;
    this.#options = options;
    this.#resolve = resolve;
    this.#positions = new Map(options.positions);
    this.#left = new Set(store.logShards);
  }

  begin(): void {
    const { filters, positions } = this.#options;
    this.#subscriber = this.#store.subscribe({ filters, positions, port: this });
    const cancel = this.#clock.schedule(peekMsMax, () => this.#end(true));
    this.#cancel = cancel;
  }

  #cancel: () => void = () => undefined;

  offer(ttv: DeliverableTtv, matches: readonly Subscription[]): boolean {
    if (this.#messages.length >= this.#options.countMax) {
      this.#end(true);
      return false;
    }
    this.#positions.set(ttv.ref.shard, ttv.timeUs);
    const choice = chooseDelivery(ttv, matches, this.#options.clientId);
    if (choice === undefined || isExpired(ttv, this.#clock.wallUs())) return true;
    this.#messages.push({ message: keepMessage(ttv), qos: choice.qos, inFlight: false });
    return true;
  }

  moved(shard: number, positionUs: number): void {
    this.#positions.set(shard, positionUs);
  }

  missed(): void {
    // The session itself is told when it gets there.
  }

  reachedTail(shard: number): void {
    this.#left.delete(shard);
    if (!this.#store.logShards.some((other) => this.#left.has(other))) this.#end(false);
  }

  /** Called from within the reader, which is closed behind the call. */
  #end(hasMore: boolean): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancel();
    this.#clock.soon(() => {
      this.#subscriber?.close();
      const next = hasMore ? this.#positions : undefined;
      this.#resolve({ messages: this.#messages, next });
    });
  }
}
