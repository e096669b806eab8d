// What the filters of one client may come to, by number and bytes: each is kept for as long as its
// session lives. For one SUBSCRIBE: made from what there is, asked for each new filter.

import type { SessionSettings } from "./settings.ts";

export type FilterLimits = { readonly countMax: number; readonly bytesMax: number };

export function filterLimits(
  settings: Pick<SessionSettings, "subscriptionsMax" | "subscriptionBytesMax">,
): FilterLimits {
  return { countMax: settings.subscriptionsMax, bytesMax: settings.subscriptionBytesMax };
}

export class FilterBudget {
  readonly #limits: FilterLimits;
  #count = 0;
  #bytes = 0;

  constructor(limits: FilterLimits, filters: Iterable<string>) {
    this.#limits = limits;
    for (const filter of filters) {
      this.#count++;
      this.#bytes += Buffer.byteLength(filter);
    }
  }

  /** Counts a new filter; false when it is one too many. */
  take(filter: string): boolean {
    const bytes = Buffer.byteLength(filter);
    const { countMax, bytesMax } = this.#limits;
    if (this.#count >= countMax || this.#bytes + bytes > bytesMax) return false;
    this.#count++;
    this.#bytes += bytes;
    return true;
  }
}
