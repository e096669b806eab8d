// Who is told of the rows of a map shard as they are applied, by prefixes of their keys.
//
// Keeps: a watcher hears of each applied write once, in the order of the log, whoever proposed it;
// where the rows are exchanged for those of another replica it is told so, and reads behind a barrier
// wait until it has gone through them. What was applied before it came it has to list.

import type { Cancel } from "../../base/index.ts";
import type { MapWatcher } from "../api.ts";

type Watch = { readonly prefix: string; readonly watcher: MapWatcher };

export class MapWatches {
  readonly #callSafely: (call: () => void) => void;
  /** The exchange was not gone through, and never will be. */
  readonly #onLost: (error: unknown) => void;
  #watches: readonly Watch[] = [];
  #settling: Promise<void> | undefined;

  constructor(callSafely: (call: () => void) => void, onLost: (error: unknown) => void) {
    this.#callSafely = callSafely;
    this.#onLost = onLost;
  }

  add(prefix: string, watcher: MapWatcher): Cancel {
    const watch = { prefix, watcher };
    this.#watches = [...this.#watches, watch];
    return () => {
      this.#watches = this.#watches.filter((each) => each !== watch);
    };
  }

  applied(key: string, value: Buffer | undefined): void {
    for (const { prefix, watcher } of this.#watches) {
      if (key.startsWith(prefix)) this.#callSafely(() => watcher.applied(key, value));
    }
  }

  /** All rows are others now. */
  replaced(): void {
    const before = this.#settling;
    const waits = this.#watches.flatMap(({ watcher }) => watcher.replaced() ?? []);
    if (waits.length === 0) return;
    const settling = Promise.all([before, ...waits])
      .then(() => undefined)
      .catch((error: unknown) => this.#onLost(error))
      .finally(() => {
        if (this.#settling === settling) this.#settling = undefined;
      });
    this.#settling = settling;
  }

  /** Resolves when watchers know the rows that are there; undefined when they do. */
  get settled(): Promise<void> | undefined {
    return this.#settling;
  }
}
