// The rows of a map shard as those see them who follow them: pages are handed out when the test says so,
// and rows are exchanged for others as when a replica copies another one.

import type { MapEntry, MapWatcher } from "../../src/store/index.ts";

/** Lists a few rows at a time, each page only when it is asked for, from what lay there before. */
export class PagedRows {
  readonly number: number;
  rows = new Map<string, string>();
  readonly #waiting: Array<() => void> = [];
  readonly #watches: Array<{ readonly prefix: string; readonly watcher: MapWatcher }> = [];

  constructor(number = 1) {
    this.number = number;
  }

  watch(prefix: string, watcher: MapWatcher): () => void {
    this.#watches.push({ prefix, watcher });
    return () => undefined;
  }

  /** Read now, handed out later: what is written meanwhile is not in it. */
  async list(
    under: string,
    { afterKey = "", countMax }: { afterKey?: string; countMax: number },
  ): Promise<MapEntry[]> {
    const keys = [...this.rows.keys()].filter((key) => key.startsWith(under) && key > afterKey);
    const page = keys
      .sort()
      .slice(0, countMax)
      .map((key) => ({ key, timeUs: 1, value: Buffer.from(this.rows.get(key) ?? "", "latin1") }));
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
    return page;
  }

  write(key: string, value: string | undefined): void {
    if (value === undefined) this.rows.delete(key);
    else this.rows.set(key, value);
    const bytes = value === undefined ? undefined : Buffer.from(value, "latin1");
    for (const { prefix, watcher } of this.#watches) {
      if (key.startsWith(prefix)) watcher.applied(key, bytes);
    }
  }

  exchange(rows: Map<string, string>): Promise<unknown> {
    this.rows = new Map(rows);
    return Promise.all(this.#watches.map(({ watcher }) => watcher.replaced()));
  }

  handOut(): boolean {
    const next = this.#waiting.shift();
    next?.();
    return next !== undefined;
  }

  /** Hands out all pages until `done` has resolved. */
  async handOutUntil(done: Promise<unknown>): Promise<void> {
    let settled = false;
    const end = done.then(() => {
      settled = true;
    });
    while (!settled) {
      this.handOut();
      await new Promise((resolve) => setImmediate(resolve));
    }
    await end;
  }
}
