// Tasks side by side, a bounded number at a time.

export class Lanes {
  readonly #max: number;
  readonly #running = new Set<Promise<void>>();

  constructor(max: number) {
    this.#max = max;
  }

  /** Starts the task once a lane is free; resolves when it has started. Tasks must not reject. */
  async run(task: () => Promise<void>): Promise<void> {
    while (this.#running.size >= this.#max) await Promise.race(this.#running);
    const running = task().finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  /** Resolves when every task has ended. */
  async idle(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
  }
}
