// The writes of a group that are under way, in the order of its readies.
//
// Keeps: what a ready promises is let go once it and all before it are durable, even when it has
// nothing to write itself.

import type { Message } from "../core/types.ts";

export type Flight = {
  readonly number: number;
  readonly messages: readonly Message[];
  readonly sinceMs: number;
  /** Writes of it that have not ended. */
  waits: number;
};

export class Flights {
  #underWay: Flight[] = [];

  /** One that waits for a single `land`; each further write is added to its `waits`. */
  begin(number: number, messages: readonly Message[], sinceMs: number): Flight {
    const flight = { number, messages, sinceMs, waits: 1 };
    this.#underWay.push(flight);
    return flight;
  }

  /** A write ended. Returns whatever waited for it and is next in order. */
  land(flight: Flight): Flight[] {
    flight.waits--;
    const open = this.#underWay.findIndex(({ waits }) => waits > 0);
    return this.#underWay.splice(0, open < 0 ? this.#underWay.length : open);
  }

  /** Age of the oldest. */
  hangsMs(nowMs: number): number {
    const oldest = this.#underWay[0];
    return oldest === undefined ? 0 : nowMs - oldest.sinceMs;
  }
}
