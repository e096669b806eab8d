// The commit clock of a shard: `core/commit-time.ts` fed with the node's clocks, and its events put
// into the log.

import { assertPresent, type Clock, type Logger } from "../base/index.ts";
import { CommitTime, type CommitTimeEvent } from "./core/commit-time.ts";

export class CommitClock {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #shard: number;
  #lastUs = 0;
  #time: CommitTime | undefined;

  constructor(shard: number, clock: Clock, logger: Logger) {
    this.#shard = shard;
    this.#clock = clock;
    this.#logger = logger;
  }

  /** A time that was given before: found at start, replayed, or given by another leader. */
  learn(timeUs: number): void {
    this.#lastUs = Math.max(this.#lastUs, timeUs);
    this.#time?.advanceTo(timeUs);
  }

  /** From now on this process gives the times. */
  claim(): void {
    this.#time = new CommitTime(this.#lastUs, this.#reading());
  }

  /** The time of the next item, larger than every one before. The clocks are read. */
  next(): number {
    const time = assertPresent(this.#time, "a commit time was asked for before the claim");
    const event = time.observe(this.#reading());
    if (event !== undefined) this.#tell(event);
    return time.next();
  }

  /** The same for one more item of the entry that `next` has begun: the clocks are not read again. */
  following(): number {
    return assertPresent(this.#time, "a commit time was asked for before the claim").next();
  }

  #reading(): { wallUs: number; elapsedMs: number } {
    return { wallUs: this.#clock.wallUs(), elapsedMs: this.#clock.elapsedMs() };
  }

  #tell(event: CommitTimeEvent): void {
    const fields = { shard: this.#shard, ...event };
    if (event.kind === "behind") this.#logger.warn("store.wall_clock_behind", fields);
    else this.#logger.info("store.wall_clock_followed", fields);
  }
}
