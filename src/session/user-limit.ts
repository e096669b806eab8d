// How many durable sessions a user may have. Those that are being made count as well, since many
// clients of one user may come at once. Who comes back to its session is never refused.

import { sessionErrors } from "./errors.ts";
import type { SessionTable } from "./inspect/table.ts";
import type { SessionCounters } from "./settings.ts";

export class UserLimit {
  readonly #max: number;
  readonly #table: SessionTable;
  readonly #counters: SessionCounters;
  readonly #making = new Map<string | undefined, number>();

  constructor(max: number, table: SessionTable, counters: SessionCounters) {
    this.#max = max;
    this.#table = table;
    this.#counters = counters;
  }

  /** `make` has entered the session into the table when it resolves. @throws SESSION_USER_FULL. */
  async within<T>(user: string | undefined, make: () => Promise<T>): Promise<T> {
    const making = this.#making.get(user) ?? 0;
    if (this.#table.countOf(user) + making >= this.#max) {
      this.#counters.sessionsOfUserFull++;
      throw sessionErrors.userFull({ user: JSON.stringify(user ?? ""), max: this.#max });
    }
    this.#making.set(user, making + 1);
    try {
      return await make();
    } finally {
      const left = (this.#making.get(user) ?? 1) - 1;
      if (left === 0) this.#making.delete(user);
      else this.#making.set(user, left);
    }
  }
}
