// The keep alive of one client (3.1.2-22): silence longer than one and a half times its value ends
// the connection. Only whole packets count as a sign of life. While the broker itself does not read
// the socket, the clock of that client stands still: it cannot be heard.

const graceFactor = 1.5;

export class KeepAlive {
  #keepAliveS = 0;
  #heardMs = 0;
  #pausedMs: number | undefined;

  get keepAliveS(): number {
    return this.#keepAliveS;
  }

  /** `keepAliveS` 0 turns it off. */
  start(keepAliveS: number, nowMs: number): void {
    this.#keepAliveS = keepAliveS;
    this.#heardMs = nowMs;
    if (this.#pausedMs !== undefined) this.#pausedMs = nowMs;
  }

  heard(nowMs: number): void {
    this.#heardMs = nowMs;
    if (this.#pausedMs !== undefined) this.#pausedMs = nowMs;
  }

  pause(nowMs: number): void {
    this.#pausedMs ??= nowMs;
  }

  resume(nowMs: number): void {
    if (this.#pausedMs === undefined) return;
    this.#heardMs += nowMs - this.#pausedMs;
    this.#pausedMs = undefined;
  }

  /** When the silence will be too long; undefined while it does not count. */
  get deadlineMs(): number | undefined {
    if (this.#keepAliveS === 0 || this.#pausedMs !== undefined) return undefined;
    return this.#heardMs + this.#keepAliveS * 1000 * graceFactor;
  }

  silentMs(nowMs: number): number {
    return nowMs - this.#heardMs;
  }
}
