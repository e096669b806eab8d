// The timers of one connection: the next deadline of its protocol core, and waits that end with it.
//
// Invariant: a deadline is judged behind the reading of what has arrived. When a turn of the event loop
// took long, timers come first and bytes second; a peer must not pay for that.

import type { Cancel, Clock } from "../base/index.ts";
import type { ServerConnection } from "../mqtt/index.ts";

export class ConnectionTimers {
  readonly #clock: Clock;
  readonly #core: ServerConnection;
  readonly #waits = new Set<Cancel>();
  #isStopped = false;
  #alarm: { readonly atMs: number; readonly cancel: Cancel } | undefined;

  constructor(clock: Clock, core: ServerConnection) {
    this.#clock = clock;
    this.#core = core;
  }

  /** Sees to it that the core is told when its next deadline passes. Deadlines mostly move on. */
  watch(): void {
    const deadlineMs = this.#core.deadlineMs;
    if (deadlineMs === undefined) return;
    if (this.#alarm !== undefined && this.#alarm.atMs <= deadlineMs) return;
    this.#alarm?.cancel();
    const judge = (): void => {
      if (this.#alarm !== alarm) return;
      this.#alarm = undefined;
      this.#core.tick(this.#clock.elapsedMs());
      this.watch();
    };
    const delayMs = deadlineMs - this.#clock.elapsedMs();
    const cancel = this.#clock.schedule(delayMs, () => this.#clock.soon(judge));
    const alarm = { atMs: deadlineMs, cancel };
    this.#alarm = alarm;
  }

  /** Nothing happens once they have been stopped: what is late must not act on what has ended. */
  after(waitMs: number, task: () => void): void {
    if (this.#isStopped) return;
    const cancel = this.#clock.schedule(waitMs, () => {
      this.#waits.delete(cancel);
      task();
    });
    this.#waits.add(cancel);
  }

  stop(): void {
    this.#isStopped = true;
    this.#alarm?.cancel();
    this.#alarm = undefined;
    for (const cancel of this.#waits) cancel();
    this.#waits.clear();
  }
}
