// A subscriber with a window that keeps what it got, for rules about a store.

import type {
  DeliverableTtv,
  MissedReport,
  Positions,
  Store,
  Subscriber,
  SubscriberPort,
  TtvRef,
} from "../store/index.ts";

export type ReceivedTtv = {
  readonly value: string;
  readonly topic: string;
  readonly timeUs: number;
  /** Filters that matched, sorted. */
  readonly filters: readonly string[];
  readonly ref: TtvRef;
};

export type StoreReaderOptions = {
  readonly positions?: Positions;
  /** TTVs that it takes before `giveRoom`. Default: all. */
  readonly room?: number;
};

export class StoreReader implements SubscriberPort<string> {
  readonly received: ReceivedTtv[] = [];
  readonly missedReports: MissedReport[] = [];
  readonly subscriber: Subscriber<string>;
  #room: number;
  #waiting: Array<{ readonly isDone: () => boolean; readonly resolve: () => void }> = [];

  constructor(store: Store, filters: readonly string[], options: StoreReaderOptions = {}) {
    this.#room = options.room ?? Number.POSITIVE_INFINITY;
    this.subscriber = store.subscribe<string>({
      filters: filters.map((filter) => ({
        ...{ filter, start: new Map<number, number>(), durable: true, context: filter },
      })),
      positions: options.positions ?? new Map(),
      port: this,
    });
  }

  get values(): string[] {
    return this.received.map(({ value }) => value);
  }

  offer(ttv: DeliverableTtv, matches: readonly string[]): boolean {
    if (this.#room <= 0) return false;
    this.#room--;
    const { topic, timeUs, ref } = ttv;
    const filters = [...matches].sort();
    this.received.push({ value: ttv.frame.toString(), topic, timeUs, filters, ref });
    this.#look();
    return true;
  }

  moved(): void {
    this.#look();
  }

  missed(report: MissedReport): void {
    this.missedReports.push(report);
    this.#look();
  }

  reachedTail(): void {
    this.#look();
  }

  giveRoom(count: number): void {
    this.#room += count;
    this.subscriber.wake();
  }

  /** Resolves when it has got so many. */
  has(count: number): Promise<void> {
    return this.#until(() => this.received.length >= count);
  }

  /** Resolves when nothing that it wants is left. */
  atTail(): Promise<void> {
    return this.#until(() => this.subscriber.atTail);
  }

  #until(isDone: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push({ isDone, resolve });
      this.#look();
    });
  }

  #look(): void {
    // A subscriber is at its tail only when the call that tells of the last TTV is over.
    void Promise.resolve().then(() => {
      const done = this.#waiting.filter(({ isDone }) => isDone());
      this.#waiting = this.#waiting.filter((each) => !done.includes(each));
      for (const { resolve } of done) resolve();
    });
  }
}
