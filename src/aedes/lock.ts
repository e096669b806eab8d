// One task at a time for each key, in call order; different keys do not wait for each other.

export class KeyedLock {
  readonly #tails = new Map<string, Promise<unknown>>();

  /** Keys with a task under way. */
  get size(): number {
    return this.#tails.size;
  }

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
}
