// Commit times of shards: `core/commit-time.ts` fed with the node's clocks, and its events put into the
// log. All shards of a store share one `StoreTime`, so that their times compare.

import { assert, type Clock, type Logger } from "../base/index.ts";
import { CommitTime, type CommitTimeEvent } from "./core/commit-time.ts";

export class StoreTime {
  readonly #clock: Pick<Clock, "wallUs" | "elapsedMs">;
  readonly #logger: Logger;
  /** From the first claim on. */
  #time: CommitTime | undefined;

  constructor(clock: Pick<Clock, "wallUs" | "elapsedMs">, logger: Logger) {
    this.#clock = clock;
    this.#logger = logger;
  }

  /** As it is now: the clocks are read. */
  read(): CommitTime {
    const reading = { wallUs: this.#clock.wallUs(), elapsedMs: this.#clock.elapsedMs() };
    this.#time ??= new CommitTime(reading);
    const event = this.#time.observe(reading);
    if (event !== undefined) this.#tell(event);
    return this.#time;
  }

  #tell(event: CommitTimeEvent): void {
    if (event.kind === "behind") this.#logger.warn("store.wall_clock_behind", event);
    else this.#logger.info("store.wall_clock_followed", event);
  }
}

/** Those of one shard. */
export class CommitClock {
  readonly #store: StoreTime;
  #lastUs = 0;
  /** While this process gives the times. */
  #time: CommitTime | undefined;

  constructor(store: StoreTime) {
    this.#store = store;
  }

  /** A time that was given before: found at start, replayed, or given by another leader. */
  learn(timeUs: number): void {
    this.#lastUs = Math.max(this.#lastUs, timeUs);
  }

  /** From now on this process gives the times. */
  claim(): void {
    this.#time = this.#store.read();
    this.#time.join(this.#lastUs);
  }

  /** The time of the next item, larger than every one before. The clocks are read. */
  next(): number {
    assert(this.#time !== undefined, "a commit time was asked for before the claim");
    return this.#take(this.#store.read());
  }

  /** The same for one more item of the entry that `next` has begun: the clocks are not read again. */
  following(): number {
    assert(this.#time !== undefined, "a commit time was asked for before the claim");
    return this.#take(this.#time);
  }

  /** The item that was given its time last is several, up to this one. */
  through(timeUs: number): void {
    this.learn(timeUs);
    this.#time?.gave(timeUs);
  }

  #take(time: CommitTime): number {
    this.#lastUs = time.after(this.#lastUs);
    return this.#lastUs;
  }
}
