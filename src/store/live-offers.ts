// What a shard's readers at the tail are offered: TTVs that were applied, with the filters they
// matched, kept until those who appended them have heard.
//
// Readers hear of each TTV before of the next one.

import type { DeliverableTtv, ShardNumber } from "./api.ts";
import { sourceToDeliverable } from "./deliverable.ts";
import type { UseEntry, UseOwner, UseTable } from "./pools/filter-use.ts";
import type { TtvSource } from "./types.ts";

const none: readonly never[] = [];

type Offer = { readonly ttv: DeliverableTtv; readonly entries: readonly UseEntry[] };

export class LiveOffers {
  readonly #interest: UseTable;
  readonly #ordinal: number;
  readonly #number: () => ShardNumber;
  #waiting: Offer[] = [];
  /** Of the TTV that is being added. */
  #matched: UseEntry[] = [];

  /** Everything up to here has been offered. */
  dispatchedUs = 0;

  constructor(interest: UseTable, ordinal: number, number: () => ShardNumber) {
    this.#interest = interest;
    this.#ordinal = ordinal;
    this.#number = number;
  }

  /** Counts what the TTV matches, and keeps it where somebody reads that. */
  add(ttv: TtvSource, generation: number, stream: number): void {
    const { timeUs } = ttv;
    const matched = this.#matched;
    this.#interest.match(this.#ordinal, ttv, timeUs, matched);
    if (matched.length === 0) return;
    if (!matched.some((entry) => (entry.uses?.size ?? 0) > 0)) {
      matched.length = 0;
      return;
    }
    const ref = { shard: this.#number(), generation, stream, timeUs };
    this.#waiting.push({ ttv: sourceToDeliverable(ttv, ref), entries: matched });
    this.#matched = [];
  }

  /** Offers all that was added; nothing up to `timeUs` is still to come. */
  dispatch(timeUs: number): void {
    if (this.#waiting.length > 0) this.#offerAll();
    this.dispatchedUs = timeUs;
  }

  #offerAll(): void {
    const shard = this.#number();
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { ttv, entries } of waiting) {
      const receivers: UseOwner[] = [];
      for (const entry of entries) {
        for (const use of entry.uses ?? none) {
          if (use.subscriber.collect(use, shard, ttv.timeUs)) receivers.push(use.subscriber);
        }
      }
      for (const receiver of receivers) receiver.offerLive(this.#ordinal, ttv);
      this.dispatchedUs = ttv.timeUs;
    }
  }
}
