// Reads of a group in rounds: one at a time, and the next serves all that came while it was under way.
//
// Keeps: whoever joins is answered by a read that began after that. A question to another node may be
// lost with its leader: it is asked again while the round lasts.

import { type Cancel, type Clock, isCodedError, toError } from "../base/index.ts";

export type ReadRoundsParts = {
  readonly clock: Clock;
  /** One read index; rejects, or never says anything. */
  readonly read: () => Promise<unknown>;
  /** What those hear who waited in vain, where reads did not say why. */
  readonly late: () => Error;
  readonly againMs?: number;
  readonly waitMs?: number;
};

export class ReadRounds {
  readonly #parts: ReadRoundsParts;
  #underWay: Promise<unknown> = Promise.resolve();
  #next: Promise<void> | undefined;

  constructor(parts: ReadRoundsParts) {
    this.#parts = parts;
  }

  join(): Promise<void> {
    this.#next ??= this.#underWay.then(() => {
      this.#next = undefined;
      const round = this.#round();
      this.#underWay = round.catch(() => undefined);
      return round;
    });
    return this.#next;
  }

  #round(): Promise<void> {
    const { clock, read, late, againMs = 250, waitMs = 5_000 } = this.#parts;
    const untilMs = clock.elapsedMs() + waitMs;
    return new Promise((resolve, reject) => {
      let cancel: Cancel | undefined;
      let failure: Error | undefined;
      const failed = (error: unknown): void => {
        failure = toError(error);
        // Nothing is read here any more.
        if (!isCodedError(error) || error.kind !== "closed") return;
        cancel?.();
        reject(error);
      };
      const ask = (): void => {
        if (clock.elapsedMs() >= untilMs) return reject(failure ?? late());
        read().then(() => {
          cancel?.();
          resolve();
        }, failed);
        cancel = clock.schedule(againMs, ask);
      };
      ask();
    });
  }
}
