// Whether nobody durable wants a message, where other nodes take subscriptions as well: that may be
// said only behind a barrier of the state shards that began after the message had come.
//
// Keeps: one round at a time, and the next serves all that came meanwhile, in their order; whoever has
// waited for too long without a quorum is told so.

import { type Cancel, type Clock, type CodedError, isCodedError } from "../base/index.ts";
import type { Store } from "../store/index.ts";
import { brokerErrors } from "./errors.ts";

export type UnwantedCheckParts = {
  readonly store: Pick<Store, "stateShards">;
  readonly clock: Clock;
  readonly waitMs: number;
};

type Asked = {
  readonly sinceMs: number;
  /** Interest that was acked before the question is counted here; or no quorum says so. */
  readonly then: (error: CodedError | undefined) => void;
};

/** Pause before a round that has failed is tried again. */
const retryMs = 100;

export class UnwantedCheck {
  readonly #parts: UnwantedCheckParts;
  #asked: Asked[] = [];
  #isRunning = false;
  #cancelLate: Cancel | undefined;

  constructor(parts: UnwantedCheckParts) {
    this.#parts = parts;
  }

  ask(then: Asked["then"]): void {
    const { clock, waitMs } = this.#parts;
    this.#asked.push({ sinceMs: clock.elapsedMs(), then });
    this.#cancelLate ??= clock.schedule(waitMs, () => this.#tellLate());
    if (!this.#isRunning) void this.#run();
  }

  async #run(): Promise<void> {
    const { store, clock } = this.#parts;
    this.#isRunning = true;
    while (this.#asked.length > 0) {
      const served = new Set(this.#asked);
      try {
        await Promise.all(store.stateShards.map((shard) => shard.barrier()));
      } catch (error) {
        if (isCodedError(error) && error.kind === "closed") break;
        await new Promise<void>((resolve) => clock.schedule(retryMs, resolve));
        continue;
      }
      // Who is late has left.
      const told = this.#asked.filter((each) => served.has(each));
      this.#asked = this.#asked.filter((each) => !served.has(each));
      for (const { then } of told) then(undefined);
    }
    this.#isRunning = false;
    if (this.#asked.length === 0) this.#forgetLate();
  }

  #tellLate(): void {
    const { clock, waitMs } = this.#parts;
    this.#cancelLate = undefined;
    const nowMs = clock.elapsedMs();
    const late = this.#asked.filter(({ sinceMs }) => nowMs - sinceMs >= waitMs);
    this.#asked = this.#asked.slice(late.length);
    const [next] = this.#asked;
    if (next !== undefined) {
      this.#cancelLate = clock.schedule(next.sinceMs + waitMs - nowMs, () => this.#tellLate());
    }
    for (const { then } of late) then(brokerErrors.noQuorum());
  }

  #forgetLate(): void {
    this.#cancelLate?.();
    this.#cancelLate = undefined;
  }
}
