// Overload, by how late the event loop is and how much memory is used. Level 1: no new connections.
// Level 2: QoS 0 messages are dropped too. What is acked is never touched: it slows down by itself.
//
// A level is reached when two looks in a row say so, and left when the signs have been below half of
// the bound for a second: one long step is no overload, and the edge does not flutter.

import type { Cancel, Clock } from "../../base/index.ts";

export type OverloadSettings = {
  /** Lateness of the event loop that counts as level 1; twice as much is level 2. */
  readonly lagMsMax: number;
  /** Memory of the process that counts as level 1; a tenth more is level 2. Infinity: any. */
  readonly memoryBytesMax: number;
};

export type OverloadLevel = 0 | 1 | 2;

const lookMs = 250;
const looksToEnter = 2;
const looksToLeave = 4;

export class Overload {
  readonly #settings: OverloadSettings;
  readonly #clock: Clock;
  readonly #memoryBytes: () => number;
  readonly #changed: (level: OverloadLevel, lagMs: number) => void;
  #level: OverloadLevel = 0;
  #seen: OverloadLevel = 0;
  #looks = 0;
  #cancel: Cancel | undefined;

  constructor(
    settings: OverloadSettings,
    clock: Clock,
    memoryBytes: () => number,
    changed: (level: OverloadLevel, lagMs: number) => void,
  ) {
    this.#settings = settings;
    this.#clock = clock;
    this.#memoryBytes = memoryBytes;
    this.#changed = changed;
  }

  get level(): OverloadLevel {
    return this.#level;
  }

  start(): void {
    const dueMs = this.#clock.elapsedMs() + lookMs;
    this.#cancel = this.#clock.schedule(lookMs, () => {
      this.#look(this.#clock.elapsedMs() - dueMs);
      this.start();
    });
  }

  stop(): void {
    this.#cancel?.();
  }

  #look(lagMs: number): void {
    // A look at the process is a read of a file, four times a second: not where nothing depends on it.
    const isBounded = this.#settings.memoryBytesMax !== Number.POSITIVE_INFINITY;
    const memory = isBounded ? this.#memoryBytes() : 0;
    const above = this.#levelOf(lagMs, memory);
    const below = this.#levelOf(2 * lagMs, memory * 1.1);
    let seen = this.#level;
    if (above > seen) seen = above;
    else if (below < seen) seen = below;
    this.#looks = seen === this.#seen ? this.#looks + 1 : 1;
    this.#seen = seen;
    if (seen === this.#level) return;
    if (this.#looks < (seen > this.#level ? looksToEnter : looksToLeave)) return;
    this.#level = seen;
    this.#changed(seen, lagMs);
  }

  #levelOf(lagMs: number, memoryBytes: number): OverloadLevel {
    const { lagMsMax, memoryBytesMax } = this.#settings;
    if (lagMs > 2 * lagMsMax || memoryBytes > 1.1 * memoryBytesMax) return 2;
    return lagMs > lagMsMax || memoryBytes > memoryBytesMax ? 1 : 0;
  }
}
