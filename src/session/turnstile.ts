// One task at a time per key, in call order; different keys do not wait for each other. Connects,
// closes and timers of one client id go through it.

export class Turnstile {
  readonly #tails = new Map<string, Promise<unknown>>();

  run<T>(key: string, task: () => Promise<T>): Promise<T> {
    const before = this.#tails.get(key);
    const turn = before === undefined ? task() : before.then(task, task);
    this.#tails.set(key, turn);
    const leave = (): void => {
      if (this.#tails.get(key) === turn) this.#tails.delete(key);
    };
    turn.then(leave, leave);
    return turn;
  }

  /** Resolves when every task that has been given is done. */
  async idle(): Promise<void> {
    while (this.#tails.size > 0) await Promise.allSettled(this.#tails.values());
  }
}
