// Ownership: whoever opens several things closes them in reverse order, once, even when opening
// stopped half way or one of them fails to close.

import { assert } from "./assert.ts";

export interface Closeable {
  close(): Promise<void>;
}

/**
 * A stack of things to close. Closing twice returns the same promise; taking something over after
 * the close has begun is a fault, since nobody would close it.
 */
export class Closer implements Closeable {
  readonly #items: Array<() => Promise<void> | void> = [];
  #closing: Promise<void> | undefined;

  /** Takes over `item`; returns it, so that opening and owning read as one line. */
  own<T extends Closeable>(item: T): T {
    this.defer(() => item.close());
    return item;
  }

  defer(close: () => Promise<void> | void): void {
    assert(this.#closing === undefined, "owned after the close began");
    this.#items.push(close);
  }

  close(): Promise<void> {
    this.#closing ??= this.#closeAll();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #closeAll(): Promise<void> {
    const failures: unknown[] = [];
    for (const close of this.#items.reverse()) {
      try {
        await close();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length === 1) throw failures[0];
    if (failures.length > 1) throw new AggregateError(failures, "several things failed to close");
  }
}
