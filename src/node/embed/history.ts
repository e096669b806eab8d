// Stored messages of the past, in order of time over all shards: one reader for each shard, held back
// while its next message is not the oldest, merged by time. Ends at what was stored when it began.
//
// Memory: one message for each shard. What retention or damage removed is left out.

import type { Clock } from "../../base/index.ts";
import type { DeliverableTtv, ShardNumber, Store, Subscriber } from "../../store/index.ts";
import { amountRule, type Rules } from "./arguments.ts";
import type { Calls } from "./calls.ts";
import { type InsideMessage, messageOf } from "./message.ts";

export type HistoryOptions = {
  /** Wall clock in microseconds, inclusive; default: the beginning. */
  readonly fromUs?: number;
  /** Exclusive; default: now. */
  readonly untilUs?: number;
  readonly countMax?: number;
};

export const historyRules: Rules<HistoryOptions> = {
  fromUs: amountRule,
  untilUs: amountRule,
  countMax: amountRule,
};

type History = AsyncGenerator<InsideMessage, void, void>;

export type HistoryParts = {
  readonly store: Store;
  readonly clock: Clock;
  /** Waits for the store, which may be closed meanwhile. */
  readonly calls: Calls;
};

export async function* readHistory(
  { store, clock, calls }: HistoryParts,
  filter: string,
  options: HistoryOptions,
): History {
  const { fromUs = 0, untilUs = Number.POSITIVE_INFINITY, countMax = Infinity } = options;
  // Times are whole numbers.
  const afterUs = Math.min(Math.ceil(fromUs) - 1, Number.MAX_SAFE_INTEGER);
  const readers = [...store.tail()].map(([shard, tailUs]) => {
    const endUs = Math.min(tailUs, Math.ceil(untilUs) - 1);
    return new ShardReader(store, clock, { shard, filter, afterUs, endUs });
  });
  try {
    for (let count = 0; count < countMax; count++) {
      const oldest = await calls.track(oldestOf(readers));
      const message = oldest?.take();
      if (message === undefined) return;
      yield message;
    }
  } finally {
    for (const reader of readers) reader.close();
  }
}

async function oldestOf(readers: readonly ShardReader[]): Promise<ShardReader | undefined> {
  let oldest: ShardReader | undefined;
  for (const reader of readers) {
    const timeUs = await reader.nextUs();
    if (timeUs === undefined) continue;
    if (oldest === undefined || timeUs < (oldest.head?.timeUs ?? 0)) oldest = reader;
  }
  return oldest;
}

type ShardRange = {
  readonly shard: ShardNumber;
  readonly filter: string;
  readonly afterUs: number;
  /** Inclusive. */
  readonly endUs: number;
};

/** The messages of one shard, one at a time. */
class ShardReader {
  head: InsideMessage | undefined;
  readonly #subscriber: Subscriber<undefined>;
  readonly #range: ShardRange;
  readonly #clock: Clock;
  #isOver = false;
  #told: (() => void) | undefined;

  constructor(store: Store, clock: Clock, range: ShardRange) {
    this.#range = range;
    this.#clock = clock;
    const { shard, filter, afterUs } = range;
    const elsewhere = [...store.tail().keys()].filter((number) => number !== shard);
    const positions = new Map(elsewhere.map((number) => [number, Number.MAX_SAFE_INTEGER]));
    positions.set(shard, Math.max(0, afterUs));
    this.#isOver = range.endUs <= afterUs;
    this.#subscriber = store.subscribe({
      filters: [{ filter, start: new Map(), durable: false, context: undefined }],
      positions,
      port: {
        offer: (ttv) => this.#offer(ttv),
        moved: (number, positionUs) => {
          if (number === shard && positionUs >= range.endUs) this.#end();
        },
        missed: () => undefined,
        reachedTail: (number) => {
          if (number === shard) this.#end();
        },
      },
    });
  }

  /** Time of the next message; undefined at the end. */
  async nextUs(): Promise<number | undefined> {
    while (this.head === undefined && !this.#isOver) {
      await new Promise<void>((resolve) => {
        this.#told = resolve;
        this.#subscriber.wake();
      });
    }
    return this.head?.timeUs;
  }

  take(): InsideMessage | undefined {
    const { head } = this;
    this.head = undefined;
    return head;
  }

  close(): void {
    this.#subscriber.close();
  }

  #offer(ttv: DeliverableTtv): boolean {
    if (ttv.ref.shard !== this.#range.shard || this.#isOver) return true;
    if (ttv.timeUs > this.#range.endUs) {
      this.#end();
      return true;
    }
    if (this.head !== undefined) return false;
    this.head = messageOf(ttv);
    this.#tell();
    return true;
  }

  // What was offered before the end was told must be taken first; it is in `head` by then.
  #end(): void {
    this.#isOver = true;
    this.#tell();
  }

  #tell(): void {
    const told = this.#told;
    this.#told = undefined;
    if (told !== undefined) this.#clock.soon(told);
  }
}
