// When one client is read. Its transport is paused while CONNECT waits for its answer, while its
// publishes or subscriptions are too many, while it sends faster than its rates, and while it does not
// read what it asked for. The keep alive stands still while the broker is the cause.

import type { ByteConnection, Clock } from "../base/index.ts";
import type { ServerConnection } from "../mqtt/index.ts";
import type { ConnectionTimers } from "./connection-timers.ts";
import type { BrokerCounters } from "./counters.ts";
import type { Traffic } from "./limits/rate.ts";
import type { ConnectionOutput } from "./write-path.ts";

export type ReadingParts = {
  readonly core: ServerConnection;
  readonly transport: ByteConnection;
  readonly output: ConnectionOutput;
  readonly timers: ConnectionTimers;
  readonly traffic: Traffic;
  readonly clock: Clock;
  readonly counters: BrokerCounters;
};

export interface ReadingOwner {
  /** What the client has sent is more than may be under way. */
  readonly isBlocked: boolean;
  hasEnded(): boolean;
}

export class Reading {
  readonly #parts: ReadingParts;
  readonly #owner: ReadingOwner;
  #isTooFast = false;
  #isPaused = false;

  constructor(parts: ReadingParts, owner: ReadingOwner) {
    this.#parts = parts;
    this.#owner = owner;
  }

  get isPaused(): boolean {
    return this.#isPaused;
  }

  /** What was read counts for the rates of the client and its address. */
  charge(messages: number, sizeBytes: number): void {
    const { traffic, clock, counters, timers } = this.#parts;
    if (!traffic.isLimited) return;
    const waitMs = traffic.charge(messages, sizeBytes, clock.elapsedMs());
    if (waitMs === 0 || this.#isTooFast || this.#owner.hasEnded()) return;
    this.#isTooFast = true;
    counters.ratePauses++;
    timers.after(waitMs, () => {
      this.#isTooFast = false;
      this.update();
    });
  }

  /** One of the reasons to be read or not may have changed. */
  update(): void {
    if (this.#owner.hasEnded()) return;
    const { core, transport, output, timers, clock, counters } = this.#parts;
    const isBehind = this.#isTooFast || this.#owner.isBlocked;
    const nowMs = clock.elapsedMs();
    if (isBehind) core.pauseKeepAlive(nowMs);
    else core.resumeKeepAlive(nowMs);
    const isPaused = isBehind || !core.readingWanted || output.isOver();
    if (isPaused === this.#isPaused) return;
    this.#isPaused = isPaused;
    if (isPaused) {
      if (isBehind) counters.readPauses++;
      transport.pause();
      return;
    }
    transport.resume();
    timers.watch();
  }

  /** The connection has ended. A transport that is not read does not learn that its peer has closed. */
  end(): void {
    if (this.#isPaused) this.#parts.transport.resume();
    this.#isPaused = false;
  }
}
