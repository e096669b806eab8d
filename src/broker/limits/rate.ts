// A rate as a bucket of tokens that may go into debt: what has come is always taken, and whoever
// brought it waits until the debt is paid. So no message is refused for its rate, and a large one
// passes like many small ones.

export class Rate {
  readonly #perMs: number;
  readonly #burst: number;
  #tokens: number;
  #atMs: number;

  /** `perS` tokens come in a second; as many may be saved up. */
  constructor(perS: number, nowMs: number) {
    this.#perMs = perS / 1000;
    this.#burst = Math.max(1, perS);
    this.#tokens = this.#burst;
    this.#atMs = nowMs;
  }

  /** Takes tokens; the result is how long to wait before more is taken, 0 for not at all. */
  charge(amount: number, nowMs: number): number {
    this.#refill(nowMs);
    this.#tokens -= amount;
    return this.#tokens >= 0 ? 0 : Math.ceil(-this.#tokens / this.#perMs);
  }

  /** Takes a token if there is one. */
  take(nowMs: number): boolean {
    this.#refill(nowMs);
    if (this.#tokens < 1) return false;
    this.#tokens--;
    return true;
  }

  /** Until `take` has one. */
  waitMs(nowMs: number): number {
    this.#refill(nowMs);
    return this.#tokens >= 1 ? 0 : Math.ceil((1 - this.#tokens) / this.#perMs);
  }

  #refill(nowMs: number): void {
    const gained = Math.max(0, nowMs - this.#atMs) * this.#perMs;
    this.#tokens = Math.min(this.#burst, this.#tokens + gained);
    this.#atMs = nowMs;
  }
}

/** Undefined: no limit, which costs nothing. */
export function createRate(perS: number, nowMs: number): Rate | undefined {
  return Number.isFinite(perS) ? new Rate(perS, nowMs) : undefined;
}

/** What a client's traffic is charged to: its own rates, its address's, the broker's. */
export class Traffic {
  readonly #messages: readonly Rate[];
  readonly #bytes: readonly Rate[];

  constructor(messages: ReadonlyArray<Rate | undefined>, bytes: ReadonlyArray<Rate | undefined>) {
    this.#messages = messages.filter((rate) => rate !== undefined);
    this.#bytes = bytes.filter((rate) => rate !== undefined);
  }

  get isLimited(): boolean {
    return this.#messages.length + this.#bytes.length > 0;
  }

  /** How long the client is not to be read. */
  charge(messages: number, bytes: number, nowMs: number): number {
    let waitMs = 0;
    for (const rate of this.#messages) waitMs = Math.max(waitMs, rate.charge(messages, nowMs));
    for (const rate of this.#bytes) waitMs = Math.max(waitMs, rate.charge(bytes, nowMs));
    return waitMs;
  }
}
